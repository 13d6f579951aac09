"""`headworks alerts …`, as a person types it, in this process."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.utils import timezone

from controlplane.alerts import alert_commands
from controlplane.alerts.models import Silence
from controlplane.core.changes import Actor, UnitOfWork, unit_of_work
from controlplane.core.errors import Refused
from tests.controlplane.alerts.incident import opened, receiver, resolved

pytestmark = pytest.mark.django_db


@contextmanager
def shell(reason: str, dry_run: bool) -> Iterator[UnitOfWork]:
    with unit_of_work(Actor("shell", "headworks"), reason, dry_run=dry_run) as unit:
        yield unit


def run(*words: str) -> None:
    parser = argparse.ArgumentParser()
    alert_commands.add_to(parser.add_subparsers(), shell)
    arguments = parser.parse_args(["alerts", *words])
    arguments.run(arguments)


def test_what_fires_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    resolved(opened(node="n2"))
    incident = opened()
    run("list")
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{incident.pk}  critical  GPU 3 fell off the bus  since ")


def test_an_alert_is_tried(capsys: pytest.CaptureFixture[str]) -> None:
    receiver("oncall")
    run("route", "alertname=KvFull", "pool=chat", "engine=e1")
    assert capsys.readouterr().out.splitlines() == [
        "routes: none",
        "incident of: alertname=KvFull, pool=chat",
        "receivers: oncall",
    ]
    with pytest.raises(Refused):
        run("route", "0x=1", "--event")


def test_a_silence_is_made_and_ended(capsys: pytest.CaptureFixture[str]) -> None:
    opened()
    typed = ("silence", "gpus", 'alertname="Trouble"', "--for", "4h", "--comment", "known", "--reason", "a test")
    run(*typed, "--dry-run")
    assert not Silence.objects.exists()
    run(*typed)
    assert "1 alerts that fire are matched: GPU 3 fell off the bus" in capsys.readouterr().err
    row = Silence.objects.get()
    assert timedelta(hours=3) < row.ends_at - timezone.now() <= timedelta(hours=4)
    assert row.owner == "headworks"
    run("route", "alertname=Trouble")
    assert "nobody is told, by: silence gpus" in capsys.readouterr().out
    run("expire", "gpus", "--reason", "a test")
    assert Silence.objects.get().ends_at <= timezone.now()


def test_a_duration_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run("silence", "gpus", 'a="b"', "--for", "soon", "--comment", "x", "--reason", "x")
    assert "--for" in capsys.readouterr().err
