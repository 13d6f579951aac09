"""The fleet that detectors are shown: public forms, capacity, lengths, events, in as few queries whatever its size."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from controlplane.alerts.models import NodeEvent
from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.core.fields import epoch_ms
from controlplane.diagnosis import facts
from controlplane.diagnosis.detector import Fleet
from controlplane.fleet.models import Engine
from controlplane.fleet.services import ENGINES, NODES, POOLS, described_with_facts
from controlplane.telemetry.decisions import sketches
from controlplane.tenants.services import TENANTS
from wire.sketches import MINUTE_MS, Sketch, bucket_of


def load(at: datetime | None = None) -> Fleet:
    return facts.load(at or timezone.now(), 120, {})


def told(lengths: Iterable[int], at: datetime, pool: str = "chat") -> None:
    minute = (epoch_ms(at) // MINUTE_MS - 5) * MINUTE_MS
    counts = sorted({bucket_of(length): 0 for length in lengths})
    part = [(bucket, sum(bucket_of(length) == bucket for length in lengths)) for bucket in counts]
    sketches.take(
        "g1", [Sketch(minute=minute, tenant="acme", pool=pool, arrivals=1, prompt_tokens=part)], now_ms=epoch_ms(at)
    )


def test_rows_are_in_their_public_forms(fleet: None):
    seen = load()
    assert seen.pools["chat"].row == POOLS.known("chat")
    assert seen.tenants["acme"] == TENANTS.known("acme")
    assert seen.engines["e1"] == described_with_facts([ENGINES.get("e1")])[0]
    assert seen.nodes["n1"]["health"] == "unknown"
    assert (seen.window_seconds, list(seen.models)) == (120, ["llama"])


def test_capacity_is_that_of_engines_that_take_work_and_is_unknown_where_one_has_not_told(fleet: None):
    with unit_of_work(SYSTEM, "for a test") as unit:
        for name in ("e2", "e3"):
            ENGINES.create(unit, name, {"url": "http://10.0.0.2:80", "pool": "chat", "served_model": "m"})
        ENGINES.cordon(unit, "e3")
    Engine.objects.update(kv_capacity_tokens=1000)
    pool = load().pools["chat"]
    assert (pool.engines, pool.kv_capacity_tokens) == (("e1", "e2"), 2000)
    Engine.objects.filter(name="e2").update(kv_capacity_tokens=None)
    assert load().pools["chat"].kv_capacity_tokens is None


def test_lengths_are_quantiles_of_the_last_hour_and_kept_for_a_minute(fleet: None):
    at = timezone.now()
    assert load(at).pools["chat"].lengths is None
    told(range(1, 31), at)
    assert load(at + timedelta(seconds=30)).pools["chat"].lengths is None
    lengths = load(at + timedelta(seconds=61)).pools["chat"].lengths
    assert lengths is not None
    assert (lengths.counted, lengths.prompt_tokens[500], lengths.prompt_tokens[990]) == (30, 15, 30)
    assert set(lengths.prompt_tokens) == set(facts.QUANTILES_PERMILLE)
    assert lengths.output_tokens == {}
    assert load(at + timedelta(hours=2)).pools["chat"].lengths is None


def test_too_many_sketches_leave_lengths_unknown_instead_of_the_round_undone(
    fleet: None, monkeypatch: pytest.MonkeyPatch
):
    at = timezone.now()
    told([5], at)
    told([5], at, pool="other")
    monkeypatch.setattr(sketches, "SUMMARY_ROWS_MAX", 1)
    assert load(at).pools["chat"].lengths is None


def test_events_are_those_of_the_last_hour_the_oldest_first(fleet: None):
    at = timezone.now()
    for minutes in (90, 10, 30):
        when = at - timedelta(minutes=minutes)
        NodeEvent.objects.create(
            node="n1",
            event_id=str(minutes),
            at=when,
            received_at=when,
            kind="xid",
            subject="GPU-1",
            severity="critical",
        )
    assert [event["id"] for event in load(at).events] == ["30", "10"]


def test_a_larger_fleet_takes_no_more_queries(fleet: None):
    load()

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            load()
        return len(captured.captured_queries)

    before = queries()
    with unit_of_work(SYSTEM, "for a test") as unit:
        for number in range(5):
            NODES.create(unit, f"m{number}", {})
            POOLS.create(unit, f"p{number}", {"model": "llama"})
            engine: dict[str, Any] = {"url": "http://10.0.0.3:80", "pool": f"p{number}", "served_model": "m"}
            ENGINES.create(unit, f"x{number}", {**engine, "node": f"m{number}"})
            TENANTS.create(unit, f"t{number}", {})
    assert queries() == before <= 16
