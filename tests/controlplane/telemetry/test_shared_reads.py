"""Several queries of one moment read each selector once, and are answered as they would be alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlplane.telemetry import query, shared_reads
from controlplane.telemetry.promql.values import Vector
from controlplane.telemetry.receiver import store_path
from controlplane.telemetry.store.matching import Matcher, Operator
from controlplane.telemetry.store.reader import Reader, reader_of
from controlplane.telemetry.store.writer import Owner
from tests.controlplane.telemetry.filling import named, store

AT_MS = 1_000_000
QUERIES = ["kv > 0.4", "rate(kv[5m])", "max by (node) (kv)", "kv and on (engine) kv", "-kv", "sum_over_time(kv[1m])"]


@pytest.fixture(autouse=True)
def _own_store(settings, tmp_path: Path):
    settings.DATA_DIR = tmp_path
    times = range(AT_MS - 240_000, AT_MS, 15_000)
    series = [named("kv", [(at, at % 7 / 7) for at in times], engine=f"e-{number}") for number in range(5)]
    store(store_path(), series, Owner("node", "n-1"))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry a read of the store."""
    made: list[int] = []
    select = Reader.select

    def counting(self, matchers, after_ms, until_ms, counted):
        made.append(until_ms - after_ms)
        return select(self, matchers, after_ms, until_ms, counted)

    monkeypatch.setattr(Reader, "select", counting)
    return made


def test_each_selector_is_read_once_and_answers_are_the_same(reads):
    alone = [query.instant(promql, AT_MS) for promql in QUERIES]
    reads.clear()
    shared = query.SharedReads()
    assert [query.instant(promql, AT_MS, shared=shared) for promql in QUERIES] == alone
    assert sorted(reads) == [60_000, 300_000]


def test_what_is_remembered_is_bounded(reads, monkeypatch):
    monkeypatch.setattr(shared_reads, "SAMPLES_MAX", 90)
    shared = query.SharedReads()
    for _ in range(2):
        query.instant("kv", AT_MS, shared=shared)
        query.instant("sum_over_time(kv[1m])", AT_MS, shared=shared)
    assert len(reads) == 4


def test_a_query_counts_what_others_read_for_it():
    shared, counts = query.SharedReads(), list[int]()
    matchers = [Matcher("__name__", Operator.EQUAL, "kv")]
    select = shared.of(reader_of(store_path()))
    select(matchers, 0, AT_MS, lambda samples: None)
    selection = select(matchers, 0, AT_MS, counts.append)
    assert sum(counts) == len(selection.columns.times_ms) == 80


# Of the same rates, but for the last, whose subquery has steps of its own.
RANGES = [
    "sum by (engine) (rate(kv[1m]))",
    "2 * sum by (engine) (rate(kv[1m]))",
    "max by (node) (sum by (engine) (rate(kv[1m])))",
    "max_over_time(sum by (engine) (rate(kv[1m]))[2m:30s])",
]


def test_what_range_queries_of_the_same_steps_aggregate_is_worked_out_once_and_answers_are_the_same(reads):
    steps = AT_MS - 120_000, AT_MS, 30_000
    alone = [query.range_(promql, *steps) for promql in RANGES]
    assert all(alone)
    reads.clear()
    parts: dict[str, Vector] = {}
    assert [query.range_(promql, *steps, parts=parts) for promql in RANGES] == alone
    # Once for all three, and for the subquery, which looks further back.
    assert reads == [180_000, 270_000]
