"""The state machine of rules, against a second one that was written from Prometheus' source word for word."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from controlplane.alerts.rule_state import Active, step

START = datetime(2026, 3, 1, tzinfo=UTC)
INTERVAL = timedelta(seconds=15)
NONE = timedelta(0)
spans = st.integers(0, 8).map(lambda number: number * INTERVAL)
results = st.lists(st.dictionaries(st.sampled_from("abc"), st.sampled_from(["1", "2"])), min_size=1, max_size=30)


@dataclass
class PrometheusAlert:
    """rules/alerting.go, v3: `Alert` and the part of `AlertingRule.Eval` that follows the query."""

    active_at: datetime
    state: str = "pending"
    keep_firing_since: datetime | None = None


def prometheus_eval(
    alerts: dict[str, PrometheusAlert], found: set[str], ts: datetime, hold: timedelta, keep: timedelta
):
    for name in found:
        if name not in alerts or alerts[name].state == "inactive":
            alerts[name] = PrometheusAlert(ts)
    for name, alert in list(alerts.items()):
        if name not in found:
            keep_firing = False
            if alert.state == "firing" and keep > NONE:
                if alert.keep_firing_since is None:
                    alert.keep_firing_since = ts
                keep_firing = ts - alert.keep_firing_since < keep
            if alert.state == "pending":
                del alerts[name]
            elif alert.state == "firing" and not keep_firing:
                alert.state = "inactive"
            if not keep_firing:
                continue
        else:
            alert.keep_firing_since = None
        if alert.state == "pending" and ts - alert.active_at >= hold:
            alert.state = "firing"


@given(results, spans, spans)
def test_series_are_pending_and_firing_as_with_prometheus(evaluations, pending_for, keep_firing_for):
    ours: dict[str, Active] = {}
    theirs: dict[str, PrometheusAlert] = {}
    for number, found in enumerate(evaluations):
        at = START + number * INTERVAL
        ours = step(ours, found, at, pending_for=pending_for, keep_firing_for=keep_firing_for)
        prometheus_eval(theirs, set(found), at, pending_for, keep_firing_for)
        expected = {name: alert.state == "firing" for name, alert in theirs.items() if alert.state != "inactive"}
        assert {name: series.firing for name, series in ours.items()} == expected
        assert all(ours[name].value == value for name, value in found.items())


@given(results, spans, st.timedeltas(NONE, timedelta(days=3)))
def test_time_in_which_nobody_looked_does_not_make_a_series_fire(evaluations, pending_for, away):
    """As a restart of Prometheus: what was pending goes on from where it was, what fires fires."""
    straight: dict[str, Active] = {}
    broken: dict[str, Active] = {}
    middle = len(evaluations) // 2
    for number, found in enumerate(evaluations):
        at = START + number * INTERVAL
        late = away if number >= middle else NONE
        unseen = away if number == middle else NONE
        straight = step(straight, found, at, pending_for=pending_for, keep_firing_for=NONE)
        broken = step(broken, found, at + late, pending_for=pending_for, keep_firing_for=NONE, unseen=unseen)
        assert {name: series.firing for name, series in broken.items()} == {
            name: series.firing for name, series in straight.items()
        }


def test_a_gap_of_one_evaluation_starts_the_wait_anew():
    wait = 2 * INTERVAL
    active = step({}, {"a": "1"}, START, pending_for=wait, keep_firing_for=NONE)
    active = step(active, {}, START + INTERVAL, pending_for=wait, keep_firing_for=NONE)
    assert not active
    active = step(active, {"a": "1"}, START + 2 * INTERVAL, pending_for=wait, keep_firing_for=NONE)
    assert not active["a"].firing


def test_without_for_a_series_fires_at_the_first_evaluation_that_finds_it():
    assert step({}, {"a": "1"}, START, pending_for=NONE, keep_firing_for=NONE)["a"].firing
