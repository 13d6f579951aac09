"""What receivers are told by the clock: heartbeats, and what still fires."""

from __future__ import annotations

import json
import threading
from datetime import timedelta

import pytest
from django.utils import timezone

from controlplane.alerts.delivery_loop import DeliveryLoop
from controlplane.alerts.delivery_plan import Outcome, Reason
from controlplane.alerts.models import Delivery, Incident, Receiver, Rule
from controlplane.alerts.services import beats
from tests.controlplane.alerts.incident import opened, receiver, resolved
from tests.controlplane.alerts.receiving import ALLOWED, Answer, OnCall, on_call
from tests.controlplane.core.racing import at_once
from tests.services import wait_for

pytestmark = pytest.mark.django_db
TAKEN, BROKEN = Outcome(Reason.TAKEN), Outcome(Reason.SERVER_ERROR, "answered 500")
PATIENCE_SECONDS = 20


def heartbeat(url: str = "https://hc.example/ping", **settings: object) -> Receiver:
    return receiver("heart", kind="heartbeat", url="", secret=url, settings=settings)


def test_a_heartbeat_is_due_at_once_and_then_after_each_pause():
    row, now = heartbeat(interval_seconds=30), timezone.now()
    assert [each.name for each in beats.due(now)] == ["heart"]
    assert beats.claim(row, now)
    beats.settle(row, TAKEN, now)
    assert not beats.due(now + timedelta(seconds=29))
    assert beats.due(now + timedelta(seconds=30))


def test_one_that_failed_comes_again_sooner_and_its_failure_is_shown(viewer):
    row, now = heartbeat(interval_seconds=60), timezone.now()
    assert beats.claim(row, now)
    beats.settle(row, BROKEN, now)
    assert beats.due(now + timedelta(seconds=15))
    assert viewer.get("/receivers/heart/state").json()["last_error"] == "server_error: answered 500"


def test_what_a_killed_worker_claimed_is_due_again_after_the_pause():
    row, now = heartbeat(interval_seconds=30), timezone.now()
    assert beats.claim(row, now)
    assert not beats.due(now)
    assert beats.due(now + timedelta(seconds=30))


@pytest.mark.django_db(transaction=True)
def test_of_several_workers_one_sends_it():
    heartbeat()
    now, sent = timezone.now(), []

    def work() -> None:
        for row in beats.due(now):
            if beats.claim(row, now):
                sent.append(row.pk)

    assert at_once(work, work, work) == [None] * 3
    assert len(sent) == 1


def test_one_that_is_switched_off_is_not_sent():
    row = heartbeat()
    Receiver.objects.filter(pk=row.pk).update(enabled=False)
    assert not beats.due(timezone.now())


def test_all_is_well_while_rules_incidents_and_messages_move():
    now = timezone.now()
    receiver()
    opened()
    Rule.objects.create(name="A", expr="vector(1)", due_at=now)
    assert beats.standstill(now) == ""


def test_rules_that_are_not_evaluated_hold_it_back(monkeypatch):
    now = timezone.now()
    Rule.objects.create(name="A", expr="vector(1)", due_at=now - timedelta(seconds=61))
    assert beats.standstill(now) == "rules are not evaluated in time"
    monkeypatch.setenv("HEADWORKS_RULE_INTERVAL_SECONDS", "60")
    assert beats.standstill(now) == ""
    Rule.objects.update(enabled=False)
    assert beats.standstill(now + timedelta(days=1)) == ""


def test_incidents_that_nobody_looks_at_hold_it_back():
    now = timezone.now()
    incident = opened()
    Incident.objects.filter(pk=incident.pk).update(notify_at=now - timedelta(seconds=61))
    assert beats.standstill(now) == "incidents are not looked at in time"


def test_messages_that_do_not_move_hold_it_back_but_not_those_that_fail():
    row, now = receiver(), timezone.now()
    opened()
    Incident.objects.update(notify_at=None)
    late = now + timedelta(seconds=90)
    assert beats.standstill(late) == "messages are not sent in time"
    Receiver.objects.filter(pk=row.pk).update(failures_in_a_row=1)
    assert beats.standstill(late) == ""


def swept(loop: DeliveryLoop, on: OnCall, count: int) -> None:
    """Wake the loop, as the beat does, until so many requests came."""

    def done() -> bool:
        loop.wake()
        return len(on.got) >= count

    wait_for(done, PATIENCE_SECONDS, f"{count} requests")


@pytest.fixture
def loop(monkeypatch):
    monkeypatch.setenv("HEADWORKS_WEBHOOK_ALLOWED_NETWORKS", ALLOWED)
    made = DeliveryLoop(receivers_at_once=2)
    yield made
    made.stop()
    made._pool.shutdown(wait=True)


@pytest.mark.django_db(transaction=True)
def test_the_loop_sends_it_until_something_stands_still_and_says_why_not(loop):
    now = timezone.now()
    with on_call() as service:
        row = heartbeat(service.url, method="GET")
        swept(loop, service, 1)
        assert (service.got[0].method, service.got[0].path) == ("GET", "/hook")
        wait_for(lambda: Receiver.objects.get(pk=row.pk).last_taken_at, PATIENCE_SECONDS, "the outcome")
        Rule.objects.create(name="A", expr="vector(1)", due_at=now - timedelta(hours=1))
        Receiver.objects.update(heartbeat_due_at=now - timedelta(seconds=1))
        loop.wake()
    assert Receiver.objects.get(pk=row.pk).last_error == "held back: rules are not evaluated in time"
    assert len(service.got) == 1


@pytest.mark.django_db(transaction=True)
def test_one_that_waits_for_a_thread_is_another_workers_to_send_and_comes_once(monkeypatch):
    monkeypatch.setenv("HEADWORKS_WEBHOOK_ALLOWED_NETWORKS", ALLOWED)
    stuck, other = DeliveryLoop(receivers_at_once=1), DeliveryLoop(receivers_at_once=1)
    release = threading.Event()
    holding = stuck._pool.submit(release.wait, PATIENCE_SECONDS)
    try:
        with on_call() as service:
            row = heartbeat(service.url)
            for _ in range(3):
                stuck.wake()
            swept(other, service, 1)
            wait_for(lambda: Receiver.objects.get(pk=row.pk).last_taken_at, PATIENCE_SECONDS, "the outcome")
            release.set()
            holding.result()
            for loop in (stuck, other):
                loop._pool.shutdown(wait=True)
        assert len(service.got) == 1
    finally:
        release.set()


@pytest.mark.django_db(transaction=True)
def test_a_heartbeat_that_is_not_taken_is_told_to_the_others(loop, monkeypatch):
    monkeypatch.setenv("HEADWORKS_RECEIVER_FAILURES_MAX", "1")
    with on_call(Answer(500)) as service, on_call() as oncall:
        heartbeat(service.url)
        receiver(url=oncall.url)
        swept(loop, oncall, 1)
    assert oncall.got[0].document["commonLabels"]["alertname"] == "ReceiverFailing"


@pytest.mark.django_db(transaction=True)
def test_an_alertmanager_is_told_again_of_what_it_was_told_and_that_still_fires(loop):
    with on_call() as manager:
        settings = {"urls": [manager.url.removesuffix("/hook")], "resend_seconds": 10}
        receiver("am", kind="alertmanager", url="", settings=settings)
        # Not before it is due here, however long the rest takes.
        Receiver.objects.update(heartbeat_due_at=timezone.now() + timedelta(hours=1))
        kept, over = opened(), opened(node="n2")
        swept(loop, manager, 2)
        wait_for(lambda: not Delivery.objects.exclude(state="delivered").exists(), PATIENCE_SECONDS, "both outcomes")
        resolved(over)
        swept(loop, manager, 3)
        wait_for(lambda: not Delivery.objects.exclude(state="delivered").exists(), PATIENCE_SECONDS, "the end")
        Receiver.objects.update(heartbeat_due_at=None)
        swept(loop, manager, 4)
    (again,) = json.loads(manager.got[-1].body)
    assert again["labels"]["node"] == kept.labels["node"]
