"""Rules that are changed while a worker evaluates them."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from controlplane.core.changes import SYSTEM, UnitOfWork, unit_of_work
from controlplane.telemetry.models import RecordingGroup
from controlplane.telemetry.recording import evaluations, rules
from controlplane.telemetry.recording.fields import identity
from tests.controlplane.core.racing import at_once, meeting, two_writers

MINUTE_MS = 60_000
START_MS = 10_000 * MINUTE_MS
RULES = {"groups": [{"name": "fleet", "rules": [{"record": "pool:up:sum", "expr": "sum by (pool) (up)"}]}]}


def replace(unit: UnitOfWork) -> None:
    rules.replace(unit, RULES)


@two_writers
@pytest.mark.django_db(transaction=True)
def test_a_write_of_the_rules_takes_no_claim_back(monkeypatch):
    with unit_of_work(SYSTEM, "a test") as unit:
        replace(unit)
    RecordingGroup.objects.update(next_ms=START_MS)
    read, meet = threading.Event(), meeting()

    def after_the_rows_were_read(record: str, labels: dict[str, str]) -> Any:
        read.set()
        meet()
        return identity(record, labels)

    def write() -> None:
        with unit_of_work(SYSTEM, "a race") as unit:
            replace(unit)

    def claim() -> None:
        assert read.wait(10)
        assert evaluations.claim(START_MS + 15_000) is not None
        meet()

    monkeypatch.setattr(rules, "identity", after_the_rows_were_read)
    assert at_once(write, claim) == [None, None]
    assert RecordingGroup.objects.get().next_ms == START_MS + MINUTE_MS


@two_writers
@pytest.mark.django_db(transaction=True)
def test_two_who_give_rules_at_once_come_one_after_the_other():
    def give(name: str) -> None:
        with unit_of_work(SYSTEM, "a race") as unit:
            rules.replace(unit, {"groups": [{**RULES["groups"][0], "name": name}]})

    assert at_once(lambda: give("a"), lambda: give("b"), lambda: rules.follow_builtin(START_MS)) == [None] * 3
    (group,) = rules.current()["groups"]
    assert group["name"] in ("a", "b")
    assert len(rules.states()) == 1
