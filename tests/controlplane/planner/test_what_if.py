"""What-if runs over REST: asked, measured of a pool, listed, cancelled, forgotten."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from controlplane.core.changes import SYSTEM, UnitOfWork, unit_of_work
from controlplane.core.fields import epoch_ms
from controlplane.core.models import AuditEntry, Role
from controlplane.fleet.models import Engine
from controlplane.planner import tasks, what_if, what_if_asked, what_if_commands
from controlplane.planner.models import WhatIfRun, WhatIfState
from controlplane.planner.what_if_measured import around, busiest_hour, measured_of
from controlplane.telemetry.decisions import sketches
from controlplane.telemetry.receiver import store_path
from controlplane.telemetry.store.writer import Owner
from tests.controlplane.conftest import Rest
from tests.controlplane.planner.lengths import ask
from tests.controlplane.telemetry.filling import named, store
from wire.calibration import read_json as calibration_of
from wire.sketches import MINUTE_MS, Sketch, bucket_of
from wire.what_if import SETTING_MAX
from wire.write_body import Series

HOUR_MS = 60 * MINUTE_MS


@pytest.fixture
def pool(admin: Rest) -> str:
    assert admin.post("/models", {"name": "m", "max_context_tokens": 8192}).status_code == 201
    assert admin.post("/pools", {"name": "chat", "model": "m", "ttft_slo_ms": 900}).status_code == 201
    for name in ("a", "b"):
        body = {"name": name, "pool": "chat", "url": f"http://{name}:8000", "served_model": "m"}
        assert admin.post("/engines", body).status_code == 201
    return "chat"


def counted(minutes_ago: int, arrivals: int, pool: str = "chat") -> None:
    minute = epoch_ms(timezone.now()) // MINUTE_MS * MINUTE_MS - minutes_ago * MINUTE_MS
    seen = Sketch(
        minute=minute, pool=pool, arrivals=arrivals,
        prompt_tokens=[(bucket_of(300), arrivals)], output_tokens=[(bucket_of(20), arrivals)],
    )  # fmt: skip
    sketches.take("edge", [seen], minute)


def begun(rest: Rest, body: dict[str, Any]) -> dict[str, Any]:
    answer = rest.post("/what-if", body)
    assert answer.status_code == 201, answer.json()
    item: dict[str, Any] = answer.json()["item"]
    return item


@pytest.mark.parametrize(("role", "may"), [(Role.VIEWER, False), (Role.OPERATOR, True), (Role.ADMIN, True)])
def test_operators_ask_and_cancel_and_viewers_read(
    role: Role, may: bool, rest_of: Callable[[Role | None], Rest], operator: Rest
) -> None:
    rest = rest_of(role)
    assert rest.post("/what-if", {"ask": ask()}).status_code == (201 if may else 403)
    run = begun(operator, {"ask": ask()})
    assert rest.get(f"/what-if/{run['id']}").json()["ask"] == ask()
    assert rest.post(f"/what-if/{run['id']}/cancel").status_code == (200 if may else 403)


def test_a_dry_run_checks_everything_and_keeps_nothing(operator: Rest) -> None:
    answer = operator.post("/what-if?dry_run=true", {"ask": ask()})
    assert (answer.status_code, answer.json()["item"]["state"]) == (201, "waiting")
    assert not WhatIfRun.objects.exists()


def test_what_cannot_be_run_is_refused_with_every_problem_at_its_path(operator: Rest) -> None:
    bad = ask(slo={}, loads=[0], max_num_seqs="all")
    problems = {problem["path"] for problem in operator.post("/what-if", {"ask": bad}).json()["problems"]}
    assert problems == {"/ask/loads/0", "/ask/max_num_seqs"}
    answer = operator.post("/what-if", {"ask": ask(slo={}, arrivals={"minutes": [0, 0]})}).json()
    assert {problem["path"] for problem in answer["problems"]} == {"/ask/slo", "/ask/arrivals"}
    answer = operator.post("/what-if", {"ask": ask(measured_seconds=86_400, arrivals={"rate_per_second": 9_000})})
    assert [problem["rule"] for problem in answer.json()["problems"]] == ["too_much"]


def test_a_pool_gives_what_was_measured_of_it(pool: str, operator: Rest) -> None:
    Engine.objects.filter(name="a").update(
        kv_capacity_tokens=50_000, facts={"arguments": {"max_num_seqs": "64"}, "max_length_tokens": 4096}
    )
    Engine.objects.filter(name="b").update(kv_capacity_tokens=60_000, cordoned=True)
    counted(3, 30)
    counted(4, 60)
    run = begun(operator, {"pool": pool, "ask": {"max_num_batched_tokens": [2048]}})
    asked = operator.get(f"/what-if/{run['id']}").json()["ask"]
    assert asked["prompt_tokens"] == [[bucket_of(300), 90]]
    assert asked["slo"] == {"ttft_ms": 900, "tpot_ms": None, "e2e_ms": None}
    assert asked["max_num_seqs"] == [16, 32, 64, 128, 256]
    assert (asked["max_num_batched_tokens"], asked["kv_capacity_tokens"], asked["replicas"]) == ([2048], [50_000], [1])
    assert asked["max_model_len_tokens"] == 4096
    assert run["assumed"] == [
        "speed: that of an 8B model on one H100, as no TTFT and TPOT were measured of its engines"
    ]


def test_it_says_what_was_taken_for_granted(pool: str, operator: Rest) -> None:
    counted(3, 30)
    assumed = begun(operator, {"pool": pool})["assumed"]
    named = [words.partition(":")[0] for words in assumed]
    assert named == ["kv_capacity_tokens", "max_num_seqs", "max_num_batched_tokens", "speed"]


def test_the_speed_is_found_where_latencies_were_measured(
    pool: str, operator: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    from controlplane.planner import what_if_measured

    counted(3, 30)
    monkeypatch.setattr(what_if_measured, "_latency", lambda series, now: {"mean": 20.0, "p95": 40.0})
    run = operator.get(f"/what-if/{begun(operator, {'pool': pool})['id']}").json()
    (observed,) = run["calibration"]["observations"]
    assert (observed["ttft_ms"], sum(observed["arrivals"]["minutes"])) == ({"mean": 20.0, "p95": 40.0}, 30)
    without = begun(operator, {"pool": pool, "calibrate": False})
    assert operator.get(f"/what-if/{without['id']}").json()["calibration"] is None


def test_latencies_are_those_of_the_pool_in_the_last_hour(pool: str, settings: Any, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path
    now = timezone.now()
    times_ms = [epoch_ms(now) - minute * MINUTE_MS for minute in range(50, -1, -10)]

    def counter(name: str, each: float, **labels: str) -> Series:
        return named(name, [(at_ms, each * count) for count, at_ms in enumerate(times_ms)], **labels)

    series = [
        counter(f"{name}_{part}", each, pool=of, **labels)
        for of, share in ((pool, 1.0), ("other", 7.0))
        for name in ("headworks_engine_ttft_seconds", "headworks_gateway_tpot_seconds")
        for part, each, labels in (
            ("sum", 4.0 * share, {}), ("count", 10.0, {}), ("bucket", 0.0, {"le": "0.2"}),
            ("bucket", 10.0, {"le": "0.6"}), ("bucket", 10.0, {"le": "+Inf"}),
        )
    ]  # fmt: skip
    store(store_path(), series, Owner("node", "n-1"))
    counted(3, 30)
    calibration = measured_of(pool, 1, now).calibration
    assert calibration is not None
    (observed,) = calibration["observations"]
    for name in ("ttft_ms", "tpot_ms"):
        assert observed[name] == pytest.approx({"mean": 400, "p50": 400, "p95": 580}, rel=0.01)
    calibration_of(json.dumps(calibration).encode())


def test_a_pool_of_which_nothing_was_counted_is_refused(pool: str, operator: Rest) -> None:
    counted(3, 30, pool="other")
    (problem,) = operator.post("/what-if", {"pool": pool}).json()["problems"]
    assert (problem["path"], problem["rule"]) == ("/pool", "not_measured")
    assert operator.post("/what-if", {"pool": "nothing"}).status_code == 404


def test_the_command_takes_a_pool_and_says_what_it_assumes(pool: str, capsys: pytest.CaptureFixture[str]) -> None:
    counted(3, 30)
    parser = argparse.ArgumentParser()
    what_if_commands.add_to(parser.add_subparsers(), _unit_of_test)
    arguments = parser.parse_args(["what-if", "--pool", pool, "--days", "2"])
    ask_of_pool, calibration = what_if_commands._of_pool(_unit_of_test, arguments, {"max_num_seqs": [8]})
    assert (ask_of_pool["max_num_seqs"], ask_of_pool["slo"]["ttft_ms"], calibration) == ([8], 900, None)
    assert "taken for granted: max_num_batched_tokens: around 8,192" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"[" * 100_000, "no JSON"),
        (b"\xff", "no JSON"),
        (b"[]", "give a JSON object"),
        (b" " * (what_if_commands.FILE_MAX_BYTES + 1), "at most"),
    ],
)
def test_a_file_that_is_no_ask_ends_the_command_by_name(tmp_path: Path, text: bytes, says: str) -> None:
    file = tmp_path / "ask.json"
    file.write_bytes(text)
    with pytest.raises(SystemExit, match=says):
        what_if_commands._document(str(file))


@contextmanager
def _unit_of_test(reason: str, dry_run: bool) -> Iterator[UnitOfWork]:
    with unit_of_work(SYSTEM, reason, dry_run=dry_run) as unit:
        yield unit


def test_the_hour_that_counts_is_the_busiest_one() -> None:
    arrivals = {5 * HOUR_MS: 3, 5 * HOUR_MS + MINUTE_MS: 4, 6 * HOUR_MS + 59 * MINUTE_MS: 6}
    assert busiest_hour(arrivals) == [3, 4, *[0] * 58]
    assert around(2) == [1, 2, 4, 8]
    assert around(10**9) == [SETTING_MAX]


def test_a_read_has_the_tag_that_the_write_answered_with(operator: Rest) -> None:
    made = operator.post("/what-if", {"ask": ask()})
    assert operator.get(f"/what-if/{made.json()['item']['id']}")["ETag"] == made["ETag"]


def test_cancelled_it_has_ended(operator: Rest) -> None:
    run = begun(operator, {"ask": ask()})
    assert operator.post(f"/what-if/{run['id']}/cancel").json()["item"]["state"] == "cancelled"
    assert operator.post(f"/what-if/{run['id']}/cancel").json()["code"] == "ended"
    assert operator.post("/what-if/999/cancel").status_code == 404
    kept = AuditEntry.objects.filter(noun=what_if.NOUN).order_by("pk")
    assert [(entry.before or {}).get("state") for entry in kept] == [None, "waiting"]


def test_the_list_has_pages_and_no_reports(pool: str, operator: Rest) -> None:
    ids = [begun(operator, {"ask": ask()})["id"] for _ in range(3)]
    first = operator.get("/what-if?limit=2").json()
    assert [item["id"] for item in first["items"]] == ids[:0:-1]
    assert "ask" not in first["items"][0]
    assert [item["id"] for item in operator.get(f"/what-if?after={first['next']}").json()["items"]] == ids[:1]
    assert operator.get("/what-if?pool=chat").json()["items"] == []


def test_a_long_line_takes_no_more(operator: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(what_if, "OPEN_MAX", 1)
    begun(operator, {"ask": ask()})
    assert operator.post("/what-if", {"ask": ask()}).json()["code"] == "too_many_runs"


def test_old_runs_are_forgotten_and_open_ones_kept(operator: Rest) -> None:
    old, recent, open_run = (begun(operator, {"ask": ask()})["id"] for _ in range(3))
    now = timezone.now()
    WhatIfRun.objects.filter(pk=old).update(state=WhatIfState.DONE, ended_at=now - timedelta(days=91))
    WhatIfRun.objects.filter(pk=recent).update(state=WhatIfState.DONE, ended_at=now - timedelta(days=89))
    assert tasks.prune_what_ifs() == 1
    assert set(WhatIfRun.objects.values_list("pk", flat=True)) == {recent, open_run}


def test_days_are_bounded(operator: Rest) -> None:
    answer = operator.post("/what-if", {"pool": "chat", "days": what_if_asked.DAYS_MAX + 1})
    assert [problem["path"] for problem in answer.json()["problems"]] == ["/days"]
