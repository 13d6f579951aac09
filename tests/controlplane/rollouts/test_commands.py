"""`headworks rollout …`: what it prints, what it does, and its exit status."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from controlplane.core.changes import Actor, UnitOfWork, unit_of_work
from controlplane.rollouts import commands, runner
from controlplane.rollouts.models import Rollout
from tests.controlplane.conftest import Rest

RESTART = {"kind": "rolling_restart", "pool": "old"}


@contextmanager
def shell(reason: str, dry_run: bool) -> Iterator[UnitOfWork]:
    with unit_of_work(Actor("shell", "headworks"), reason, dry_run=dry_run) as unit:
        yield unit


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    commands.add_to(parser.add_subparsers(), shell)
    arguments = parser.parse_args(["rollout", *words])
    return int(arguments.run(arguments) or 0)


@pytest.fixture
def file(tmp_path: Path) -> str:
    written = tmp_path / "plan.json"
    written.write_text(json.dumps(RESTART))
    return str(written)


def test_a_dry_run_prints_the_plan_and_what_it_costs(fleet: Rest, file: str, capsys: Any) -> None:
    assert run("begin", file, "--reason", "try", "--dry-run") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "plan of a rollout: rolling_restart of old, running: begins"
    assert lines[1].startswith("GPUs: 2 before, 2 at most, 2 after")
    assert lines[2] == "  0 waiting  hold_out   old-1  [2 GPUs]"
    assert not Rollout.objects.exists()


def test_following_tells_each_step_as_it_goes_and_how_it_ended(
    fleet: Rest, file: str, step: Callable[[], list[str]], capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: step())
    assert run("begin", file, "--reason", "arguments", "--follow") == 0
    told = capsys.readouterr().out.splitlines()
    assert told[-1] == "done: every step is done"
    assert any(line.startswith("  1 done     drain      old-1") for line in told)


def test_one_that_did_not_end_well_has_exit_status_1(
    fleet: Rest, file: str, step: Callable[[], list[str]], capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("begin", file, "--reason", "arguments")
    number = str(Rollout.objects.get().pk)
    for verb, state in (("pause", "paused"), ("resume", "running"), ("return", "returning")):
        run(verb, number, "--reason", "try")
        assert capsys.readouterr().out.splitlines()[-1] == f"rollout {number}: {state}"
    monkeypatch.setattr(time, "sleep", lambda _: step())
    assert run("show", number, "--follow") == 1
    assert capsys.readouterr().out.splitlines()[-1] == "returned: taken back by headworks"


def test_a_file_that_is_none_ends_it_with_the_reason(fleet: Rest, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="No such file"):
        run("begin", str(tmp_path / "none"), "--reason", "x")
    wrong = tmp_path / "wrong.json"
    wrong.write_text("[")
    with pytest.raises(SystemExit, match="is not JSON"):
        run("begin", str(wrong), "--reason", "x")
    wrong.write_text("[]")
    with pytest.raises(SystemExit, match="give an object"):
        run("begin", str(wrong), "--reason", "x")


def test_nobody_looks_at_one_that_has_ended(fleet: Rest, file: str) -> None:
    run("begin", file, "--reason", "x")
    run("abort", str(Rollout.objects.get().pk), "--reason", "x")
    assert runner.look_at_all() == 0
