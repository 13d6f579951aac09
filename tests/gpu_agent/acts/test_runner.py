"""Every act once, in its order, whatever happens to the agent between."""

from __future__ import annotations

import asyncio
import errno
import logging
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from gpu_agent.acts import doing, journal
from gpu_agent.acts.journal import Journal
from gpu_agent.acts.outcome import refused
from gpu_agent.acts.runner import ActRunner
from gpu_agent.policy import EnginePolicy, NodePolicy
from tests.gpu_agent.acts.works import FUTURE, FakeGpus, act, node_engine, tools, until
from wire.acts import ACTIONS, ReleaseGpus
from wire.files import write_private
from wire.messages import MAX_ACTS
from wire.snapshot import NodeSnapshot, NodeState

ENGINES = ("e1", "e2")
EVERYTHING = EnginePolicy(
    allow=[name for name, action in ACTIONS.items() if action.kinds],
    restart_command=["/bin/true"],
    start_command=["/bin/true"],
    stop_command=["/bin/true"],
)
POLICY = NodePolicy(allow=["release_gpus", "take_up_gpus"], engines=dict.fromkeys(ENGINES, EVERYTHING))


def act_id(number):
    return f"{number:032x}"


def slice_of(acts, engines=ENGINES):
    return NodeSnapshot(1, NodeState("node-1"), {name: node_engine() for name in engines}, acts)


def runner_of(folder, policy=POLICY, **changed):
    return ActRunner(Journal(Path(folder) / "acts.json"), policy, tools(**changed), lambda: None, retry_seconds=0.01)


@asynccontextmanager
async def running(runner):
    task = asyncio.create_task(runner.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def ended(runner, *numbers):
    """The reports of these acts, once all have come to an end."""
    wanted = [act_id(number) for number in numbers]

    def found():
        return {report.id: report for report in runner.reports() if report.state != "running"}

    await until(lambda: found().keys() >= set(wanted))
    return [found()[each] for each in wanted]


async def results(tmp_path, *acts, policy=POLICY, engines=ENGINES, **changed):
    """How these acts end, one after another."""
    runner = runner_of(tmp_path, policy, **changed)
    runner.adopt(slice_of({act_id(number): each for number, each in enumerate(acts)}, engines))
    async with running(runner):
        return await ended(runner, *range(len(acts)))


@pytest.mark.parametrize(
    ("given_act", "reason"),
    [
        (act("dance"), "unknown_action"),
        (act("sleep", engine=None), "wrong_subject"),
        (act("release_gpus", engine="e1"), "wrong_subject"),
        (act("load_model", model="m"), "wrong_kind"),
        (act("sleep", level=3), "bad_arguments"),
        (act("sleep", depth=1), "bad_arguments"),
        (act("sleep", engine="e9"), "no_such_engine"),
        (act("wake", expires_at_ms=1), "expired"),
    ],
)
async def test_an_act_that_cannot_be_done_is_refused_by_name_and_not_begun(tmp_path, given_act, reason, monkeypatch):
    monkeypatch.setattr(doing, "do_on_engine", None)
    (report,) = await results(tmp_path, given_act)
    assert (report.state, report.reason) == ("expired" if reason == "expired" else "refused", reason)
    assert report.detail


async def test_arguments_of_what_is_refused_do_not_fill_the_journal(tmp_path):
    (report,) = await results(tmp_path, act("sleep", level="1" * 1_000_000, more="2" * 1_000_000))
    assert report.reason == "bad_arguments"
    assert (tmp_path / "acts.json").stat().st_size < 4096
    (again,) = runner_of(tmp_path).reports()
    assert again == report


async def test_the_nodes_own_policy_wins(tmp_path):
    policy = NodePolicy(engines={"e1": EnginePolicy(allow=["wake"])})
    on_engine, on_node = await results(tmp_path, act("sleep"), act("release_gpus", engine=None), policy=policy)
    assert (on_engine.state, on_engine.reason) == ("refused", "not_allowed")
    assert on_engine.detail.endswith("on engine e1 it allows wake")
    assert on_node.detail.endswith("on the node itself it allows nothing")


async def test_gpus_are_released_and_taken_up_in_order(tmp_path):
    gpus = FakeGpus()
    release, take_up = act("release_gpus", None, 1, limit_seconds=60), act("take_up_gpus", None, 2)
    reports = await results(tmp_path, release, take_up, gpus=gpus)
    assert [report.state for report in reports] == ["done", "done"]
    assert gpus.asked == [60, "take up"]
    assert reports[0].detail.startswith("NVML is closed until ")


async def test_an_act_that_hangs_holds_back_its_own_engine_alone(tmp_path, monkeypatch):
    begun = []

    async def do(request, work):
        begun.append(work.name)
        if work.name == "e1":
            await asyncio.Event().wait()
        return "done"

    monkeypatch.setattr(doing, "do_on_engine", do)
    runner = runner_of(tmp_path)
    acts = [act("sleep", "e1", 1), act("wake", "e1", 2), act("sleep", "e2", 3), act("wake", "e2", 4)]
    runner.adopt(slice_of({act_id(number): each for number, each in enumerate(acts)}))
    async with running(runner):
        await ended(runner, 2, 3)
        assert [report.state for report in runner.reports()] == ["running", "done", "done"]
    assert sorted(begun) == ["e1", "e2", "e2"]


async def test_a_defect_ends_one_act_and_nothing_else(tmp_path, monkeypatch, caplog):
    async def do(request, work):
        if work.name == "e1":
            raise ZeroDivisionError("a defect")
        return "done"

    monkeypatch.setattr(doing, "do_on_engine", do)
    broken, whole = await results(tmp_path, act("sleep", "e1"), act("sleep", "e2"))
    assert (broken.state, broken.reason, whole.state) == ("failed", "internal", "done")
    assert "a defect" in caplog.text


async def test_what_an_engine_or_a_command_said_is_one_bounded_line(tmp_path, monkeypatch, caplog):
    async def do(request, work):
        raise refused("engine_refused", "it said \x1b[31mno\x1b[0m\r\n" + "x" * 5000)

    monkeypatch.setattr(doing, "do_on_engine", do)
    caplog.set_level(logging.INFO)
    (report,) = await results(tmp_path, act("sleep"))
    assert report.detail.startswith("it said [31mno [0m xxx")
    assert len(report.detail) == 2000
    assert all(message.isprintable() for message in caplog.messages)


async def test_what_is_told_is_forgotten_and_never_done_again(tmp_path, monkeypatch):
    done = []

    async def do(request, work):
        done.append(work.name)
        return "done"

    monkeypatch.setattr(doing, "do_on_engine", do)
    runner = runner_of(tmp_path)
    full = slice_of({act_id(1): act("sleep")})
    runner.adopt(full)
    async with running(runner):
        await ended(runner, 1)
        runner.adopt(slice_of({}))
        # It stays until the control plane has its end.
        assert [report.id for report in runner.reports()] == [act_id(1)]
        runner.reported(runner.reports())
        await until(lambda: not runner.reports())
        # Nor does one that starts then.
        await until(lambda: not runner_of(tmp_path).reports())
    # The last slice that was kept may be older than the journal.
    again = runner_of(tmp_path)
    again.adopt(full)
    async with running(again):
        again.adopt(slice_of({act_id(1): act("sleep"), act_id(2): act("wake", order=2)}))
        await ended(again, 2)
    assert done == ["e1", "e1"]
    assert [report.id for report in again.reports()] == [act_id(2)]


async def test_what_a_former_run_kept_is_begun_only_once_the_control_plane_has_had_its_say(tmp_path, monkeypatch):
    done = []

    async def do(request, work):
        done.append(work.name)
        return "done"

    monkeypatch.setattr(doing, "do_on_engine", do)
    kept = {act_id(1): act("sleep"), act_id(2): act("sleep", engine="e2")}
    for said in ("another slice", "no other slice"):
        runner = runner_of(tmp_path / said)
        runner.adopt(slice_of(kept), confirmed=False)
        async with running(runner):
            for _ in range(10):
                await asyncio.sleep(0)
            assert done == []
            if said == "another slice":
                runner.adopt(slice_of({act_id(2): kept[act_id(2)]}))
                await ended(runner, 2)
                assert [report.id for report in runner.reports()] == [act_id(2)]
            else:
                runner.confirm()
                await ended(runner, 1, 2)
        done.clear()


async def test_one_that_is_taken_back_while_it_is_written_down_is_not_begun(tmp_path, monkeypatch):
    done = []

    async def do(request, work):
        done.append(work.name)
        return "done"

    monkeypatch.setattr(doing, "do_on_engine", do)
    runner = runner_of(tmp_path)
    put = Journal.put

    async def put_slowly(self, each, entry):
        if each == act_id(1):
            runner.adopt(slice_of({act_id(2): act("wake", order=2)}))
        await put(self, each, entry)

    monkeypatch.setattr(Journal, "put", put_slowly)
    runner.adopt(slice_of({act_id(1): act("sleep")}))
    async with running(runner):
        await ended(runner, 2)
    assert (done, [report.id for report in runner.reports()]) == (["e1"], [act_id(2)])


async def test_one_that_was_not_begun_after_all_is_in_no_report(tmp_path, monkeypatch):
    """The control plane would show it as running, and nobody would tell its end."""
    runner, told, put = runner_of(tmp_path), [], Journal.put

    async def put_slowly(self, each, entry):
        runner.adopt(slice_of({}))
        await put(self, each, entry)

    def write(*given):
        told.append(runner.reports())
        write_private(*given)

    monkeypatch.setattr(Journal, "put", put_slowly)
    monkeypatch.setattr(journal, "write_private", write)
    runner.adopt(slice_of({act_id(1): act("sleep")}))
    async with running(runner):
        await until(lambda: len(told) == 2)
    assert told == [[], []]


async def test_a_report_of_running_is_no_end(tmp_path, monkeypatch):
    go_on = asyncio.Event()

    async def do(request, work):
        await go_on.wait()
        return "done"

    monkeypatch.setattr(doing, "do_on_engine", do)
    runner = runner_of(tmp_path)
    runner.adopt(slice_of({act_id(1): act("sleep")}))
    async with running(runner):
        await until(runner.reports)
        told = runner.reports()
        runner.adopt(slice_of({}))
        go_on.set()
        await ended(runner, 1)
        runner.reported(told)
        await asyncio.sleep(0)
        assert [report.state for report in runner.reports()] == ["done"]


async def test_a_full_disk_begins_nothing_and_the_act_is_done_when_there_is_room(tmp_path, monkeypatch, caplog):
    full, done = True, []

    def write(path, data):
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        write_private(path, data)

    async def do(request, work):
        done.append(work.name)
        return "done"

    monkeypatch.setattr(journal, "write_private", write)
    monkeypatch.setattr(doing, "do_on_engine", do)
    caplog.set_level(logging.WARNING)
    runner = runner_of(tmp_path)
    runner.adopt(slice_of({act_id(1): act("sleep")}))
    async with running(runner):
        await until(lambda: "No space left" in caplog.text)
        assert (done, runner.reports()) == ([], [])
        full = False
        (report,) = await ended(runner, 1)
    assert (done, report.state) == (["e1"], "done")


async def test_an_act_that_never_came_on_disk_expires_and_says_why(tmp_path, monkeypatch):
    def write(path, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(journal, "write_private", write)
    now_ms = iter(range(FUTURE - 2, FUTURE + 100))
    runner = ActRunner(
        Journal(tmp_path / "acts.json"),
        POLICY,
        tools(),
        lambda: None,
        retry_seconds=0.01,
        clock_ms=lambda: next(now_ms),
    )
    runner.adopt(slice_of({act_id(1): act("sleep")}))
    async with running(runner):
        (report,) = await ended(runner, 1)
    assert (report.state, report.reason) == ("expired", "journal")
    assert report.detail.endswith("No space left on device")


async def test_after_a_damaged_journal_nothing_that_waits_is_begun(tmp_path, monkeypatch, caplog):
    async def do(request, work):
        return "done"

    monkeypatch.setattr(doing, "do_on_engine", do)
    (tmp_path / "acts.json").write_bytes(b"\x00" * 100)
    runner = runner_of(tmp_path)
    runner.adopt(slice_of({act_id(1): act("sleep")}))
    async with running(runner):
        (before,) = await ended(runner, 1)
        runner.adopt(slice_of({act_id(1): act("sleep"), act_id(2): act("wake", order=2)}))
        (after,) = await ended(runner, 2)
    assert (before.state, before.reason, after.state) == ("refused", "journal", "done")
    assert "cannot be read" in caplog.text


async def test_an_engine_that_is_gone_when_the_agent_is_back_ends_its_act(tmp_path, monkeypatch):
    async def do(request, work):
        await asyncio.Event().wait()

    monkeypatch.setattr(doing, "do_on_engine", do)
    runner = runner_of(tmp_path)
    runner.adopt(slice_of({act_id(1): act("sleep")}))
    async with running(runner):
        await until(runner.reports)
    again = runner_of(tmp_path)
    again.adopt(slice_of({}, engines=()))
    async with running(again):
        (report,) = await ended(again, 1)
    assert (report.state, report.reason) == ("failed", "no_such_engine")


async def test_more_acts_than_fit_wait_until_results_are_taken(tmp_path):
    runner = runner_of(tmp_path)
    runner.adopt(slice_of({act_id(number): act("dance", order=number) for number in range(MAX_ACTS + 1)}))
    async with running(runner):
        await ended(runner, *range(MAX_ACTS))
        assert len(runner.reports()) == MAX_ACTS
        runner.reported(runner.reports())
        runner.adopt(slice_of({act_id(MAX_ACTS): act("dance")}))
        await ended(runner, MAX_ACTS)
    assert (tmp_path / "acts.json").stat().st_mode & 0o777 == 0o600


async def test_a_fetch_of_hours_holds_back_no_other_act_of_the_node_and_tells_how_far_it_is(tmp_path, monkeypatch):
    going, changes = asyncio.Event(), []

    async def do(request, work):
        if isinstance(request, ReleaseGpus):
            return "released"
        for permille in (1, 9, 420):
            work.tell_progress(permille)
        await going.wait()
        return "whole"

    monkeypatch.setattr(doing, "do_on_node", do)
    policy = NodePolicy(allow=["release_gpus", "check_model"])
    runner = ActRunner(Journal(tmp_path / "acts.json"), policy, tools(), lambda: changes.append(1), retry_seconds=0.01)
    check: dict[str, Any] = {"manifest": "a" * 64, "folder": "/models/llama"}
    acts = [
        act("check_model", engine=None, order=1, **check),
        act("check_model", engine=None, order=2, **check),
        act("release_gpus", engine=None, order=3),
    ]
    runner.adopt(slice_of({act_id(number): each for number, each in enumerate(acts)}))
    async with running(runner):
        (released,) = await ended(runner, 2)
        assert released.state == "done"
        # One at a time of those that read files.
        (first,) = [report for report in runner.reports() if report.state == "running"]
        assert (first.id, first.progress_permille) == (act_id(0), 420)
        going.set()
        reports = await ended(runner, 0, 1)
    assert [report.progress_permille for report in reports] == [UNSET, UNSET]
