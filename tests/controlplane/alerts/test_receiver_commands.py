"""`headworks receivers …`, as a person types it, in this process."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.utils import timezone

from controlplane.alerts import receiver_commands
from controlplane.alerts.delivery_plan import Outcome, Reason
from controlplane.alerts.models import Receiver
from controlplane.alerts.services import attempts
from controlplane.core.changes import Actor, UnitOfWork, unit_of_work
from controlplane.core.errors import NotFound
from tests.controlplane.alerts.incident import opened, receiver
from tests.controlplane.alerts.receiving import ALLOWED, Answer, on_call

pytestmark = pytest.mark.django_db


@contextmanager
def shell(reason: str, dry_run: bool) -> Iterator[UnitOfWork]:
    with unit_of_work(Actor("shell", "headworks"), reason, dry_run=dry_run) as unit:
        yield unit


def run(*words: str) -> int | None:
    parser = argparse.ArgumentParser()
    receiver_commands.add_to(parser.add_subparsers(), shell)
    arguments = parser.parse_args(["receivers", *words])
    status: int | None = arguments.run(arguments)
    return status


def fail(who: Receiver) -> None:
    opened()
    row = attempts.claim(who.pk, timezone.now())
    assert row is not None
    attempts.settle(row, Outcome(Reason.INVALID, "answered 400"), timezone.now())


def test_the_list_says_who_takes_what(capsys):
    run("list")
    assert capsys.readouterr().out == "no receiver\n"
    receiver("off", enabled=False)
    fail(receiver("oncall"))
    run("list")
    assert capsys.readouterr().out.splitlines() == [
        "off  webhook  off",
        "oncall  webhook  breaker closed  1 failed  invalid: answered 400",
    ]


def test_a_test_says_how_it_ended_and_so_does_its_status(capsys, monkeypatch):
    monkeypatch.setenv("HEADWORKS_WEBHOOK_ALLOWED_NETWORKS", ALLOWED)
    with on_call(Answer(), Answer(500, body=b"no room")) as oncall:
        receiver(url=oncall.url)
        assert run("test", "oncall") is None
        assert run("test", "oncall") == 1
    assert capsys.readouterr().out.splitlines() == [
        "taken: answered 200 OK",
        "server_error: answered 500 Internal Server Error",
        "no room",
    ]
    with pytest.raises(NotFound):
        run("test", "nobody")


def test_what_failed_is_sent_again_and_not_by_a_dry_run(capsys):
    who = receiver()
    fail(who)
    run("resend", "oncall", "--reason", "mended", "--dry-run")
    assert who.deliveries.get().state == "failed"
    run("resend", "oncall", "--reason", "mended")
    assert who.deliveries.get().state == "waiting"
    assert capsys.readouterr().out.splitlines() == ["1 message would be sent again", "1 message sent again"]
