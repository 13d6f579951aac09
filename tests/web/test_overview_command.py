"""`headworks overview`: what it prints and its exit status."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from controlplane.core.changes import Actor, UnitOfWork, unit_of_work
from controlplane.telemetry.receiver import store_path
from controlplane.telemetry.store.writer import Owner
from controlplane.web import overview_command
from tests.controlplane.telemetry.filling import store
from tests.web.hardware import add_engine, fault, node
from tests.web.measured_pools import engine_series, gateway_series


@contextmanager
def shell(reason: str, dry_run: bool) -> Iterator[UnitOfWork]:
    with unit_of_work(Actor("shell", "headworks"), reason, dry_run=dry_run) as unit:
        yield unit


def run() -> int:
    parser = argparse.ArgumentParser()
    overview_command.add_to(parser.add_subparsers(), shell)
    arguments = parser.parse_args(["overview"])
    return int(arguments.run(arguments))


@pytest.fixture(autouse=True)
def own_store(settings: Any, tmp_path: Path, db: None) -> None:
    settings.DATA_DIR = tmp_path


def test_a_new_fleet_is_told_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    printed = capsys.readouterr().out
    assert printed.startswith("none: there is no pool yet, so nothing is served\n")
    assert "to do      Join a gateway" in printed


def test_trouble_is_printed_with_its_reasons_and_a_status(capsys: pytest.CaptureFixture[str]) -> None:
    node("rack-1", engines=["llama-a"])
    fault("rack-1")
    engine = engine_series("llama-a", "chat", "rack-1", kv_use=0.69)
    store(store_path(), [*gateway_series("chat", per_second=4.0, met=0.8), *engine], Owner("gateway", "edge-1"))
    assert run() == 1
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "bad: promises missed: chat; 1 critical incident"
    assert printed[1] == "missed     chat: 31 % of KV left, queue 0.4 s, engine time 1.2 s"
    assert printed[2] == "           - 80 % of requests kept what is promised, 95 % shall"
    assert any(line.startswith("critical   incident ") for line in printed)


def test_all_right_ends_well(capsys: pytest.CaptureFixture[str]) -> None:
    add_engine("llama-a", None)
    store(store_path(), gateway_series("chat", per_second=4.0), Owner("gateway", "edge-1"))
    assert run() == 0
    assert capsys.readouterr().out.startswith("good: 1 pool without trouble")
