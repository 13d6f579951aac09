"""Who is told what, and when: incidents as the worker looks at them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from controlplane.alerts.models import Alert, Delivery, Incident, LastTold, Receiver
from controlplane.alerts.pipeline.stages import Standing
from controlplane.alerts.services import alerts, deliveries, notifying
from controlplane.alerts.services.alert_routes import ALERT_ROUTES
from controlplane.alerts.services.alerts import NewAlert
from controlplane.alerts.services.inhibitions import INHIBITIONS
from controlplane.alerts.services.maintenance_windows import MAINTENANCE_WINDOWS
from controlplane.alerts.services.silences import SILENCES
from controlplane.alerts.services.standing import standing
from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.core.nouns import Noun
from tests.controlplane.alerts.conftest import event
from tests.controlplane.alerts.incident import receiver
from tests.controlplane.core.racing import at_once, two_writers

pytestmark = pytest.mark.django_db
Post = Callable[..., None]
GROUP_WAIT, REPEAT = timedelta(seconds=10), timedelta(hours=4)
EVERY_DAY = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]


@pytest.fixture(autouse=True)
def oncall(db: None) -> None:
    receiver("oncall")


def fresh(engine: str = "e1", severity: str = "warning", **labels: str) -> NewAlert:
    """A series of a rule."""
    return NewAlert(
        labels={"alertname": "KvFull", "pool": "chat", "engine": engine, **labels},
        source="rule",
        severity=severity,
        title=engine,
        annotations={},
        at=timezone.now(),
        text="0.97",
    )


def fires(engine: str = "e1", severity: str = "warning", **labels: str) -> Alert:
    with transaction.atomic():
        ((alert, _),) = alerts.open_alerts([fresh(engine, severity, **labels)])
    return alert


def ends(alert: Alert) -> None:
    with transaction.atomic():
        assert alerts.resolve_alert(alert, timezone.now(), "over")


def make(noun: Noun[Any], name: str = "one", **fields: Any) -> None:
    with unit_of_work(SYSTEM, "a test") as unit:
        noun.create(unit, name, fields)


def silence(*matchers: str, hours: float = 1) -> None:
    make(SILENCES, matchers=list(matchers), ends_at=timezone.now() + timedelta(hours=hours), comment="a test")


def look(later: timedelta = GROUP_WAIT) -> list[tuple[str, str]]:
    """What the worker writes when it looks so much later: receiver and occasion of each message."""
    before = set(Delivery.objects.values_list("pk", flat=True))
    moment = timezone.now() + later
    notifying.look_at_due(lambda: moment)
    return said(before)


def said(but: set[uuid.UUID] | frozenset[uuid.UUID] = frozenset()) -> list[tuple[str, str]]:
    written = Delivery.objects.exclude(pk__in=but).order_by("number", "receiver__name")
    return list(written.values_list("receiver__name", "occasion"))


def test_a_group_waits_for_its_others_and_is_one_message() -> None:
    for number in range(5):
        fires(f"e{number}")
    assert look(timedelta(seconds=5)) == []
    assert look() == [("oncall", "first")]
    assert len(LastTold.objects.get().alerts) == 5


def test_what_is_new_in_a_group_is_told_after_its_interval() -> None:
    fires("e1")
    look()
    fires("e2")
    assert look(timedelta(minutes=4)) == []
    assert look(timedelta(minutes=6)) == [("oncall", "changed")]


def test_the_same_is_repeated_only_after_the_repeat_interval() -> None:
    fires()
    look()
    assert look(REPEAT - timedelta(minutes=1)) == []
    assert look(REPEAT + timedelta(minutes=1)) == [("oncall", "repeat")]
    assert look(REPEAT * 2) == []


def test_one_that_ends_before_anybody_was_told_is_no_message() -> None:
    ends(fires())
    assert said() == []
    assert look(REPEAT) == []
    assert Incident.objects.get().notify_at is None


def test_the_end_is_told_at_once_to_those_who_know() -> None:
    alert = fires()
    look()
    receiver("late")
    ends(alert)
    assert said() == [("oncall", "first"), ("oncall", "resolved")]


def test_what_becomes_critical_waits_for_nothing() -> None:
    fires("e1")
    look()
    fires("e2", "critical")
    assert look(timedelta(0)) == [("oncall", "changed")]
    assert LastTold.objects.get().severity == "critical"


def test_a_new_group_waits_also_where_some_of_it_is_critical() -> None:
    new = [fresh("e1"), fresh("e2", "critical")]
    with transaction.atomic():
        alerts.open_alerts(new)
    assert look(timedelta(0)) == []
    assert look() == [("oncall", "first")]
    assert "severity" not in Incident.objects.get().entries.values_list("kind", flat=True)


def test_events_are_told_in_the_transaction_that_stores_them(post: Post) -> None:
    post(event())
    assert said() == [("oncall", "first")]


def test_one_fault_and_all_that_it_caused_are_one_page(post: Post, policy_on: None) -> None:
    make(
        INHIBITIONS,
        source_matchers=['alertname="GpuXid"', 'severity="critical"'],
        target_matchers=['alertname=~"GpuLost|EngineDown"'],
        equal=["node"],
    )
    post(event("engine_down", subject="e1"), event("gpu_lost"), event())
    assert [(row.incident.labels["alertname"]) for row in Delivery.objects.all()] == ["GpuXid"]
    mute = Alert.objects.exclude(muted_by={})
    assert {each.labels["alertname"]: each.muted_by for each in mute} == {
        "EngineDown": {"inhibition": ["one"]},
        "GpuLost": {"inhibition": ["one"]},
    }
    entries = Incident.objects.get(labels__alertname="EngineDown").entries
    assert "muted" in entries.values_list("kind", flat=True)


def test_what_was_mute_is_told_once_its_cause_is_over_and_it_is_not(post: Post) -> None:
    make(
        INHIBITIONS, source_matchers=['alertname="GpuLost"'], target_matchers=['alertname="EngineDown"'], equal=["node"]
    )
    post(event("gpu_lost"), event("engine_down", subject="e1"))
    assert look(timedelta(minutes=1)) == []
    post(event("gpu_recovered", "info"))
    (message,) = Delivery.objects.filter(occasion="resolved")
    assert message.incident.labels["alertname"] == "GpuLost"
    assert look(timedelta(0)) == [("oncall", "first")]
    post(event("engine_up", "info", subject="e1"))
    assert Delivery.objects.filter(occasion="resolved").count() == 2


def test_an_end_that_nobody_heard_the_beginning_of_is_not_told(post: Post) -> None:
    silence('node="n1"')
    post(event("gpu_lost"))
    post(event("gpu_recovered", "info"))
    assert said() == []


def test_a_silence_keeps_quiet_until_it_ends() -> None:
    silence('pool="chat"')
    fires()
    assert look() == []
    assert Alert.objects.get().muted_by == {"silence": ["one"]}
    assert look(timedelta(hours=2)) == [("oncall", "first")]
    assert Alert.objects.get().muted_by == {}


def test_a_silence_that_is_ended_early_is_looked_at_at_once() -> None:
    silence('pool="chat"')
    fires()
    look()
    with unit_of_work(SYSTEM, "a test") as unit:
        SILENCES.expire(unit, "one", timezone.now())
    assert look(timedelta(seconds=1)) == [("oncall", "first")]


def test_silencing_what_was_told_is_no_news() -> None:
    fires("e1")
    fires("e2")
    look()
    silence('engine="e1"')
    assert look(timedelta(minutes=30)) == []


def test_a_maintenance_window_keeps_quiet_what_it_matches() -> None:
    make(MAINTENANCE_WINDOWS, matchers=['pool="chat"'], days=EVERY_DAY, starts="00:00", ends="00:00")
    fires("e1")
    fires("e2", pool="code")
    assert look() == [("oncall", "first")]
    assert Delivery.objects.get().incident.labels["pool"] == "code"


def test_routes_say_who_is_told_and_an_alert_that_none_matches_goes_to_all() -> None:
    receiver("chat-team")
    make(ALERT_ROUTES, "chat", matchers=['pool="chat"'], receivers=["chat-team"])
    make(ALERT_ROUTES, "quiet", matchers=['pool="batch"'], receivers=[])
    fires("e1")
    fires("e2", pool="code")
    fires("e3", pool="batch")
    look()
    told = Delivery.objects.values_list("incident__labels__pool", "receiver__name")
    assert sorted(told) == [("chat", "chat-team"), ("code", "chat-team"), ("code", "oncall")]


def test_routes_that_go_on_add_their_receivers() -> None:
    receiver("log")
    make(ALERT_ROUTES, "log", order=1, matchers=[], receivers=["log"], goes_on=True, group_by=["pool"])
    make(ALERT_ROUTES, "all", order=2, matchers=[], receivers=["oncall"])
    fires()
    assert look() == [("log", "first"), ("oncall", "first")]
    assert Incident.objects.get().labels == {"pool": "chat"}


def test_a_receiver_that_is_made_later_is_told_of_what_fires_at_the_next_look() -> None:
    fires("e1")
    look()
    receiver("late")
    fires("e2")
    assert look(timedelta(minutes=6)) == [("late", "first"), ("oncall", "changed")]


def test_a_look_that_is_cut_off_leaves_nothing_and_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    fires()
    enqueue = deliveries.enqueue

    def killed(*given: Any, **more: Any) -> int:
        enqueue(*given, **more)
        raise KeyboardInterrupt

    monkeypatch.setattr(deliveries, "enqueue", killed)
    with pytest.raises(KeyboardInterrupt):
        look()
    assert (said(), LastTold.objects.count()) == ([], 0)
    monkeypatch.setattr(deliveries, "enqueue", enqueue)
    assert look() == [("oncall", "first")]


def test_of_an_incident_that_somebody_looked_at_meanwhile_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    fires()
    moment = timezone.now() + GROUP_WAIT
    due = notifying._due(moment)
    assert look() == [("oncall", "first")]
    rounds = iter([due, []])
    monkeypatch.setattr(notifying, "_due", lambda now, without: next(rounds))
    assert notifying.look_at_due(lambda: moment) == 0


def test_an_incident_that_cannot_be_looked_at_keeps_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = fires("e1", pool="broken").incident_id
    for number in range(3):
        fires("e1", pool=f"p{number}")
    enqueue = deliveries.enqueue

    def fail(incident: Incident, *given: Any, **more: Any) -> int:
        if incident.pk == broken:
            raise ValueError("nobody thought of this")
        return enqueue(incident, *given, **more)

    monkeypatch.setattr(deliveries, "enqueue", fail)
    assert look() == [("oncall", "first")] * 3
    monkeypatch.setattr(deliveries, "enqueue", enqueue)
    assert look() == [("oncall", "first")]


@pytest.mark.django_db(transaction=True)
def test_a_receiver_that_is_deleted_within_a_round_keeps_no_other_from_being_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone = receiver("gone")
    fires()

    def stale(now: datetime) -> Standing:
        laid_down = standing(now)
        gone.delete()
        return laid_down

    monkeypatch.setattr(notifying, "standing", stale)
    assert look() == [("oncall", "first")]
    assert [told.receiver.name for told in LastTold.objects.select_related("receiver")] == ["oncall"]


@pytest.mark.django_db(transaction=True)
def test_an_incident_whose_only_receiver_is_deleted_meanwhile_was_told_to_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fires()

    def stale(now: datetime) -> Standing:
        laid_down = standing(now)
        Receiver.objects.all().delete()
        return laid_down

    monkeypatch.setattr(notifying, "standing", stale)
    assert look() == []
    assert Incident.objects.get().told_at is None


@two_writers
@pytest.mark.django_db(transaction=True)
def test_two_workers_tell_everybody_once() -> None:
    for number in range(12):
        fires("e1", pool=f"p{number}")
    moment: datetime = timezone.now() + GROUP_WAIT
    assert at_once(*[lambda: notifying.look_at_due(lambda: moment)] * 4) == [None] * 4
    assert said() == [("oncall", "first")] * 12


@two_writers
@pytest.mark.django_db(transaction=True)
def test_alerts_that_come_while_it_is_looked_at_are_told_later_at_the_latest() -> None:
    moment = timezone.now() + GROUP_WAIT

    def burst() -> None:
        for number in range(10):
            fires(f"e{number}")

    def looks() -> None:
        for _ in range(10):
            notifying.look_at_due(lambda: moment)

    assert at_once(burst, looks, looks) == [None] * 3
    look(timedelta(minutes=10))
    assert sorted(LastTold.objects.get().alerts) == sorted(Alert.objects.values_list("pk", flat=True))
