"""All twenty on the embedded store and on a real Prometheus: the same series, the same verdicts."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from controlplane.core.fields import epoch_ms
from controlplane.diagnosis import round
from controlplane.diagnosis.detectors.registry import DETECTORS
from controlplane.diagnosis.services.findings import Looked
from controlplane.telemetry.receiver import store_path
from controlplane.telemetry.store.writer import Owner
from tests.controlplane.diagnosis.helpers import counter, gauge
from tests.controlplane.telemetry.filling import store
from tests.controlplane.telemetry.upstreams import RealServer, use
from wire.write_body import Series, encode

Fill = Callable[[list[Series]], None]
HEADERS = {"content-type": "application/x-protobuf", "content-encoding": "snappy",
           "x-prometheus-remote-write-version": "0.1.0"}  # fmt: skip


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[RealServer]:
    """A test's own: what another has written would be within the window."""
    server = RealServer("prometheus", tmp_path)
    with server.running():
        yield server


@pytest.fixture(params=["embedded", "external"])
def fill(request: pytest.FixtureRequest, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fill:
    settings.DATA_DIR = tmp_path
    if request.param == "embedded":
        return lambda series: store(store_path(), series, Owner("node", "n1"))
    server: RealServer = request.getfixturevalue("prometheus")
    use(monkeypatch, server.base)

    def push(series: list[Series]) -> None:
        write = urllib.request.Request(f"{server.base}/api/v1/write", encode(series), HEADERS)
        with urllib.request.urlopen(write) as answer:
            assert answer.status == 204

    return push


def _series(at_ms: int, kv_use: float, waiting: float) -> list[Series]:
    of = {"engine": "e1", "pool": "chat", "node": "n1", "kind": "vllm", "model": "llama"}
    return [
        gauge("headworks_engine_kv_cache_usage_ratio", kv_use, at_ms, **of),
        gauge("headworks_engine_requests_waiting", waiting, at_ms, **of),
        gauge("headworks_engine_requests_running", 20, at_ms, **of),
        counter("headworks_engine_preemptions_total", 0, at_ms, **of),
        counter("headworks_gateway_prompt_tokens_total", 900, at_ms, pool="chat", tenant="acme", gateway="g1"),
    ]


def _look(fill: Fill, kv_use: float, waiting: float) -> list[Looked]:
    at = timezone.now()
    fill(_series(epoch_ms(at), kv_use, waiting))
    looked = round.look_with(DETECTORS, at)
    assert {each.name for each in looked} == {detector.name for detector in DETECTORS}
    assert not [f"{each.name}: {each.error}" for each in looked if each.error]
    return [each for each in looked if each.found]


def test_a_fleet_that_is_well_has_no_finding_and_nobody_is_blind(fleet: None, fill: Fill):
    assert _look(fill, kv_use=0.6, waiting=0) == []


def test_a_full_cache_with_a_queue_is_found_where_it_is(fleet: None, fill: Fill):
    (looked,) = _look(fill, kv_use=0.99, waiting=12)
    (found,) = looked.found
    assert (looked.name, found.subject, found.columns["tenants"]) == ("kv_exhausted", "pool/chat", ["acme"])
