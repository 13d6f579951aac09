"""The store's scheduled work: packing, and forgetting what is too old."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from controlplane.telemetry import tasks
from controlplane.telemetry.recording.writing import OWNER
from controlplane.telemetry.tasks import compact_metrics
from tests.controlplane.telemetry.filling import named, store
from wire.write_body import STALE, Series

DAY_MS = 86_400_000


def sample(name: str, at_ms: int) -> Series:
    return named(name, [(at_ms, 1.0)])


@pytest.fixture
def names(ask: Any) -> Callable[[], list[str]]:
    return lambda: list(ask("label/__name__/values").json()["data"])


def test_it_packs_and_forgets(fill, now_ms, monkeypatch, names):
    monkeypatch.setenv("HEADWORKS_METRICS_KEEP_DAYS", "1")
    fill([sample("old", now_ms - 2 * DAY_MS), sample("young", now_ms - 600_000)])
    assert compact_metrics() == 2
    assert names() == ["young"]
    # Too young to be packed.
    fill([sample("new", now_ms)])
    assert compact_metrics() == 0


def test_it_makes_no_store(own_store):
    assert compact_metrics() == 0
    assert not own_store.exists()


@pytest.fixture
def a_year_ahead(now_ms: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """The clock of the worker (Unix time in ms)."""
    ahead_ms = now_ms + 365 * DAY_MS
    monkeypatch.setattr(tasks, "time", SimpleNamespace(time=lambda: ahead_ms / 1000))
    return ahead_ms


def test_a_clock_that_runs_ahead_removes_nothing_that_is_young(fill, own_store, a_year_ahead, now_ms, names):
    fill([sample("old", now_ms - 16 * DAY_MS), sample("young", now_ms)])
    # A series that was recorded then ended, by that clock.
    store(own_store, [named("recorded", [(a_year_ahead, STALE)])], OWNER)
    assert compact_metrics() == 3
    assert names() == ["recorded", "young"]


def test_with_an_external_server_the_history_here_grows_old(fill, a_year_ahead, now_ms, names, monkeypatch):
    fill([sample("a", now_ms)])
    monkeypatch.setenv("HEADWORKS_REMOTE_WRITE_URL", "http://127.0.0.1:9/")
    compact_metrics()
    assert names() == []
