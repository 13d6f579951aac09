"""A small fleet in the database, detectors that find what a test says, and rounds at times that it chooses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, ClassVar

import pytest
from django.utils import timezone

from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.diagnosis import facts, round
from controlplane.diagnosis.detector import Detector, Edit, Evidence, Finding, Fleet, Lever, Readings
from controlplane.fleet.services import ENGINES, MODELS, NODES, POOLS
from controlplane.telemetry import query
from controlplane.telemetry.results import Sample
from controlplane.tenants.services import TENANTS

INTERVAL = timedelta(seconds=15)
WINDOW = timedelta(seconds=120)
LOWER = Lever("lower_admission", "Admit less", "measured", edits=(Edit("pools", "chat", {"kv_admit_permille": 800}),))


def finding(subject: str = "pool/chat", *, confidence: int = 900, levers: Iterable[Lever] = (LOWER,)) -> Finding:
    return Finding(
        subject,
        "KV cache is full",
        confidence,
        (Evidence("kv_use", 0.97123, "ratio", 0.95, "headworks_engine_kv_cache_usage_ratio"),),
        pools=("chat",),
        tenants=("acme",),
        levers=tuple(levers),
    )


class Scripted(Detector):
    """Finds what it holds; raises it where that is an exception."""

    number: ClassVar[int] = 1
    name: ClassVar[str] = "kv_exhausted"
    title: ClassVar[Any] = "KV cache exhausted"
    explanation: ClassVar[Any] = "Requests wait for KV cache."
    queries: ClassVar[Mapping[str, str]] = {"kv_use": "headworks_engine_kv_cache_usage_ratio"}

    def __init__(self) -> None:
        self.finds: list[Finding] = []
        self.fails: Exception | None = None
        self.saw: list[tuple[Readings, Fleet]] = []

    def judge(self, readings: Readings, fleet: Fleet) -> Iterable[Finding]:
        self.saw.append((readings, fleet))
        if self.fails:
            raise self.fails
        return list(self.finds)


class Sure(Scripted):
    """Shown at once and over at once."""

    lasts_rounds: ClassVar[int] = 1


@pytest.fixture
def fleet(db: None) -> None:
    with unit_of_work(SYSTEM, "for a test") as unit:
        MODELS.create(unit, "llama", {"max_context_tokens": 8192})
        POOLS.create(unit, "chat", {"model": "llama"})
        NODES.create(unit, "n1", {})
        engine = {"url": "http://10.0.0.1:8000", "pool": "chat", "served_model": "m", "node": "n1"}
        ENGINES.create(unit, "e1", engine)
        TENANTS.create(unit, "acme", {})


@pytest.fixture
def metrics(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Sample] | query.QueryError]:
    """What queries answer, by their text; what is not here finds nothing. Filled by the test."""
    answers: dict[str, list[Sample] | query.QueryError] = {}

    def instant(promql: str, at_ms: int) -> list[Sample]:
        answer = answers.get(promql, [])
        if isinstance(answer, query.QueryError):
            raise answer
        return answer

    monkeypatch.setattr(query, "instant", instant)
    return answers


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """What sketches said is kept for a minute of a process."""
    monkeypatch.setattr(facts, "_kept", facts._Kept())


@pytest.fixture
def detector() -> Sure:
    return Sure()


class Rounds:
    """Each call is one round, an interval after the last."""

    def __init__(self, detectors: list[Detector]) -> None:
        self.at = timezone.now()
        self._detectors = detectors

    def __call__(self, times: int = 1, *, after: timedelta = INTERVAL) -> datetime:
        for _ in range(times):
            self.at += after
            assert round.look(self._detectors, lambda: self.at)
        return self.at


@pytest.fixture
def rounds(fleet: None, metrics: Any, detector: Sure, monkeypatch: pytest.MonkeyPatch) -> Callable[..., datetime]:
    return Rounds([detector])
