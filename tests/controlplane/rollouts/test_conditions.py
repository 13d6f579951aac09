"""The conditions that a rollout is watched by: PromQL that says of given series whether the new side is well."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from controlplane.configs.stage_watch import is_healthy
from controlplane.core import fields as f
from controlplane.rollouts.asked import ConditionFields, WatchFields
from controlplane.rollouts.conditions import generated, requests_of
from controlplane.telemetry import query
from controlplane.telemetry.receiver import store_path
from controlplane.telemetry.store.writer import Owner
from tests.controlplane.telemetry.filling import named, store
from wire.write_body import Series

WATCH = WatchFields().model_dump()
CONDITIONS = {each["name"]: each for each in generated("old.a", "new-b", WATCH, promises=True)}


@pytest.mark.parametrize("name", CONDITIONS)
def test_each_can_be_given_by_hand_as_well(name: str) -> None:
    assert f.read(ConditionFields, CONDITIONS[name]).model_dump() == CONDITIONS[name]


def test_a_pool_that_promises_nothing_has_no_goodput_to_judge() -> None:
    assert "goodput" not in {each["name"] for each in generated("old", "new", WATCH, promises=False)}


def counters(pool: str, name: str, rate: float, labels: Mapping[str, str] | None = None) -> list[Series]:
    """A counter of the gateway's that has grown evenly for the last two minutes. Times are from now on."""
    given = {"pool": pool, "tenant": "acme", **(labels or {})}
    samples = [(-1000 * ago, rate * (120 - ago)) for ago in range(120, -1, -5)]
    return [named(f"headworks_gateway_{name}", samples, **given)]


def latencies(pool: str, name: str, seconds: float) -> list[Series]:
    """Requests at 2 a second, all of which took so long."""
    bounds = (0.05, 0.1, 0.5, 1.0, 5.0)
    return [
        series
        for bound in bounds
        for series in counters(pool, f"{name}_bucket", 2.0 if seconds <= bound else 0.0, {"le": f"{bound:g}"})
    ] + counters(pool, f"{name}_bucket", 2.0, {"le": "+Inf"})


def served(pool: str, *, failed: float = 0.0, met: float = 2.0) -> list[Series]:
    return [
        *counters(pool, "requests_total", 2.0 - failed, {"outcome": "ok"}),
        *counters(pool, "requests_total", failed, {"outcome": "failed"}),
        *counters(pool, "slo_requests_total", met, {"outcome": "met"}),
        *counters(pool, "slo_requests_total", 2.0 - met, {"outcome": "missed"}),
    ]


def stored(series: list[Series]) -> int:
    """Store them as of now, since tests are collected long before some of them run; now, in ms."""
    now_ms = int(time.time()) * 1000
    dated = [replace(each, samples=[(now_ms + at_ms, value) for at_ms, value in each.samples]) for each in series]
    store(store_path(), dated, Owner("gateway", "gw-1"))
    return now_ms


def broken_of(series: list[Series], tmp_path: Any, settings: Any) -> set[str]:
    settings.DATA_DIR = tmp_path
    now_ms = stored(series)
    return {
        name
        for name, each in CONDITIONS.items()
        if not is_healthy(each["expression"], query.instant(each["expression"], now_ms))
    }


@pytest.mark.parametrize(
    ("ended", "begun", "counted"),
    [(0.5, None, 30), (None, 0.5, 30), (0.1, 0.5, 30), (0.5, 0.1, 30), (None, None, None)],
)
def test_requests_that_have_begun_to_be_answered_count_before_they_end(
    db: None, ended: float | None, begun: float | None, counted: int | None, tmp_path: Any, settings: Any
) -> None:
    given = {"requests_total": ended, "ttft_seconds_count": begun}
    series = [each for name, rate in given.items() if rate is not None for each in counters("new-b", name, rate)]
    settings.DATA_DIR = tmp_path
    now_ms = stored(series)
    values = [round(sample.value) for sample in query.instant(requests_of("new-b", 60), now_ms)]
    assert values == ([] if counted is None else [counted])


WELL = [
    *served("old.a"),
    *served("new-b"),
    *latencies("old.a", "ttft_seconds", 0.4),
    *latencies("new-b", "ttft_seconds", 0.4),
]


@pytest.mark.parametrize(
    ("series", "broken"),
    [
        ([], set()),
        (WELL, set()),
        ([*served("old.a"), *served("new-b", failed=0.2)], {"error_ratio"}),
        ([*served("old.a", failed=0.2), *served("new-b", failed=0.2)], set()),
        ([*served("old.a"), *served("new-b", met=1.0)], {"goodput"}),
        ([*latencies("old.a", "ttft_seconds", 0.4), *latencies("new-b", "ttft_seconds", 0.9)], {"ttft_p95"}),
        ([*latencies("old.a", "tpot_seconds", 0.09), *latencies("new-b", "tpot_seconds", 0.9)], {"tpot_p95"}),
        # Nothing to compare with: the old side has no traffic any more.
        ([*latencies("new-b", "ttft_seconds", 0.9), *served("new-b")], set()),
        ([*WELL, *counters("new-b", "retries_total", 0.5)], {"retries"}),
        # All that came there was answered by the old side.
        ([*served("old.a"), *counters("new-b", "retries_total", 2 / 60)], {"retries"}),
        # Once in a minute is no sign.
        ([*WELL, *counters("new-b", "retries_total", 1 / 60)], set()),
        ([*WELL, *counters("old.a", "retries_total", 0.5)], set()),
        ([*WELL, *counters("new-b", "breaker_state", 1 / 120, {"engine": "e", "state": "open"})], {"breaker"}),
        ([*WELL, *counters("old.a", "breaker_state", 1 / 120, {"engine": "e", "state": "open"})], set()),
    ],
)
def test_what_is_wrong_breaks_the_condition_of_its_name(
    db: None, series: list[Series], broken: set[str], tmp_path: Any, settings: Any
) -> None:
    assert broken_of(series, tmp_path, settings) == broken
