"""`headworks batches …`, as a person types it, against the database of the test."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from controlplane.batches import commands
from controlplane.batches.models import Batch
from controlplane.core.changes import Actor, UnitOfWork, unit_of_work
from controlplane.core.errors import NotFound
from controlplane.core.models import AuditEntry
from tests.controlplane.batches.conftest import GatewayCalls, line, sweep_until_still


@contextmanager
def shell(reason: str, dry_run: bool) -> Iterator[UnitOfWork]:
    with unit_of_work(Actor("shell", "headworks"), reason, dry_run=dry_run) as unit:
        yield unit


def run(*words: str) -> None:
    import argparse

    parser = argparse.ArgumentParser()
    commands.add_to(parser.add_subparsers(required=True), shell)
    arguments = parser.parse_args(["batches", *words])
    arguments.run(arguments)


def test_list_show_and_cancel(gateway: GatewayCalls, capsys: pytest.CaptureFixture[str]) -> None:
    batch_id = gateway.begin(line("a") + line("b"))
    gateway.begin(line("a"), tenant="beta")
    sweep_until_still()
    run("list", "--tenant", "acme")
    assert capsys.readouterr().out == f"{batch_id}\tacme\tin_progress\t0\t0\t2\n"
    run("show", batch_id)
    assert json.loads(capsys.readouterr().out)["request_counts"]["total"] == 2
    run("cancel", batch_id, "--reason", "not needed")
    assert capsys.readouterr().out == f"{batch_id} is cancelling\n"
    assert Batch.objects.get(pk=batch_id).status == "cancelling"
    assert AuditEntry.objects.get(noun="batch").reason == "not needed"
    run("list", "--status", "cancelling")
    assert batch_id in capsys.readouterr().out


def test_what_is_not_there_is_refused(gateway: GatewayCalls) -> None:
    with pytest.raises(NotFound):
        run("show", "batch_none")
    with pytest.raises(SystemExit):
        run("list", "--limit", "0")
