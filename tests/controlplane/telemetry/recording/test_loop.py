"""Recording rules evaluated on a real store: from samples to series of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.core.fields import epoch_ms
from controlplane.telemetry import query
from controlplane.telemetry.models import RecordingGroup, RecordingRule, RecordingSet
from controlplane.telemetry.receiver import store_path
from controlplane.telemetry.recording import loop, rules
from controlplane.telemetry.recording.builtin import builtin
from controlplane.telemetry.recording.loop import evaluate_due
from controlplane.telemetry.store.packing import pack
from controlplane.telemetry.store.writer import Owner
from tests.controlplane.core.racing import at_once
from tests.controlplane.telemetry.filling import named, store
from tests.services import free_port

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
START_MS = epoch_ms(START)
MINUTE, MINUTE_MS = timedelta(minutes=1), 60_000
# Beyond the delay that samples have to come.
AFTER = timedelta(seconds=20)
BY_POOL = {"record": "pool:kv:max", "expr": "max by (pool) (kv)"}
pytestmark = pytest.mark.django_db


def put(*groups: list[dict[str, Any]], first: datetime = START) -> None:
    """Rules by group, due from `first` on."""
    document = {"groups": [{"name": f"g{number}", "rules": group} for number, group in enumerate(groups)]}
    with unit_of_work(SYSTEM, "a test") as unit:
        rules.replace(unit, document)
    RecordingGroup.objects.update(next_ms=epoch_ms(first))


@pytest.fixture
def kv(own_store) -> Callable[..., None]:
    """Write the value of a pool's one engine, shortly before each of these minutes."""

    def write(pool: str, values: dict[int, float]) -> None:
        samples = [(START_MS + minute * MINUTE_MS - 1000, value) for minute, value in values.items()]
        store(own_store, [named("kv", samples, pool=pool)], Owner("node", "n-1"))

    return write


def evaluate(minute: int) -> int:
    return evaluate_due(lambda: START + minute * MINUTE + AFTER)


def values(promql: str, minute: float) -> dict[str, float]:
    """By pool."""
    found = query.instant(promql, START_MS + round(minute * MINUTE_MS))
    return {sample.labels.get("pool", ""): sample.value for sample in found}


def raw(promql: str, last: int) -> list[tuple[float, float]]:
    """Minute and value at each minute until the last, of one series."""
    (series,) = query.range_(promql, START_MS, START_MS + last * MINUTE_MS, MINUTE_MS)
    return [((at - START_MS) / MINUTE_MS, value) for at, value in zip(series.times_ms, series.values, strict=True)]


def states() -> dict[str, dict[str, Any]]:
    return {state["record"]: state for state in rules.states()}


def test_a_result_is_kept_as_series_of_the_moment_with_the_rules_labels(kv):
    put([{**BY_POOL, "labels": {"tier": "a"}}])
    kv("short", {0: 0.5})
    kv("long", {0: 0.7})
    assert evaluate(0) == 1
    found = query.instant("pool:kv:max", START_MS)
    assert [(one.labels, one.value) for one in sorted(found, key=lambda one: one.value)] == [
        ({"__name__": "pool:kv:max", "pool": "short", "tier": "a"}, 0.5),
        ({"__name__": "pool:kv:max", "pool": "long", "tier": "a"}, 0.7),
    ]
    assert query.instant("pool:kv:max", START_MS - 1) == []
    state = states()["pool:kv:max"]
    assert (state["series"], state["evaluated_at"], state["last_error"]) == (2, "2026-03-01T12:00:00.000Z", None)
    assert 0 <= state["took_ms"] < 10_000


def test_a_group_waits_for_its_samples_and_is_evaluated_once(kv):
    put([BY_POOL])
    kv("short", {0: 0.5, 1: 0.6})
    assert evaluate_due(lambda: START + timedelta(seconds=14)) == 0
    assert evaluate_due(lambda: START + timedelta(seconds=15)) == 1
    assert evaluate(0) == 0
    assert evaluate(1) == 1


def test_what_a_clock_that_ran_ahead_recorded_stops_nothing_once_it_is_right_again(kv):
    put([BY_POOL])
    kv("short", {0: 0.5, 1: 0.6, 2: 0.7})
    evaluate(0)
    # Of a year later there is nothing, so that the series is ended then.
    evaluate(365 * 24 * 60)
    evaluate(1)
    assert values("pool:kv:max", 1) == {"short": 0.6}
    pack(store_path(), 2**60)
    evaluate(2)
    pack(store_path(), 2**60)
    assert raw("pool:kv:max", 2) == [(0, 0.5), (1, 0.6), (2, 0.7)]


def test_a_rule_sees_what_the_rules_before_it_in_its_group_have_recorded(kv):
    put([BY_POOL, {"record": "fleet:kv:max", "expr": "max(pool:kv:max)"}])
    kv("short", {0: 0.5})
    kv("long", {0: 0.7})
    evaluate(0)
    assert values("fleet:kv:max", 0) == {"": 0.7}


def test_a_series_that_vanishes_ends_at_once(kv):
    put([{"record": "pool:kv:full", "expr": "max by (pool) (kv) > 0.9"}])
    kv("short", {0: 0.95, 1: 0.1, 2: 0.99})
    kv("long", {0: 0.95, 1: 0.95, 2: 0.95})
    evaluate(0)
    assert values("pool:kv:full", 0.9) == {"short": 0.95, "long": 0.95}
    evaluate(1)
    assert values("pool:kv:full", 1) == {"long": 0.95}
    evaluate(2)
    assert values("pool:kv:full", 2) == {"short": 0.99, "long": 0.95}


def test_missed_moments_are_caught_up_within_the_stores_window(kv):
    put([BY_POOL])
    kv("short", {minute: float(minute) for minute in range(11)})
    evaluate(0)
    assert evaluate(10) == 5
    assert raw("pool:kv:max - 0", 10)[-5:] == [(minute, float(minute)) for minute in range(6, 11)]
    assert values("count_over_time(pool:kv:max[20m])", 10) == {"short": 6}


def test_the_series_of_a_rule_that_was_removed_end_and_those_of_others_go_on(kv):
    kv("short", {0: 0.5})
    put([BY_POOL, {"record": "pool:kv:min", "expr": "min by (pool) (kv)"}])
    evaluate(0)
    put([{"record": "pool:kv:min", "expr": "min by (pool) (kv) + 0"}], first=START + MINUTE)
    assert evaluate(0) == 0
    assert values("pool:kv:max", 0.3) == {"short": 0.5}
    assert values("pool:kv:max", 0.4) == {}
    assert values("pool:kv:min", 0.9) == {"short": 0.5}
    assert list(RecordingRule.objects.values_list("record", flat=True)) == ["pool:kv:min"]


def test_a_rule_that_takes_over_a_series_keeps_it(kv):
    kv("short", {0: 0.5, 1: 0.6})
    put([{**BY_POOL, "labels": {"tier": "a"}}])
    evaluate(0)
    put([{**BY_POOL, "expr": 'label_replace(max by (pool) (kv), "tier", "a", "", "")'}])
    RecordingRule.objects.filter(group=None).update(position=7)
    # As if another worker had evaluated the new rule before this one looks at what is gone.
    RecordingRule.objects.exclude(group=None).update(written=[{"pool": "short", "tier": "a"}])
    loop.end_removed(START_MS + 30_000)
    assert values("pool:kv:max", 0.9) == {"short": 0.5}
    assert RecordingRule.objects.count() == 1


def test_more_series_than_the_limit_are_refused_by_name(kv, monkeypatch):
    monkeypatch.setenv("HEADWORKS_RECORDING_SERIES_MAX", "2")
    put([BY_POOL, {"record": "fleet:kv:count", "expr": "count(kv)"}])
    for pool in ("a", "b", "c"):
        kv(pool, {0: 0.5})
    assert evaluate(0) == 2
    assert states()["pool:kv:max"]["last_error"].startswith("too_many_series: the result has 3 series")
    assert values("pool:kv:max", 0) == {}
    assert values("fleet:kv:count", 0) == {"": 3}


def test_series_that_the_rules_labels_make_alike_are_refused(kv):
    put([{**BY_POOL, "labels": {"pool": "any"}}])
    kv("short", {0: 0.5})
    kv("long", {0: 0.7})
    evaluate(0)
    assert states()["pool:kv:max"]["last_error"].startswith("duplicate: ")


def test_labels_that_no_series_may_have_are_refused(kv, monkeypatch):
    monkeypatch.setenv("HEADWORKS_METRICS_LABEL_VALUE_MAX_CHARACTERS", "16")
    put([{**BY_POOL, "labels": {"tier": "x" * 17}}])
    kv("short", {0: 0.5})
    evaluate(0)
    assert "value_too_long" in states()["pool:kv:max"]["last_error"]
    assert values("pool:kv:max", 0) == {}


def test_a_label_that_no_database_holds_is_recorded_in_a_form_that_it_does(kv):
    put([BY_POOL])
    kv("sho\x00rt", {0: 0.5})
    for minute in (0, 1):
        evaluate(minute)
        assert values("pool:kv:max", minute) == {"sho\N{REPLACEMENT CHARACTER}rt": 0.5}
    assert states()["pool:kv:max"]["last_error"] is None


def test_an_error_ends_nothing_and_is_gone_with_the_next_result(kv, monkeypatch):
    put([BY_POOL])
    kv("short", {0: 0.5, 2: 0.7})
    evaluate(0)
    monkeypatch.setenv("HEADWORKS_PROMETHEUS_URL", f"http://127.0.0.1:{free_port()}")
    evaluate(1)
    monkeypatch.delenv("HEADWORKS_PROMETHEUS_URL")
    assert "does not answer" in states()["pool:kv:max"]["last_error"]
    assert values("pool:kv:max", 1) == {"short": 0.5}
    evaluate(2)
    assert states()["pool:kv:max"]["last_error"] is None
    assert values("pool:kv:max", 2) == {"short": 0.7}


def test_a_fault_of_our_own_keeps_no_other_rule_from_its_turn(kv, monkeypatch):
    put([BY_POOL, {"record": "fleet:kv:count", "expr": "count(kv)"}])
    kv("short", {0: 0.5})
    recorded = loop.recorded

    def broken(own: Any, samples: list[query.Sample], series_max: int) -> Any:
        return recorded(own, samples, series_max) if not samples[0].labels else 1 / 0

    monkeypatch.setattr(loop, "recorded", broken)
    evaluate(0)
    assert "ZeroDivisionError" in states()["pool:kv:max"]["last_error"]
    assert values("fleet:kv:count", 0) == {"": 1}


def test_a_series_that_another_has_written_otherwise_is_an_error_that_is_shown(kv, own_store):
    put([BY_POOL])
    kv("short", {0: 0.5})
    clash = named("pool:kv:max", [(START_MS, 1.0)], pool="short")
    del clash.labels["node"]  # type: ignore[attr-defined]
    store(own_store, [clash], Owner("node", "n-1"))
    evaluate(0)
    assert "duplicate" in states()["pool:kv:max"]["last_error"]


def test_the_built_in_rules_are_taken_up_and_followed_from_version_to_version(monkeypatch):
    assert evaluate_due(lambda: START) == 0
    assert evaluate(0) == len(rules.states()) == sum(len(group["rules"]) for group in builtin()["groups"])
    assert rules.current() == builtin()
    newer = {"groups": [{"name": "headworks", "rules": [BY_POOL]}]}
    monkeypatch.setattr(rules, "builtin", lambda: newer)
    rules.follow_builtin(START_MS)
    assert list(states()) == ["pool:kv:max"]
    assert RecordingSet.objects.count() == 1


def test_rules_that_people_gave_are_not_replaced_by_the_built_in_ones():
    put([BY_POOL])
    rules.follow_builtin(START_MS)
    assert list(states()) == ["pool:kv:max"]


def test_an_interval_of_its_own_counts_for_a_group(kv):
    with unit_of_work(SYSTEM, "a test") as unit:
        rules.replace(unit, {"groups": [{"name": "quick", "interval": "20s", "rules": [BY_POOL]}]})
    RecordingGroup.objects.update(next_ms=START_MS)
    kv("short", {0: 0.5})
    assert evaluate(1) == 4


@pytest.mark.django_db(transaction=True)
def test_of_several_workers_one_evaluates_a_moment(kv):
    kv("short", {0: 0.5, 1: 0.6, 2: 0.7})
    put(*([{**BY_POOL, "labels": {"n": str(number)}}] for number in range(6)))
    lock = threading.Lock()
    evaluated: list[int] = []

    def work() -> None:
        number = evaluate(2)
        with lock:
            evaluated.append(number)

    assert at_once(work, work, work) == [None] * 3
    connection.close()
    assert sum(evaluated) == 18
    assert {state["last_error"] for state in rules.states()} == {None}
    assert values('count_over_time(pool:kv:max{n="3"}[10m])', 2) == {"short": 3}
