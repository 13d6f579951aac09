"""The loop that sends, in this process, against real receivers."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import InterfaceError, OperationalError
from django.utils import timezone

from controlplane.alerts import delivery_loop
from controlplane.alerts.delivery_loop import DeliveryLoop
from controlplane.alerts.models import Delivery
from controlplane.alerts.services import attempts
from tests.controlplane.alerts.incident import opened, receiver, resolved
from tests.controlplane.alerts.mailing import mail_server
from tests.controlplane.alerts.receiving import ALLOWED, CLOSE, HANG, Answer, on_call
from tests.services import wait_for

pytestmark = pytest.mark.django_db(transaction=True)
PATIENCE_SECONDS = 20


@pytest.fixture(autouse=True)
def _loopback_and_short_pauses(monkeypatch):
    monkeypatch.setenv("HEADWORKS_WEBHOOK_ALLOWED_NETWORKS", ALLOWED)
    monkeypatch.setenv("HEADWORKS_WEBHOOK_TIMEOUT_SECONDS", "5")


@pytest.fixture
def loop() -> Iterator[DeliveryLoop]:
    made = DeliveryLoop(receivers_at_once=4)
    yield made
    made.stop()
    wait_for(lambda: not made.busy, PATIENCE_SECONDS, "the end of the attempts under way")


def swept(loop: DeliveryLoop, state: str = "delivered") -> None:
    """Wake the loop, as the beat does, until every message has this state."""

    def done() -> bool:
        loop.wake()
        return not Delivery.objects.exclude(state=state).exists()

    wait_for(done, PATIENCE_SECONDS, f"every message {state}")


def test_a_message_that_fails_comes_again_with_the_same_id(loop):
    with on_call(Answer(500), CLOSE, Answer(429)) as oncall:
        receiver(url=oncall.url)
        incident = opened()
        swept(loop)
    assert len(oncall.got) == 4
    assert {got.delivery for got in oncall.got} == {str(Delivery.objects.get().pk)}
    assert {got.document["alerts"][0]["fingerprint"] for got in oncall.got} == {incident.fingerprint}


def test_the_beginning_and_the_end_are_told_in_order(loop):
    with on_call(Answer(500)) as oncall:
        receiver(url=oncall.url)
        incident = opened()
        resolved(incident)
        swept(loop)
    assert [got.document["status"] for got in oncall.got] == ["firing", "firing", "resolved"]
    body = oncall.got[-1].document
    assert body["commonLabels"] == {"alertname": "Trouble", "node": "n1", "severity": "critical"}
    assert body["commonAnnotations"] == {"description": "XID 79", "summary": "GPU 3 fell off the bus"}


def test_a_receiver_that_hangs_delays_no_other(loop, monkeypatch):
    # It hangs for longer than anybody waits here.
    monkeypatch.setenv("HEADWORKS_WEBHOOK_TIMEOUT_SECONDS", "60")
    with on_call(HANG) as hanging, on_call() as quick:
        receiver("hanging", url=hanging.url)
        receiver("quick", url=quick.url)
        opened()
        loop.wake()
        wait_for(lambda: hanging.got, PATIENCE_SECONDS, "the attempt that hangs")
        opened(node="n2")
        loop.wake()
        wait_for(lambda: len(quick.got) == 2, PATIENCE_SECONDS, "both messages at the quick receiver")
        assert len(hanging.got) == 1
        hanging.release.set()
        swept(loop)
    assert hanging.most_in_flight == 1


def test_receivers_that_hang_give_way_to_others_after_each_attempt(monkeypatch):
    monkeypatch.setenv("HEADWORKS_WEBHOOK_TIMEOUT_SECONDS", "1")
    # As many as are sent to at once.
    loop = DeliveryLoop(receivers_at_once=1)
    with on_call(HANG, HANG, HANG) as hanging, on_call() as quick:
        receiver("hanging", url=hanging.url)
        receiver("quick", url=quick.url)
        for number in range(3):
            opened(node=f"n{number}")
        loop.wake()
        wait_for(lambda: quick.got, PATIENCE_SECONDS, "the first message at the quick receiver")
        assert len(hanging.got) < 3
        loop.stop()
        hanging.release.set()
        wait_for(lambda: not loop.busy, PATIENCE_SECONDS, "the end of the attempts under way")


def test_receivers_that_take_their_time_give_way_to_others_too(monkeypatch):
    monkeypatch.setattr(delivery_loop, "TURN_SECONDS", 0.0)
    loop = DeliveryLoop(receivers_at_once=1)
    with on_call() as slow, on_call() as quick:
        receiver("slow", url=slow.url)
        receiver("quick", url=quick.url)
        for number in range(5):
            opened(node=f"n{number}")
        loop.wake()
        wait_for(lambda: quick.got, PATIENCE_SECONDS, "the first message at the quick receiver")
        assert len(slow.got) <= 2
        wait_for(lambda: len(slow.got) == len(quick.got) == 5, PATIENCE_SECONDS, "every message")
        loop.stop()
        wait_for(lambda: not loop.busy, PATIENCE_SECONDS, "the end of the attempts under way")


@pytest.mark.parametrize("error", [OperationalError("the database is away"), InterfaceError("connection closed")])
def test_what_was_taken_while_the_database_was_away_is_not_sent_again(loop, monkeypatch, error):
    monkeypatch.setattr(delivery_loop, "SETTLE_PAUSE_SECONDS", 0.01)
    settle, away = attempts.settle, threading.Event()
    away.set()

    def settled(*given: Any) -> None:
        if away.is_set():
            raise error
        settle(*given)

    monkeypatch.setattr(attempts, "settle", settled)
    with on_call() as oncall:
        receiver(url=oncall.url)
        opened()
        loop.wake()
        wait_for(lambda: oncall.got, PATIENCE_SECONDS, "the message")
        # The claim is over by now.
        Delivery.objects.update(due_at=timezone.now())
        loop.wake()
        away.clear()
        swept(loop)
    assert len(oncall.got) == 1


def test_an_end_that_cannot_be_written_is_not_waited_for_forever(loop, monkeypatch):
    monkeypatch.setattr(delivery_loop, "SETTLE_SECONDS_MAX", 0.0)
    monkeypatch.setattr(delivery_loop, "SETTLE_PAUSE_SECONDS", 0.01)

    def settled(*given: Any) -> None:
        raise OperationalError("database or disk is full")

    with monkeypatch.context() as broken, on_call() as oncall:
        broken.setattr(attempts, "settle", settled)
        receiver(url=oncall.url)
        opened()
        loop.wake()
        wait_for(lambda: oncall.got and not loop.busy, PATIENCE_SECONDS, "the end of the attempt")
    assert Delivery.objects.get().state == "waiting"


def test_a_receiver_gets_one_message_at_a_time(loop):
    with on_call() as oncall:
        receiver(url=oncall.url)
        for number in range(8):
            opened(node=f"n{number}")
        swept(loop)
    assert oncall.most_in_flight == 1
    assert len(oncall.got) == 8


def test_a_pause_that_a_receiver_asks_for_is_kept(loop):
    with on_call(Answer(503, (("Retry-After", "2"),))) as oncall:
        receiver(url=oncall.url)
        opened()
        began = time.monotonic()
        swept(loop)
        assert time.monotonic() - began >= 2
    assert len(oncall.got) == 2


def test_what_cannot_be_delivered_in_time_has_failed_and_says_why(loop, monkeypatch):
    monkeypatch.setenv("HEADWORKS_WEBHOOK_GIVE_UP_SECONDS", "1")
    monkeypatch.setenv("HEADWORKS_WEBHOOK_ALLOWED_NETWORKS", "")
    receiver(url="http://localhost:9/")
    opened()
    swept(loop, "failed")
    assert Delivery.objects.get().last_error.startswith("address_refused: ")


def test_a_fault_of_our_own_is_tried_again(loop, monkeypatch):
    monkeypatch.setattr("controlplane.alerts.outgoing.message_of", lambda *_: 1 / 0)
    with on_call() as oncall:
        receiver(url=oncall.url)
        opened()
        loop.wake()
        wait_for(lambda: Delivery.objects.get().last_error, PATIENCE_SECONDS, "the attempt's end")
        assert Delivery.objects.get().last_error == "failed_here: ZeroDivisionError"
        monkeypatch.undo()
        monkeypatch.setenv("HEADWORKS_WEBHOOK_ALLOWED_NETWORKS", ALLOWED)
        swept(loop)


def test_once_stopped_it_begins_nothing(loop):
    with on_call(HANG) as oncall:
        receiver(url=oncall.url)
        opened()
        opened(node="n2")
        loop.wake()
        wait_for(lambda: oncall.got, PATIENCE_SECONDS, "the first attempt")
        loop.stop()
        loop.wake()
        oncall.release.set()
        wait_for(lambda: not loop.busy, PATIENCE_SECONDS, "the end of the attempt under way")
    assert len(oncall.got) == 1
    assert Delivery.objects.filter(state="waiting", attempts=0).count() == 1


def test_a_secret_stands_in_no_row_and_no_log_whatever_the_receiver_answers(loop, monkeypatch, caplog):
    monkeypatch.setenv("HEADWORKS_WEBHOOK_GIVE_UP_SECONDS", "1")
    with on_call(*[Answer(404, echo=True)] * 50) as service:
        secret = f"{service.url}/very-secret?sig=very-secret-too"
        receiver("channel", kind="slack", url="", secret=secret)
        incident = opened()
        swept(loop, "failed")
    row = Delivery.objects.get()
    kept = [row.last_error, row.receiver.last_error, *row.tries.values_list("text", flat=True)]
    kept += incident.entries.values_list("text", flat=True)
    assert service.got[0].path == "/hook/very-secret?sig=very-secret-too"
    assert "[hidden]" in "".join(kept)
    assert "very-secret" not in "".join(kept) + caplog.text


def test_a_mail_and_an_apprise_service_are_told_of_the_same_incident(loop, monkeypatch):
    with mail_server() as mails, on_call() as service:
        for name, value in {
            "HOST": "127.0.0.1",
            "PORT": str(mails.port),
            "SECURITY": "none",
            "FROM": "hw@x.org",
        }.items():
            monkeypatch.setenv(f"HEADWORKS_SMTP_{name}", value)
        receiver("mail", kind="email", url="", settings={"to": ["oncall@x.org"]})
        receiver("tail", kind="apprise", url="", secret=f"json://127.0.0.1:{service.port}/x")
        incident = opened()
        swept(loop)
        resolved(incident)
        swept(loop)
    first, over = (mail.message for mail in mails.got)
    assert over["In-Reply-To"] == first["Message-ID"]
    assert [got.document["type"] for got in service.got] == ["failure", "success"]
