"""What is sent when: attempts that are kept, messages that are overtaken, rates, breakers."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from django.db import transaction
from django.utils import timezone

from controlplane.alerts.delivery_plan import Outcome, Reason
from controlplane.alerts.models import Delivery, Incident, IncidentState, Occasion, Receiver
from controlplane.alerts.services import attempts, deliveries
from controlplane.alerts.services.attempts import ATTEMPTS_KEPT
from controlplane.alerts.services.receivers import RECEIVERS
from controlplane.core.changes import SYSTEM, unit_of_work
from tests.controlplane.alerts.incident import opened, receiver, resolved
from tests.controlplane.core.racing import at_once

TAKEN = Outcome(Reason.TAKEN, "answered 200", status=200)
BROKEN = Outcome(Reason.SERVER_ERROR, "answered 500", status=500, said="no room")
LATER = timedelta(minutes=10)

pytestmark = pytest.mark.django_db


def write(incident: Incident, occasion: str, *who: Receiver) -> None:
    with transaction.atomic():
        status = IncidentState.RESOLVED if occasion == "resolved" else IncidentState.FIRING
        deliveries.enqueue(incident, who, occasion=occasion, status=status, digest="")


def claimed(who: Receiver, later: timedelta = timedelta(0)) -> Delivery | None:
    return attempts.claim(who.pk, timezone.now() + later)


def send(who: Receiver, outcome: Outcome = TAKEN, later: timedelta = timedelta(0)) -> Delivery:
    row = claimed(who, later)
    assert row is not None
    attempts.settle(row, outcome, timezone.now() + later, timedelta(milliseconds=12))
    return row


def states(who: Receiver) -> list[tuple[int, str, str]]:
    return list(who.deliveries.order_by("number").values_list("number", "occasion", "state"))


def test_messages_about_an_incident_are_numbered_for_each_receiver():
    who = receiver()
    incident = opened()
    other = receiver("other")
    write(incident, "changed", who, other)
    assert states(who) == [(1, "first", "waiting"), (2, "changed", "waiting")]
    assert states(other) == [(1, "changed", "waiting")]


def test_kinds_are_told_what_they_have_a_word_for():
    pager = receiver("pager", kind="pagerduty", url="", secret="R" * 32)
    heart = receiver("heart", kind="heartbeat", url="", secret="https://hc.example/ping")
    hook = receiver("hook")
    incident = opened()
    write(incident, Occasion.ACKNOWLEDGED, pager, heart, hook)
    assert states(pager)[-1] == (2, "acknowledged", "waiting")
    assert states(hook) == [(1, "first", "waiting")]
    assert not states(heart)


def test_of_several_that_wait_the_newest_is_sent():
    who = receiver()
    incident = opened()
    for occasion in ("changed", "changed", "repeat"):
        write(incident, occasion, who)
    assert send(who).number == 4
    assert [state for *_, state in states(who)] == ["overtaken"] * 3 + ["delivered"]
    assert claimed(who) is None


def test_what_changed_is_not_sent_after_the_end():
    who = receiver()
    incident = opened()
    send(who)
    write(incident, "changed", who)
    write(incident, "repeat", who)
    resolved(incident)
    assert send(who).occasion == "resolved"
    assert [state for *_, state in states(who)] == ["delivered", "overtaken", "overtaken", "delivered"]


def test_the_end_is_never_all_that_is_told():
    who = receiver()
    incident = opened()
    write(incident, "changed", who)
    resolved_row = Delivery(incident=incident, receiver=who, number=3, occasion="resolved", status="resolved")
    resolved_row.created_at = resolved_row.due_at = timezone.now()
    resolved_row.save()
    assert [send(who).occasion, send(who).occasion] == ["first", "resolved"]
    assert states(who)[1] == (2, "changed", "overtaken")


def test_a_pager_hears_that_somebody_has_seen_what_it_was_told_of_first():
    who = receiver("pager", kind="pagerduty", url="", secret="R" * 32)
    incident = opened()
    write(incident, "acknowledged", who)
    assert [send(who).occasion, send(who).occasion] == ["first", "acknowledged"]


def test_each_attempt_is_kept_with_what_was_answered(viewer):
    who = receiver()
    opened()
    row = send(who, BROKEN)
    send(who, TAKEN, LATER)
    first, second = viewer.get(f"/deliveries/{row.pk}/attempts").json()["items"]
    assert first | {"at": None} == {
        "number": 1, "at": None, "took_ms": 12, "reason": "server_error", "status": 500, "text": "no room",
    }  # fmt: skip
    assert (second["number"], second["reason"], second["status"]) == (2, "taken", 200)
    assert viewer.get(f"/deliveries/{uuid.uuid4()}/attempts").status_code == 404


def test_of_many_attempts_the_last_are_kept(monkeypatch):
    monkeypatch.setenv("HEADWORKS_RECEIVER_FAILURES_MAX", "1000")
    who = receiver()
    opened()
    for number in range(ATTEMPTS_KEPT + 5):
        row = send(who, BROKEN, LATER * (number + 1))
    numbers = list(row.tries.values_list("number", flat=True))
    assert numbers == list(range(6, ATTEMPTS_KEPT + 6))


def test_an_attempt_whose_claim_was_lost_is_not_kept():
    who = receiver()
    opened()
    lost = claimed(who)
    assert lost is not None
    send(who, TAKEN, attempts.lease())
    attempts.settle(lost, BROKEN, timezone.now())
    assert [one.reason for one in lost.tries.all()] == ["taken"]


def test_a_message_that_is_wrong_itself_is_a_dead_letter_at_once_and_no_breaker_opens():
    who = receiver()
    opened()
    send(who, Outcome(Reason.INVALID, "answered 400"))
    who.refresh_from_db()
    assert states(who) == [(1, "first", "failed")]
    assert (who.failures_in_a_row, who.last_error) == (0, "invalid: answered 400")


def test_all_dead_letters_of_a_receiver_are_sent_again_but_those_that_are_out_of_date(operator):
    who = receiver()
    kept, told = opened(), opened(node="n2")
    for _ in range(2):
        send(who, Outcome(Reason.INVALID, "answered 400"))
    write(told, "changed", who)
    send(who)
    answer = operator.post("/receivers/oncall/resend-failed")
    assert answer.json()["item"] == {"receiver": "oncall", "resent": 1}
    assert send(who).incident_id == kept.pk
    assert who.deliveries.filter(state="failed").count() == 1


def test_many_dead_letters_cost_no_more_queries_than_one(django_assert_max_num_queries):
    who = receiver()
    for number in range(30):
        opened(node=f"n{number}")
        send(who, Outcome(Reason.INVALID, "answered 400"))
    with unit_of_work(SYSTEM, "mended") as unit, django_assert_max_num_queries(4):
        assert len(deliveries.resend_failed(unit, who)) == 30
    assert len(unit.changes) == 30
    assert who.deliveries.filter(state="waiting").count() == 30


def test_dead_letters_that_are_out_of_date_keep_no_later_one_back(monkeypatch):
    monkeypatch.setattr(deliveries, "RESENT_AT_ONCE", 1)
    who = receiver()
    old, kept = opened(), opened(node="n2")
    for _ in range(2):
        send(who, Outcome(Reason.INVALID, "answered 400"))
    write(old, "changed", who)
    send(who)
    with unit_of_work(SYSTEM, "mended") as unit:
        (again,) = deliveries.resend_failed(unit, who)
    assert again.incident_id == kept.pk


def test_a_rate_is_held_and_what_is_over_it_waits():
    who = receiver(rate_limit_per_minute=3)
    for number in range(5):
        opened(node=f"n{number}")
    for _ in range(3):
        send(who)
    assert claimed(who) is None
    assert claimed(who, timedelta(seconds=19)) is None
    assert claimed(who, timedelta(seconds=21)) is not None
    assert claimed(who, timedelta(seconds=21)) is None
    assert who.deliveries.filter(state="waiting").count() == 2


@pytest.mark.django_db(transaction=True)
def test_two_workers_share_one_rate():
    who = receiver(rate_limit_per_minute=4)
    for number in range(10):
        opened(node=f"n{number}")
    got: list[uuid.UUID] = []

    def work() -> None:
        while (row := claimed(who)) is not None:
            got.append(row.pk)

    assert at_once(work, work, work) == [None] * 3
    # One that lost a race for a message has spent its token.
    assert len(got) == len(set(got)) <= 4


def fail(who: Receiver, times: int) -> None:
    for number in range(times):
        opened(node=f"broken-{number}")
    for _ in range(times):
        send(who, BROKEN)


def test_a_receiver_that_fails_is_left_alone_and_the_others_are_told_once(viewer):
    who, other = receiver(), receiver("other")
    fail(who, 5)
    who.refresh_from_db()
    assert claimed(who) is None
    assert who.pk not in attempts.receivers_due(timezone.now())
    state = viewer.get("/receivers/oncall/state").json()
    assert (state["breaker"], state["failures_in_a_row"], state["waiting"]) == ("open", 5, 5)
    assert state["last_error"] == "server_error: answered 500"
    incident = Incident.objects.get(labels__alertname="ReceiverFailing")
    assert [row.receiver.name for row in incident.deliveries.all()] == [other.name]
    # A probe that fails opens it for longer, and tells nobody again.
    send(who, BROKEN, LATER)
    assert Incident.objects.filter(labels__alertname="ReceiverFailing").count() == 1
    assert incident.deliveries.count() == 1


def test_one_probe_begins_after_the_pause_and_closes_it():
    who, other = receiver(), receiver("other")
    fail(who, 5)
    probe = claimed(who, LATER)
    assert probe is not None
    assert claimed(who, LATER) is None
    attempts.settle(probe, TAKEN, timezone.now() + LATER)
    who.refresh_from_db()
    assert (who.failures_in_a_row, who.open_until, who.last_error) == (0, None, "")
    assert Incident.objects.get(labels__alertname="ReceiverFailing").state == "resolved"
    assert who.deliveries.filter(incident__labels__alertname="ReceiverFailing").count() == 0
    assert other.deliveries.filter(incident__labels__alertname="ReceiverFailing").count() == 2
    assert claimed(who, LATER) is not None


def test_a_probe_whose_worker_died_is_made_by_another():
    who = receiver()
    fail(who, 5)
    assert claimed(who, LATER) is not None
    assert claimed(who, LATER + attempts.lease()) is not None


@pytest.mark.parametrize("change", [{"url": "https://elsewhere.example/"}, {"enabled": False}])
def test_somebody_who_changes_where_it_leads_closes_it(change):
    who = receiver()
    fail(who, 5)
    with unit_of_work(SYSTEM, "mended") as unit:
        RECEIVERS.update(unit, "oncall", change)
    who.refresh_from_db()
    assert who.open_until is None
    assert Incident.objects.get(labels__alertname="ReceiverFailing").state == "resolved"


def test_a_receiver_that_is_removed_leaves_no_incident_behind():
    fail(receiver(), 5)
    with unit_of_work(SYSTEM, "gone") as unit:
        RECEIVERS.delete(unit, "oncall")
    assert Incident.objects.get(labels__alertname="ReceiverFailing").state == "resolved"
