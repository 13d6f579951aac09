"""What-if runs in a worker: carried out by a real child process, held by one worker, survived when that is killed."""

from __future__ import annotations

import sys
import threading
import time
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from controlplane.planner import tasks, what_if_child, what_if_work
from controlplane.planner.models import WhatIfRun, WhatIfState
from tests.controlplane.planner.lengths import ask


@pytest.fixture
def new(db: None) -> Any:
    def make(**columns: Any) -> WhatIfRun:
        return WhatIfRun.objects.create(
            **{"owner": "ada", "reason": "why", "ask": ask(), "created_at": timezone.now(), **columns}
        )

    return make


def work() -> bool:
    return what_if_work.work(timezone.now(), threading.Event())


def test_a_run_is_carried_out_and_its_report_kept(new: Any) -> None:
    run = new()
    assert work()
    run.refresh_from_db()
    assert (run.state, run.error, run.runs_done, run.held_until) == (WhatIfState.DONE, "", run.runs, None)
    assert [point["settings"]["max_num_seqs"] for point in run.report["points"]] == [2, 32]
    assert run.report["peak"]["settings"]["max_num_batched_tokens"] == 1024
    assert not work()


def test_a_run_that_takes_too_long_fails_by_name(new: Any) -> None:
    slow = ask(measured_seconds=3000, arrivals={"rate_per_second": 200}, limit_seconds=1)
    run = new(ask=slow)
    work()
    run.refresh_from_db()
    assert run.state == WhatIfState.FAILED
    assert "within 1 s" in run.error


def test_a_calibrated_run_uses_the_speed_that_was_found(new: Any) -> None:
    observed = {
        **{name: ask()[name] for name in ("prompt_tokens", "output_tokens", "arrivals")},
        "max_num_seqs": 32, "max_num_batched_tokens": 1024, "kv_capacity_tokens": 40_000, "max_model_len_tokens": 4096,
        "ttft_ms": {"p50": 30.0}, "tpot_ms": {"p50": 15.0}, "measured_seconds": 5,
    }  # fmt: skip
    run = new(calibration={"observations": [observed], "seeds": 1, "tries_max": 120})
    work()
    run.refresh_from_db()
    found = run.report["calibration"]
    assert all(abs(each["error"]) < 0.1 for each in found["errors"])
    slowest = run.report["points"][1]["loads"][0]["tpot_ms"]["p50"]
    assert slowest == pytest.approx(15, rel=0.25)


def test_one_worker_holds_a_run_and_the_oldest_is_first(new: Any) -> None:
    first, second = new(), new()
    now = timezone.now()
    claimed = [what_if_work.claim(now) for _ in range(3)]
    assert [run and run.pk for run in claimed] == [first.pk, second.pk, None]


def test_a_run_whose_worker_died_is_begun_again_and_then_fails_by_name(new: Any) -> None:
    run = new()
    now = timezone.now()
    for begun in (1, 2):
        claimed = what_if_work.claim(now)
        assert claimed is not None
        assert claimed.begun == begun
        assert what_if_work.claim(now + what_if_work.LEASE / 2) is None
        now += what_if_work.LEASE + timedelta(seconds=1)
    assert what_if_work.claim(now) is None
    run.refresh_from_db()
    assert (run.state, run.error[:31]) == (WhatIfState.FAILED, "the worker that ran it was kill")


def test_who_lost_a_run_keeps_nothing_of_it(new: Any) -> None:
    run = new()
    lost = what_if_work.claim(timezone.now())
    again = what_if_work.claim(timezone.now() + 2 * what_if_work.LEASE)
    assert lost is not None
    assert again is not None
    what_if_work._ended(lost, WhatIfState.DONE, report={})
    run.refresh_from_db()
    assert run.state == WhatIfState.RUNNING


def test_cancelled_its_child_is_ended_and_what_it_says_dropped(new: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run = new(ask=ask(measured_seconds=3000, arrivals={"rate_per_second": 200}))
    monkeypatch.setattr(what_if_child, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(what_if_work, "RENEW", timedelta(0))
    renewed = what_if_work._Renewal.__call__

    def cancelled_meanwhile(self: Any, progress: dict[str, Any]) -> bool:
        WhatIfRun.objects.filter(pk=run.pk).update(state=WhatIfState.CANCELLED)
        return renewed(self, progress)

    monkeypatch.setattr(what_if_work._Renewal, "__call__", cancelled_meanwhile)
    began = time.monotonic()
    assert work()
    assert time.monotonic() - began < 20
    run.refresh_from_db()
    assert (run.state, run.report) == (WhatIfState.CANCELLED, None)


def test_a_worker_that_ends_gives_its_run_back(new: Any) -> None:
    run = new(ask=ask(measured_seconds=3000, arrivals={"rate_per_second": 200}))
    stopping = threading.Event()
    stopping.set()
    what_if_work.work(timezone.now(), stopping)
    run.refresh_from_db()
    assert (run.state, run.begun, run.held_until) == (WhatIfState.WAITING, 0, None)


def test_a_child_that_cannot_begin_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(what_if_child.ChildFailed, match="No module named"):
        what_if_child.run("simulator.nothing", {}, 20, lambda progress: True)
    with pytest.raises(what_if_child.ChildFailed, match="/slo: "):
        what_if_child.run("simulator.what_if", ask(slo={}), 20, lambda progress: True)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(what_if_child.ChildFailed, match="cannot be started: No such file"):
        what_if_child.run("simulator.what_if", ask(), 20, lambda progress: True)


def test_a_worker_carries_out_one_run_after_another_and_stops_when_told(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, going, done = tasks.Workbench(), threading.Event(), []

    def work(now: datetime, stopping: threading.Event) -> bool:
        going.wait(20)
        done.append(stopping.is_set())
        return len(done) < 3

    monkeypatch.setattr(what_if_work, "work", work)
    assert bench.wake()
    assert not bench.wake()
    going.set()
    assert bench._thread is not None
    bench._thread.join(20)
    assert done == [False, False, False]
    assert bench.wake()
    bench._thread.join(20)
    bench.stop()
    assert not bench.wake()
    assert bench.wait(20)


def test_a_worker_that_ends_waits_until_its_run_is_given_back_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, given_back = tasks.Workbench(), threading.Event()

    def work(now: datetime, stopping: threading.Event) -> bool:
        assert stopping.wait(20)
        given_back.wait(20)
        return False

    monkeypatch.setattr(what_if_work, "work", work)
    assert bench.wait(0)
    assert bench.wake()
    bench.stop()
    assert not bench.wait(0.05)
    given_back.set()
    assert bench.wait(20)


def test_a_child_that_reads_nothing_is_ended_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(what_if_child, "LOOK_SECONDS", 0.1)
    began = time.monotonic()
    with pytest.raises(what_if_child.ChildFailed, match="longer than 1 s"):
        # A module that sleeps, given more than a pipe holds.
        what_if_child.run("tests.controlplane.planner.sleeper", ["x" * 1_000_000], 1, lambda progress: True)
    assert time.monotonic() - began < 10


def test_a_run_that_breaks_leaves_the_next_look_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = tasks.Workbench()

    def broken(now: datetime, stopping: threading.Event) -> bool:
        raise OSError("no more processes")

    monkeypatch.setattr(what_if_work, "work", broken)
    for _ in range(2):
        assert bench.wake()
        assert bench._thread is not None
        bench._thread.join(20)
