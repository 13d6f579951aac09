"""`headworks acts`, as a person types it, in this process."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.utils import timezone

from controlplane.core.changes import Actor, UnitOfWork, unit_of_work
from controlplane.core.errors import NotFound
from controlplane.fleet import act_commands
from controlplane.fleet.models import Act
from controlplane.fleet.services import acts
from tests.controlplane.conftest import Rest
from tests.controlplane.fleet.conftest import enrolled


@contextmanager
def shell(reason: str, dry_run: bool) -> Iterator[UnitOfWork]:
    with unit_of_work(Actor("shell", "headworks"), reason, dry_run=dry_run) as unit:
        yield unit


def run(*words: str) -> None:
    parser = argparse.ArgumentParser()
    act_commands.add_to(parser.add_subparsers(), shell)
    arguments = parser.parse_args(["acts", *words])
    arguments.run(arguments)


@pytest.fixture
def asked(fleet: Rest) -> Act:
    enrolled(fleet, "n1")
    manifest = {"manifest": "a" * 64, "folder": "/models/m"}
    with shell("a test", False) as unit:
        return acts.create(unit, {"action": "fetch_model", "node": "n1", "arguments": manifest})


def test_they_are_listed_with_how_far_they_are(asked: Act, capsys: pytest.CaptureFixture[str]) -> None:
    Act.objects.update(state="running", progress_permille=415, state_at=timezone.now())
    run("list", "--node", "n1")
    assert capsys.readouterr().out == f"{asked.act_id}  fetch_model on n1  running 41.5 %\n"
    run("list", "--state", "done")
    assert capsys.readouterr().out == "no act\n"


def test_one_is_shown_whole(asked: Act, capsys: pytest.CaptureFixture[str]) -> None:
    run("show", asked.act_id)
    shown = json.loads(capsys.readouterr().out)
    assert (shown["action"], shown["state"], shown["arguments"]["folder"]) == ("fetch_model", "waiting", "/models/m")


def test_what_there_is_not_is_said(asked: Act) -> None:
    with pytest.raises(NotFound):
        run("show", "b" * 32)
    with pytest.raises(NotFound):
        run("list", "--node", "n9")
    with pytest.raises(SystemExit):
        run("list", "--limit", "0")
