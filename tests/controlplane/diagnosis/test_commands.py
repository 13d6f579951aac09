"""`headworks diagnose`: what it prints and its exit status."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from controlplane.core.changes import Actor, UnitOfWork, unit_of_work
from controlplane.core.errors import NotFound
from controlplane.diagnosis import commands, standing
from tests.controlplane.diagnosis.conftest import Sure, finding


@contextmanager
def shell(reason: str, dry_run: bool) -> Iterator[UnitOfWork]:
    with unit_of_work(Actor("shell", "headworks"), reason, dry_run=dry_run) as unit:
        yield unit


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    commands.add_to(parser.add_subparsers(), shell)
    arguments = parser.parse_args(["diagnose", *words])
    return int(arguments.run(arguments))


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch, detector: Sure) -> None:
    monkeypatch.setattr(standing, "DETECTORS", (detector,))


def test_a_fleet_in_which_nothing_is_found_ends_well(rounds: Callable[..., datetime], capsys: Any):
    at = rounds()
    assert run() == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"looked at {at:%Y-%m-%dT%H:%M}")
    assert lines[1:] == ["  1 clear    kv_exhausted", "nothing was found"]


def test_what_is_found_is_printed_with_evidence_and_levers(
    rounds: Callable[..., datetime], detector: Sure, capsys: Any
):
    detector.finds = [finding()]
    rounds()
    assert run() == 1
    text = capsys.readouterr().out
    assert "  1 found    kv_exhausted         pool/chat" in text
    assert "kv_use = 0.9712 ratio (limit 0.95)" in text
    assert "lever lower_admission (proposed): Admit less\n    pools/chat: kv_admit_permille=800" in text


def test_it_can_be_asked_of_one_pool(rounds: Callable[..., datetime], detector: Sure, capsys: Any):
    detector.finds = [replace(finding(), pools=("other",))]
    rounds()
    assert run("--pool", "chat") == 0
    assert capsys.readouterr().out == "nothing was found in pool chat\n"
    with pytest.raises(NotFound):
        run("--pool", "nowhere")


def test_a_detector_that_is_blind_says_why(rounds: Callable[..., datetime], detector: Sure, capsys: Any):
    detector.fails = ValueError()
    rounds()
    assert run() == 0
    assert "blind    kv_exhausted         failed here, and the log says more: ValueError" in capsys.readouterr().out
