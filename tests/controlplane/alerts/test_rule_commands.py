"""`headworks rules …`, as a person types it, in this process."""

from __future__ import annotations

import argparse
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.utils import timezone

from controlplane.alerts import rule_commands
from controlplane.alerts.models import Rule
from controlplane.alerts.rule_loop import evaluate_due
from controlplane.alerts.services import evaluations
from controlplane.core.changes import Actor, UnitOfWork, unit_of_work

pytestmark = pytest.mark.django_db
RULES = """
groups:
- name: nodes
  rules:
  - {alert: Lost, expr: up == 0, labels: {severity: critical}, annotations: {summary: "{{ $labels.node }} is lost"}}
  - {alert: Odd, expr: vector(1) > 0}
"""
TEST = """
rule_files: [rules-*.yml]
tests:
- interval: 1m
  input_series: [{series: 'up{node="n-1"}', values: "1 0"}]
  alert_rule_test:
  - eval_time: 1m
    alertname: Lost
    exp_alerts: [{exp_labels: {node: n-1, severity: critical}, exp_annotations: {summary: n-1 is lost}}]
"""


@contextmanager
def shell(reason: str, dry_run: bool) -> Iterator[UnitOfWork]:
    with unit_of_work(Actor("shell", "headworks"), reason, dry_run=dry_run) as unit:
        yield unit


def run(*words: str | Path) -> int | None:
    parser = argparse.ArgumentParser()
    rule_commands.add_to(parser.add_subparsers(), shell)
    arguments = parser.parse_args(["rules", *map(str, words)])
    status: int | None = arguments.run(arguments)
    return status


@pytest.fixture(autouse=True)
def _own_store(settings, tmp_path):
    settings.DATA_DIR = tmp_path / "data"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rules-1.yml"
    path.write_text(RULES)
    return path


def test_rules_are_taken_in_listed_and_written_out(file, capsys, monkeypatch):
    run("import", file, "--reason", "a test")
    assert capsys.readouterr().out.splitlines() == [
        "created: Lost, Odd",
        "changed: none",
        "removed: none",
        "left: none",
    ]
    evaluate_due()
    evaluations.fail(Rule.objects.get(name="Lost"), timezone.now(), "it is away")
    run("list")
    assert capsys.readouterr().out.splitlines() == [
        "nodes",
        "  Lost  critical  error: it is away",
        "  Odd  warning  1 firing",
    ]
    run("export")
    text = capsys.readouterr().out
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    run("import", "-", "--replace", "--reason", "a test")
    assert "left: Lost, Odd" in capsys.readouterr().out


def test_a_dry_run_keeps_nothing(file, capsys):
    run("import", file, "--dry-run", "--reason", "a test")
    run("pack", "load", "--dry-run")
    assert "created: Lost, Odd" in capsys.readouterr().out
    assert not Rule.objects.exists()


def test_the_pack_is_loaded(capsys):
    run("pack", "load")
    assert "created: " in capsys.readouterr().out
    run("pack", "load")
    assert "created: none" in capsys.readouterr().out
    assert Rule.objects.exclude(pack="headworks").count() == 0


def test_a_test_file_passes_fails_or_cannot_be_run(file, tmp_path, capsys):
    test = tmp_path / "test.yml"
    test.write_text(TEST)
    assert run("test", test) == 0
    assert capsys.readouterr().out == f"{test}: passed\n"
    test.write_text(TEST.replace("is lost}", "is gone}"))
    assert run("test", test) == 1
    said = capsys.readouterr().out
    assert said.startswith(f"{test}: failed\n    test 1: alertname Lost, at 1m\n        expected:\n")
    assert 'summary="n-1 is gone"' in said
    test.write_text(TEST.replace("rules-*.yml", "none.yml"))
    assert run("test", test) == 2
    assert "there is no none.yml" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="No such file"):
        run("test", tmp_path / "none.yml")
