from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.utils import timezone

from controlplane.alerts.delivery_plan import Outcome, Reason
from controlplane.alerts.models import Delivery
from controlplane.alerts.services import attempts, incidents
from controlplane.alerts.services.attempts import LEASE_MARGIN
from controlplane.alerts.services.receivers import RECEIVERS
from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.core.preconditions import entity_tag
from tests.controlplane.alerts.incident import opened, receiver, resolved
from tests.controlplane.core.racing import at_once, meeting, two_writers

TAKEN = Outcome(Reason.TAKEN, "answered 200")
BROKEN = Outcome(Reason.SERVER_ERROR, "answered 500")


def waiting() -> list[tuple[str, str]]:
    found = Delivery.objects.filter(state="waiting").order_by("incident", "receiver", "status")
    return list(found.values_list("receiver__name", "status"))


def turn(*, enabled: bool) -> None:
    with unit_of_work(SYSTEM, "a test") as unit:
        RECEIVERS.update(unit, "oncall", {"enabled": enabled})


def send(outcome: Outcome, *, later: timedelta = timedelta(0)) -> Delivery:
    """Claim what is due and end its attempt so."""
    now = timezone.now() + later
    row = attempts.claim(attempts.receivers_due(now)[0], now)
    assert row is not None
    attempts.settle(row, outcome, now)
    return Delivery.objects.get(pk=row.pk)


@pytest.mark.django_db
def test_an_incident_is_written_to_every_receiver_that_it_is_severe_enough_for():
    receiver("all", min_severity="info")
    receiver("grave", min_severity="critical")
    receiver("off", enabled=False)
    incident = opened("warning")
    assert waiting() == [("all", "firing")]
    opened("critical")
    # Who knows it as mild is told that it is grave, too.
    assert waiting() == [("all", "firing"), ("all", "firing"), ("grave", "firing")]
    assert incident.deliveries.count() == 3


@pytest.mark.django_db
def test_the_end_is_written_to_those_that_were_told_of_the_beginning():
    receiver("told")
    receiver("firing-only", send_resolved=False)
    incident = opened()
    receiver("late")
    resolved(incident)
    assert waiting() == [("told", "firing"), ("told", "resolved"), ("firing-only", "firing")]


@pytest.mark.django_db
def test_nothing_is_written_where_the_transaction_fails():
    receiver()

    def fail() -> None:
        with unit_of_work(SYSTEM, "a test"):
            opened()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert not Delivery.objects.exists()


@pytest.mark.django_db
def test_the_end_never_overtakes_the_beginning():
    receiver()
    incident = opened()
    resolved(incident)
    first = send(BROKEN)
    assert (first.status, first.state, first.attempts) == ("firing", "waiting", 1)
    # However late, the beginning is the next one that is sent.
    assert send(TAKEN, later=timedelta(minutes=6)).status == "firing"
    assert send(TAKEN, later=timedelta(minutes=6)).status == "resolved"
    assert not attempts.receivers_due(timezone.now() + timedelta(days=1))


@pytest.mark.django_db
def test_a_new_incident_of_the_same_labels_waits_for_the_messages_about_the_one_before():
    receiver()
    first = opened()
    resolved(first)
    second = opened()
    other = opened(node="n2")
    order = [send(TAKEN) for _ in range(4)]
    about_the_same = [(row.incident_id, row.status) for row in order if row.incident_id != other.pk]
    assert about_the_same == [(first.pk, "firing"), (first.pk, "resolved"), (second.pk, "firing")]


@pytest.mark.django_db
def test_a_message_that_fails_holds_up_no_other_incident():
    receiver()
    opened()
    send(Outcome(Reason.BUSY, "answered 429", timedelta(minutes=1)))
    other = opened(node="n2")
    assert send(TAKEN).incident_id == other.pk


@pytest.mark.django_db
def test_a_claim_holds_until_its_lease_ends_and_then_another_may_try(monkeypatch):
    monkeypatch.setenv("HEADWORKS_WEBHOOK_TIMEOUT_SECONDS", "3")
    who = receiver()
    opened()
    now = timezone.now()
    first = attempts.claim(who.pk, now)
    assert first is not None
    lease = timedelta(seconds=3) + LEASE_MARGIN
    assert attempts.claim(who.pk, now + lease - timedelta(milliseconds=1)) is None
    second = attempts.claim(who.pk, now + lease)
    assert second is not None
    assert (second.pk, second.attempts) == (first.pk, 2)
    # The outcome of a claim that was lost says nothing any more.
    attempts.settle(first, BROKEN, now)
    assert Delivery.objects.get().last_error == ""
    attempts.settle(second, TAKEN, now)
    attempts.settle(first, BROKEN, now)
    assert Delivery.objects.get().state == "delivered"


@pytest.mark.django_db
def test_a_receiver_that_is_turned_off_is_not_sent_to_and_what_waits_is_kept():
    receiver()
    opened()
    turn(enabled=False)
    assert not attempts.receivers_due(timezone.now())
    turn(enabled=True)
    assert send(TAKEN).state == "delivered"


@pytest.mark.django_db
def test_a_receiver_that_was_off_when_what_it_knows_of_ended_is_told_once_it_is_on():
    receiver()
    known = opened()
    turn(enabled=False)
    resolved(known)
    unknown = opened(node="n2")
    resolved(unknown)
    assert not attempts.receivers_due(timezone.now())
    turn(enabled=True)
    assert [send(TAKEN).status for _ in range(2)] == ["firing", "resolved"]
    assert not Delivery.objects.filter(incident=unknown).exists()


@pytest.mark.django_db
def test_the_time_line_says_that_it_was_delivered_and_not_each_retry():
    receiver()
    incident = opened()
    send(BROKEN)
    send(BROKEN, later=timedelta(minutes=6))
    send(TAKEN, later=timedelta(minutes=12))
    entries = [entry for entry in incident.entries.all() if entry.kind != "started"]
    assert [(entry.kind, entry.details["attempts"]) for entry in entries] == [("delivered", 3)]


@pytest.mark.django_db
def test_what_was_given_up_is_listed_and_sent_again_when_a_person_asks(operator, viewer):
    receiver()
    incident = opened()
    failed = send(BROKEN, later=timedelta(days=1))
    assert failed.state == "failed"
    assert [entry.kind for entry in incident.entries.all()] == ["started", "delivery_failed"]
    (shown,) = viewer.get("/deliveries?state=failed").json()["items"]
    assert shown["id"] == str(failed.pk)
    assert shown["last_error"] == "server_error: answered 500"
    assert not attempts.receivers_due(timezone.now() + timedelta(days=2))
    answer = operator.post(f"/deliveries/{failed.pk}/resend")
    assert answer.json()["item"]["state"] == "waiting"
    assert send(TAKEN).pk == failed.pk
    assert operator.post(f"/deliveries/{failed.pk}/resend").json()["code"] == "not_failed"


@pytest.mark.django_db
def test_a_beginning_is_not_sent_again_after_its_end_was_told(operator):
    receiver()
    incident = opened()
    failed = send(BROKEN, later=timedelta(days=1))
    resolved(incident)
    assert send(TAKEN).status == "resolved"
    assert operator.post(f"/deliveries/{failed.pk}/resend").json()["code"] == "out_of_date"


@pytest.mark.django_db
def test_an_end_is_not_sent_again_after_a_new_beginning_was_told(operator):
    receiver()
    incident = opened()
    send(TAKEN)
    resolved(incident)
    failed = send(BROKEN, later=timedelta(days=1))
    opened()
    assert send(TAKEN).status == "firing"
    assert operator.post(f"/deliveries/{failed.pk}/resend").json()["code"] == "out_of_date"


@pytest.mark.django_db
def test_deliveries_are_listed_newest_first_page_by_page(viewer):
    receiver("a")
    receiver("b")
    for number in range(3):
        opened(node=f"n{number}")
    everything = viewer.get("/deliveries").json()["items"]
    assert len(everything) == 6
    assert viewer.get(f"/deliveries/{everything[0]['id']}")["ETag"] == entity_tag(everything[0])
    paged, path = [], "/deliveries?limit=4"
    while path:
        page = viewer.get(path).json()
        paged += page["items"]
        path = f"/deliveries?limit=4&after={page['next']}" if page["next"] else ""
    assert paged == everything
    assert {row["receiver"] for row in viewer.get("/deliveries?receiver=a").json()["items"]} == {"a"}
    assert viewer.get(f"/deliveries?after={uuid.uuid4()}").status_code == 422
    assert viewer.get(f"/deliveries/{uuid.uuid4()}").status_code == 404


@pytest.mark.django_db(transaction=True)
def test_of_several_workers_one_claims_a_message():
    who = receiver()
    for number in range(5):
        opened(node=f"n{number}")
    claimed: list[uuid.UUID] = []

    def work() -> None:
        while (row := attempts.claim(who.pk, timezone.now())) is not None:
            claimed.append(row.pk)

    assert at_once(work, work, work) == [None] * 3
    assert len(claimed) == len(set(claimed)) == 5


@two_writers
@pytest.mark.django_db(transaction=True)
def test_a_receiver_that_is_deleted_meanwhile_does_not_break_what_tells_it():
    who = receiver()

    def delete() -> None:
        with unit_of_work(SYSTEM, "a test") as unit:
            RECEIVERS.delete(unit, who.name)

    assert at_once(delete, opened, lambda: opened(node="n2")) == [None] * 3
    connection.close()
    assert not Delivery.objects.exists()


@two_writers
@pytest.mark.django_db(transaction=True)
def test_who_opens_several_incidents_and_who_ends_one_of_them_do_not_wait_for_each_other_forever():
    receiver()
    shared = opened(node="n2")
    meet = meeting()

    def open_both() -> None:
        with transaction.atomic():
            opened(node="n1")
            meet()
            opened(node="n2")

    def end_one() -> None:
        with transaction.atomic():
            meet()
            resolved(shared)

    assert at_once(open_both, end_one) == [None] * 2


@pytest.mark.django_db
def test_a_transaction_wakes_the_worker_once_however_much_it_writes(django_capture_on_commit_callbacks):
    receiver()
    with django_capture_on_commit_callbacks() as calls:
        for number in range(5):
            opened(node=f"n{number}")
    assert len(calls) == 1


@pytest.mark.django_db
def test_an_incident_shows_its_deliveries(viewer):
    receiver()
    incident = opened()
    send(TAKEN)
    (shown,) = viewer.get(f"/incidents/{incident.pk}").json()["deliveries"]
    assert (shown["receiver"], shown["state"], shown["status"]) == ("oncall", "delivered", "firing")
    assert incidents.get(incident.pk).deliveries.count() == 1
