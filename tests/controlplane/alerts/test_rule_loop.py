"""Rules evaluated on a real store: from samples to incidents."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from controlplane.alerts import rule_loop, rule_queries
from controlplane.alerts.models import Alert, Incident, Rule, RuleSeries
from controlplane.alerts.rule_loop import evaluate_due
from controlplane.alerts.rule_result import Found
from controlplane.alerts.services import alerts, evaluations, incident_acts, notifying
from controlplane.alerts.services.evaluations import Result
from controlplane.alerts.services.rules import RULES
from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.telemetry import query
from controlplane.telemetry.receiver import store_path
from controlplane.telemetry.store.writer import Owner
from tests.controlplane.alerts.incident import receiver
from tests.controlplane.core.racing import at_once
from tests.controlplane.telemetry.filling import named, store
from tests.services import free_port

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
INTERVAL = timedelta(seconds=15)
pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _own_store(settings, tmp_path):
    settings.DATA_DIR = tmp_path


def samples(engine: str, values: dict[int, float]) -> None:
    """The use of an engine's KV cache, by the number of the evaluation that finds it first."""
    at_ms = {number: int((START + number * INTERVAL).timestamp() * 1000) - 1000 for number in values}
    one = named("kv_use", [(at_ms[number], value) for number, value in values.items()], engine=engine)
    store(store_path(), [one], Owner("node", "n-1"))


def rule(**fields: Any) -> Rule:
    with unit_of_work(SYSTEM, "a test") as unit:
        return RULES.create(unit, "Full", {"expr": "kv_use > 0.9", **fields})


def evaluate(number: int) -> None:
    """The evaluation with this number, an interval after the one before."""
    assert evaluate_due(lambda: START + number * INTERVAL) == 1


def states() -> dict[str, str]:
    found = RuleSeries.objects.select_related("incident")
    return {one.labels.get("engine", ""): one.incident.state if one.incident else "pending" for one in found}


def test_a_series_fires_once_it_has_lasted_and_is_resolved_when_it_is_over():
    receiver()
    rule(for_ms=30_000, annotations={"summary": "{{ $labels.engine }}: {{ $value }}"})
    samples("e-1", {0: 0.95, 1: 0.97, 2: 0.99, 3: 0.5})
    samples("e-2", {0: 0.1, 1: 0.95, 2: 0.95, 3: 0.1})
    evaluate(0)
    assert states() == {"e-1": "pending"}
    evaluate(1)
    assert states() == {"e-1": "pending", "e-2": "pending"}
    evaluate(2)
    assert states() == {"e-1": "firing", "e-2": "pending"}
    incident = Incident.objects.get()
    alert = incident.alerts.get()
    assert alert.labels == {"alertname": "Full", "severity": "warning", "engine": "e-1", "node": "n-1"}
    assert incident.labels == {"alertname": "Full"}
    assert notifying.look_at_due(lambda: timezone.now() + timedelta(minutes=1)) == 1
    assert (incident.title, incident.node, incident.started_at) == ("e-1: 0.99", "n-1", START + 2 * INTERVAL)
    evaluate(3)
    assert states() == {}
    incident.refresh_from_db()
    assert (incident.state, incident.resolved_at) == ("resolved", START + 3 * INTERVAL)
    assert sorted(incident.deliveries.values_list("status", flat=True)) == ["firing", "resolved"]


def test_a_series_keeps_its_incident_while_it_fires():
    rule()
    samples("e-1", {0: 0.95, 1: 0.97})
    evaluate(0)
    evaluate(1)
    assert Incident.objects.count() == 1
    assert RuleSeries.objects.get().value == "0.97"


def test_keep_firing_for_bridges_a_gap():
    rule(keep_firing_for_ms=20_000)
    samples("e-1", {0: 0.95, 1: 0.1, 2: 0.95, 3: 0.1, 4: 0.1, 5: 0.1})
    for number, state in enumerate(["firing", "firing", "firing", "firing", "firing"]):
        evaluate(number)
        assert states() == {"e-1": state}
    evaluate(5)
    assert states() == {}
    assert Incident.objects.count() == 1


def test_an_incident_that_a_person_ended_stays_so_until_its_series_comes_anew():
    rule()
    samples("e-1", {0: 0.95, 1: 0.95, 2: 0.1, 3: 0.95})
    evaluate(0)
    incident_acts.end(Incident.objects.get(), START, "a person")
    evaluate(1)
    assert states() == {"e-1": "resolved"}
    evaluate(2)
    evaluate(3)
    assert states() == {"e-1": "firing"}
    assert Incident.objects.count() == 2


def test_a_text_asks_the_store_at_the_moment_of_the_evaluation_and_while_nothing_is_held(monkeypatch):
    depths: list[int] = []
    instant, depth = query.instant, len(connection.savepoint_ids)

    def noted(promql: str, *given: Any, **more: Any) -> list[query.Sample]:
        depths.append(len(connection.savepoint_ids))
        return instant(promql, *given, **more)

    monkeypatch.setattr(query, "instant", noted)
    annotations = {"summary": '{{ query "count(kv_use)" | first | value }} engines', "plain": "{{ $value }}"}
    rule(annotations=annotations, labels={"least": '{{ query "min(kv_use)" | first | value }}'})
    samples("e-1", {0: 0.95, 1: 0.99})
    samples("e-2", {1: 0.5})
    evaluate(0)
    series = RuleSeries.objects.get()
    assert (series.annotations, series.labels["least"]) == ({"summary": "1 engines", "plain": "0.95"}, "0.95")
    evaluate(1)
    assert RuleSeries.objects.get(labels__least="0.5").annotations == {"summary": "2 engines", "plain": "0.99"}
    assert depths == [depth] * 6


def test_once_the_time_of_a_round_is_spent_texts_say_so_and_the_rules_go_on(monkeypatch):
    # The first query spends it.
    monkeypatch.setattr(rule_loop, "ROUND_SHARE", 0.0)
    annotations = {"summary": '{{ query "count(kv_use)" | first | value }} engines'}
    rule(annotations=annotations)
    labels = {"least": '{{ query "min(kv_use)" | first | value }}'}
    with unit_of_work(SYSTEM, "a test") as unit:
        RULES.create(unit, "Next", {"expr": "kv_use > 0.8", "annotations": annotations, "labels": labels})
    samples("e-1", {0: 0.95, 1: 0.95, 2: 0.1})
    for at in (START, START + INTERVAL):
        assert evaluate_due(itertools.repeat(at).__next__) == 2
        told = {one.rule.name: one.annotations["summary"] for one in RuleSeries.objects.select_related("rule")}
        assert told["Full"] == "1 engines"
        assert "what the texts of all rules of a round ask takes longer" in told["Next"]
        assert Alert.objects.filter(state="firing").count() == 2
    assert evaluate_due(lambda: START + 2 * INTERVAL) == 2
    assert states() == {}


def test_a_label_that_nothing_answers_for_ends_no_alert_and_begins_none(monkeypatch, viewer):
    rule(labels={"least": '{{ query "min(kv_use)" | first | value }}'})
    samples("e-1", {0: 0.95, 1: 0.95, 2: 0.95})
    evaluate(0)
    with monkeypatch.context() as patched:
        patched.setattr(rule_queries, "SECONDS_MAX", -1.0)
        evaluate(1)
    assert "its labels are not known now" in viewer.get("/rules/Full").json()["last_error"]
    assert [(one.state, one.labels["least"]) for one in Alert.objects.all()] == [("firing", "0.95")]
    evaluate(2)
    assert viewer.get("/rules/Full").json()["last_error"] is None
    assert Alert.objects.count() == 1


def test_an_error_is_shown_and_changes_nothing(monkeypatch, viewer):
    rule()
    samples("e-1", {0: 0.95, 2: 0.95})
    evaluate(0)
    monkeypatch.setenv("HEADWORKS_PROMETHEUS_URL", f"http://127.0.0.1:{free_port()}")
    evaluate(1)
    assert "does not answer" in viewer.get("/rules/Full").json()["last_error"]
    assert states() == {"e-1": "firing"}
    monkeypatch.delenv("HEADWORKS_PROMETHEUS_URL")
    evaluate(2)
    assert viewer.get("/rules/Full").json()["last_error"] is None
    assert states() == {"e-1": "firing"}


def test_a_fault_of_our_own_is_shown_and_keeps_no_other_rule_from_its_turn(monkeypatch, viewer):
    rule()
    with unit_of_work(SYSTEM, "a test") as unit:
        RULES.create(unit, "Next", {"expr": "vector(1)"})
    instant = query.instant

    def broken(expr: str, at_ms: int, **shared: Any) -> list[query.Sample]:
        return instant(expr, at_ms, **shared) if expr == "vector(1)" else 1 / 0  # type: ignore[return-value]

    monkeypatch.setattr(query, "instant", broken)
    assert evaluate_due(lambda: START) == 2
    assert "ZeroDivisionError" in viewer.get("/rules/Full").json()["last_error"]
    assert Incident.objects.get().title == "Next"


def test_a_storm_of_one_rule_is_one_incident_of_all_its_alerts():
    rule()
    at_ms = int(START.timestamp() * 1000) - 1000
    series = [named("kv_use", [(at_ms, 0.95)], engine=f"e-{number}") for number in range(800)]
    store(store_path(), series, Owner("node", "n-1"))
    evaluate(0)
    assert Rule.objects.get().last_error == ""
    assert (Incident.objects.count(), Alert.objects.filter(state="firing").count()) == (1, 800)


def test_more_series_than_the_limit_are_an_error_and_open_nothing(monkeypatch):
    monkeypatch.setenv("HEADWORKS_RULE_SERIES_MAX", "2")
    rule()
    for number in range(3):
        samples(f"e-{number}", {0: 0.95})
    evaluate(0)
    assert "HEADWORKS_RULE_SERIES_MAX" in Rule.objects.get().last_error
    assert not Incident.objects.exists()


def test_an_evaluation_that_is_cut_off_is_completed_by_the_next(monkeypatch):
    monkeypatch.setattr(evaluations, "BATCH_SERIES", 2)
    rule()
    for number in range(5):
        samples(f"e-{number}", {0: 0.95, 1: 0.95})
    opening, batches = alerts.open_alerts, itertools.count()

    def open_some(new: Any) -> Any:
        opened = opening(new)
        if next(batches) == 1:
            raise KeyboardInterrupt
        return opened

    monkeypatch.setattr(alerts, "open_alerts", open_some)
    with pytest.raises(KeyboardInterrupt):
        evaluate_due(lambda: START)
    # The batch that was cut off left nothing.
    assert Alert.objects.count() == RuleSeries.objects.count() == 2
    evaluate(1)
    assert Alert.objects.count() == 5
    assert Incident.objects.get().title == "Full and 4 more"
    assert set(states().values()) == {"firing"}


def test_series_that_the_rules_labels_make_alike_are_an_error(viewer):
    rule(labels={"engine": "any"})
    samples("e-1", {0: 0.95})
    samples("e-2", {0: 0.95})
    evaluate(0)
    assert "same labels" in Rule.objects.get().last_error
    assert not Incident.objects.exists()


def test_a_value_that_is_no_number_is_one_all_the_same():
    rule(expr="vector(0) / 0", annotations={"summary": "{{ $value }}"})
    evaluate(0)
    assert RuleSeries.objects.get().value == "NaN"
    assert Incident.objects.get().title == "NaN"


def test_time_without_a_worker_does_not_count_towards_for():
    rule(for_ms=60_000)
    samples("e-1", dict.fromkeys(range(400), 0.95))
    evaluate(0)
    evaluate(1)
    evaluate(200)
    assert states() == {"e-1": "pending"}
    evaluate(202)
    assert states() == {"e-1": "pending"}
    evaluate(203)
    assert states() == {"e-1": "firing"}


def test_a_rule_is_due_an_interval_after_the_last_and_not_sooner():
    rule()
    assert evaluate_due(lambda: START) == 1
    assert evaluate_due(lambda: START + INTERVAL - timedelta(milliseconds=1)) == 0
    # Looked at late, it keeps its pace.
    assert evaluate_due(lambda: START + INTERVAL + timedelta(seconds=4)) == 1
    assert evaluate_due(lambda: START + 2 * INTERVAL) == 1


def test_a_clock_that_is_set_back_makes_no_rule_blind_until_it_has_caught_up():
    rule()
    samples("e-1", {0: 0.95})
    assert evaluate_due(lambda: START + timedelta(hours=1)) == 1
    assert evaluate_due(lambda: START) == 1
    assert states() == {"e-1": "firing"}
    assert evaluate_due(lambda: START + timedelta(seconds=1)) == 0
    assert evaluate_due(lambda: START + INTERVAL) == 1


def test_a_rule_that_is_off_is_not_evaluated():
    rule(enabled=False)
    assert evaluate_due(lambda: START) == 0


def test_what_was_evaluated_of_a_rule_that_changed_meanwhile_is_dropped():
    changed = rule()
    with unit_of_work(SYSTEM, "a test") as unit:
        RULES.update(unit, "Full", {"expr": "kv_use > 0.5"})
    evaluations.store_all([Result(changed, {"a": Found({"alertname": "Full"}, "1")}, 1)], START)
    assert not Incident.objects.exists()


def test_an_older_evaluation_that_comes_late_is_dropped():
    one = rule()
    evaluations.store_all([Result(one, {}, 1)], START + INTERVAL)
    evaluations.store_all([Result(one, {"a": Found({"alertname": "Full"}, "1")}, 1)], START)
    assert not Incident.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_of_several_workers_one_evaluates_a_rule():
    with unit_of_work(SYSTEM, "a test") as unit:
        for number in range(6):
            RULES.create(unit, f"Rule{number}", {"expr": "vector(1)"})
    lock = threading.Lock()
    evaluated: list[int] = []

    def worker() -> Callable[[], None]:
        def work() -> None:
            number = evaluate_due(lambda: START)
            with lock:
                evaluated.append(number)

        return work

    assert at_once(worker(), worker(), worker()) == [None] * 3
    connection.close()
    assert sum(evaluated) == 6
    assert Incident.objects.count() == 6


def test_rules_that_are_due_together_are_read_and_written_together(django_assert_max_num_queries):
    with unit_of_work(SYSTEM, "a test") as unit:
        for number in range(40):
            RULES.create(unit, f"Rule{number:02}", {"expr": "kv_use > 0.9" if number % 2 else "kv_use > 2"})
    samples("e-1", {0: 0.95, 1: 0.97, 2: 0.1})
    assert evaluate_due(lambda: START) == 40
    with django_assert_max_num_queries(20):
        assert evaluate_due(lambda: START + INTERVAL) == 40
    assert {one.value for one in RuleSeries.objects.exclude(incident=None)} == {"0.97"}
    assert evaluate_due(lambda: START + 2 * INTERVAL) == 40
    assert not RuleSeries.objects.exists()
    assert not Rule.objects.exclude(evaluated_at=START + 2 * INTERVAL).exists()


def test_a_rule_of_more_series_than_a_batch_is_written_in_several(monkeypatch):
    monkeypatch.setattr(evaluations, "BATCH_SERIES", 2)
    rule()
    with unit_of_work(SYSTEM, "a test") as unit:
        RULES.create(unit, "Small", {"expr": 'kv_use{engine="e-0"} > 0.9'})
    for number in range(5):
        samples(f"e-{number}", {0: 0.95, 1: 0.1})
    assert evaluate_due(lambda: START) == 2
    assert list(states().values()).count("firing") == 5
    assert RuleSeries.objects.count() == 6
    assert evaluate_due(lambda: START + INTERVAL) == 2
    assert not RuleSeries.objects.exists()
