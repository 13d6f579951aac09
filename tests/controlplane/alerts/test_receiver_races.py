"""Receivers that somebody changes or deletes while they are told of something."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from controlplane.alerts.delivery_plan import Outcome, Reason
from controlplane.alerts.models import Delivery, Incident, Receiver
from controlplane.alerts.services import attempts, breakers
from controlplane.alerts.services.alert_lock import lock_alerts
from controlplane.alerts.services.receivers import RECEIVERS
from controlplane.core.changes import SYSTEM, unit_of_work
from tests.controlplane.alerts.incident import opened, receiver
from tests.controlplane.core.racing import at_once, meeting, two_writers

pytestmark = [two_writers, pytest.mark.django_db(transaction=True)]
TAKEN = Outcome(Reason.TAKEN, "answered 200", status=200)
BROKEN = Outcome(Reason.SERVER_ERROR, "answered 500", status=500)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Receiver:
    """One whose breaker is open, which another receiver is told of."""
    monkeypatch.setenv("HEADWORKS_RECEIVER_FAILURES_MAX", "1")
    who = receiver()
    receiver("other")
    opened()
    row = attempts.claim(who.pk, timezone.now())
    assert row is not None
    attempts.settle(row, BROKEN, timezone.now())
    assert Receiver.objects.get(pk=who.pk).open_until is not None
    return who


def mend(url: str = "https://elsewhere.example/") -> None:
    with unit_of_work(SYSTEM, "mended") as unit:
        RECEIVERS.update(unit, "oncall", {"url": url})


def delete() -> None:
    with unit_of_work(SYSTEM, "gone") as unit:
        RECEIVERS.delete(unit, "oncall")


def meets(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, meet: Callable[[], None]) -> None:
    """Have each call of it wait for the other side first."""
    call = getattr(module, name)

    def met(*given: Any, **more: Any) -> Any:
        meet()
        return call(*given, **more)

    monkeypatch.setattr(module, name, met)


@pytest.mark.parametrize("change", [mend, delete])
def test_who_mends_or_deletes_one_that_fails_and_who_tells_it_of_more_do_not_wait_for_each_other_forever(
    failing, monkeypatch, change
):
    meet = meeting()
    meets(monkeypatch, breakers, "end_incident", meet)

    def tell() -> None:
        with transaction.atomic():
            lock_alerts()
            meet()
            opened(node="n2")

    assert at_once(change, tell) == [None] * 2
    assert Incident.objects.get(labels__alertname="ReceiverFailing").state == "resolved"


@pytest.mark.parametrize(("change", "outcome"), [(mend, TAKEN), (delete, TAKEN), (delete, BROKEN)])
def test_who_mends_or_deletes_one_and_who_writes_down_an_attempt_at_it_do_not_either(
    failing, monkeypatch, change, outcome
):
    later = timezone.now() + timedelta(minutes=10)
    row = attempts.claim(failing.pk, later)
    assert row is not None
    meet = meeting()
    meets(monkeypatch, breakers, "end_incident", meet)
    meets(monkeypatch, attempts, "_keep", meet)
    assert at_once(change, lambda: attempts.settle(row, outcome, later)) == [None] * 2
    assert Incident.objects.get(labels__alertname="ReceiverFailing").state == "resolved"
    assert Delivery.objects.filter(receiver=failing.pk).exists() == (change is mend)


def test_of_two_who_change_what_both_saw_the_second_is_told_so(admin, monkeypatch):
    receiver()
    seen = {"If-Match": admin.get("/receivers/oncall")["ETag"]}
    meets(monkeypatch, RECEIVERS, "update", meeting())
    answers = []

    def change(limit: int) -> None:
        answers.append(admin.patch("/receivers/oncall", {"rate_limit_per_minute": limit}, **seen).status_code)

    assert at_once(lambda: change(1), lambda: change(2)) == [None] * 2
    assert sorted(answers) == [200, 412]
