"""`headworks versions …` and `headworks compatibility`, as a person types them, in this process."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from controlplane.core.changes import Actor, UnitOfWork, unit_of_work
from controlplane.fleet import version_commands
from controlplane.fleet.models import CompatibilityRule, Engine, ModelVersion
from controlplane.fleet.services import ENGINES, MODELS, POOLS

pytestmark = pytest.mark.django_db


@contextmanager
def shell(reason: str, dry_run: bool) -> Iterator[UnitOfWork]:
    with unit_of_work(Actor("shell", "headworks"), reason, dry_run=dry_run) as unit:
        yield unit


def run(*words: str) -> int | None:
    parser = argparse.ArgumentParser()
    version_commands.add_to(parser.add_subparsers(), shell)
    arguments = parser.parse_args(words)
    status: int | None = arguments.run(arguments)
    return status


@pytest.fixture(autouse=True)
def _models() -> None:
    with shell("a test", False) as unit:
        for version in ("v1", "v2"):
            MODELS.create(unit, f"chat-{version}", {"max_context_tokens": 8192})
            POOLS.create(unit, version, {"model": f"chat-{version}"})
            for engine in ("a", "b"):
                name = f"{version}-{engine}"
                fields = {"url": f"http://{name}:8000", "pool": version, "served_model": "m"}
                ENGINES.create(unit, name, fields)


def test_versions_are_published_listed_retired_and_brought_back(capsys):
    for version in ("v1", "v2"):
        run("versions", "publish", "chat", version, f"chat-{version}", "--reason", "a test")
    first = ModelVersion.objects.get(version="v1").pk
    run("versions", "retire", str(first), "--reason", "a test")
    assert Engine.objects.filter(pool__name="v1").exclude(held_out_by="").count() == 2
    capsys.readouterr()
    run("versions", "list", "--family", "chat")
    newest, retired = capsys.readouterr().out.splitlines()
    assert newest.endswith("chat v2  chat-v2  newest")
    assert f"{first}  chat v1  chat-v1  retired 2" in retired
    run("versions", "bring-back", str(first), "--reason", "a test")
    assert capsys.readouterr().out.splitlines()[0].endswith("passive")


def test_a_dry_run_keeps_nothing(capsys):
    run("versions", "publish", "chat", "v1", "chat-v1", "--reason", "a test", "--dry-run")
    assert "chat v1  chat-v1  newest" in capsys.readouterr().out
    assert not ModelVersion.objects.exists()


def test_the_exit_status_says_whether_a_rule_stops(capsys):
    CompatibilityRule.objects.all().delete()
    CompatibilityRule.objects.create(name="one-version", rule={"every": ["version"]}, reason="they differ")
    assert run("compatibility", "v1") == 0
    assert capsys.readouterr().out.startswith("unknown  one-version: pool 'v1': version of v1-a, v1-b is not known")
    Engine.objects.filter(name="v1-a").update(version="1")
    Engine.objects.filter(name="v1-b").update(version="2")
    assert run("compatibility", "v1") == 1
    assert capsys.readouterr().out.startswith("stops  one-version: pool 'v1': its engines differ in version")
