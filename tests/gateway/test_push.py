"""What a gateway pushes to the control plane, and when its series end."""

from __future__ import annotations

import asyncio
import sqlite3
import struct
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client.core import Metric

from gateway.changes import Changes
from gateway.metrics import Metrics, Moment
from gateway.named import Named
from gateway.push import SeriesPush, samples
from gateway.quota.metrics import LedgerMoment
from gateway.view import compile_view
from tests.gateway.fleet import (
    MODEL,
    RunningGateway,
    ScriptedEngine,
    changed,
    chat,
    configuration,
    running_gateway,
    terminate,
)
from wire.remote_write import Bounds, decode_series, labels_of
from wire.snapshot_checks import decode_snapshot
from wire.write_body import STALE_BITS, key_of

QUICKLY = {"HEADWORKS_GATEWAY_PUSH_INTERVAL_SECONDS": "0.1"}


@pytest.fixture
async def gateway(
    engine: ScriptedEngine, second_engine: ScriptedEngine, tmp_path: Path
) -> AsyncIterator[RunningGateway]:
    async with running_gateway(tmp_path, configuration(engine.url, second_engine.url), QUICKLY) as gateway:
        yield gateway


class Taken:
    """What a control plane was sent: every series with its samples in the order of their arrival."""

    def __init__(self, bodies: list[bytes]) -> None:
        self.series: dict[tuple[tuple[str, str], ...], list[tuple[int, float]]] = {}
        for body in bodies:
            for series in decode_series(body, Bounds()):
                self.series.setdefault(tuple(sorted(series.labels.items())), []).extend(series.samples)

    def of(self, name: str, **labels: str) -> list[list[tuple[int, float]]]:
        wanted = {"__name__": name, **labels}.items()
        return [samples for identity, samples in self.series.items() if wanted <= dict(identity).items()]

    def value(self, name: str, **labels: str) -> float:
        """The newest, summed over the series that are alive."""
        return sum(samples[-1][1] for samples in self.of(name, **labels) if not is_stale(samples[-1][1]))


def is_stale(value: float) -> bool:
    return struct.pack("<d", value) == struct.pack("<Q", STALE_BITS)


async def until_taken(gateway: RunningGateway, wanted: float, name: str, **labels: str) -> Taken:
    async def value() -> float:
        return Taken(gateway.control.writes).value(name, **labels)

    await gateway.until(value, wanted, f"{name} {labels} to be pushed")
    return Taken(gateway.control.writes)


async def test_it_pushes_what_its_page_says_under_its_own_name(gateway: RunningGateway):
    for _ in range(3):
        assert await gateway.call_status(chat()) == 200
    taken = await until_taken(gateway, 3, "headworks_gateway_requests_total", tenant="alpha", outcome="ok")
    for name in ("prompt_tokens_total", "e2e_seconds_count", "e2e_seconds_bucket", "config_revision"):
        name = f"headworks_gateway_{name}"
        assert taken.value(name) == await gateway.metric(name) > 0
    assert taken.value("headworks_gateway_breaker_state", engine="e1", state="closed") == 1
    for identity in taken.series:
        labels = dict(identity)
        assert labels["gateway"] == "gw-test"
        assert "node" not in labels
        assert labels["__name__"].startswith("headworks_gateway_")
        assert not labels["__name__"].endswith("_created")


async def test_series_of_what_is_removed_end_and_others_go_on(gateway: RunningGateway):
    for tenant in ("alpha", "beta"):
        assert await gateway.call_status(chat(), tenant) == 200
    await until_taken(gateway, 1, "headworks_gateway_requests_total", tenant="beta")
    content = changed(gateway.control.content)
    del content["tenants"]["beta"], content["engines"]["e1"]
    content["keys"] = {key: row for key, row in content["keys"].items() if row["tenant"] != "beta"}
    await gateway.publish(content)
    await until_taken(gateway, gateway.control.revision, "headworks_gateway_config_revision")

    taken = Taken(gateway.control.writes)
    ended = taken.of("headworks_gateway_requests_total", tenant="beta")
    ended += taken.of("headworks_gateway_e2e_seconds_bucket", tenant="beta")
    ended += taken.of("headworks_gateway_breaker_state", engine="e1")
    assert len(ended) > 5
    for samples_ in ended:
        assert [is_stale(value) for _, value in samples_] == [False] * (len(samples_) - 1) + [True]
    assert taken.value("headworks_gateway_requests_total", tenant="alpha") == 1
    assert taken.value("headworks_gateway_breaker_state", engine="e0") == 1


async def test_all_series_end_with_a_drained_gateway(gateway: RunningGateway):
    assert await gateway.call_status(chat()) == 200
    await until_taken(gateway, 1, "headworks_gateway_requests_total")
    terminate(gateway)
    assert await asyncio.to_thread(gateway.process.wait, 15) == 0
    taken = Taken(gateway.control.writes)
    assert all(is_stale(samples_[-1][1]) for samples_ in taken.series.values())
    assert all(samples_[-1][0] > samples_[-2][0] for samples_ in taken.series.values())


async def test_samples_of_an_absence_arrive_oldest_first_also_after_kill_9(gateway: RunningGateway):
    await until_taken(gateway, 1, "headworks_gateway_config_connected")
    await gateway.control.stop()
    gateway.control.writes.clear()
    assert await gateway.call_status(chat()) == 200
    assert await gateway.call_status(chat()) == 200

    async def kept() -> bool:
        return Taken(bodies(gateway.state_dir)).value("headworks_gateway_requests_total") == 2

    await gateway.until(kept, True, "both requests in the spool")
    await asyncio.to_thread(gateway.process.kill)
    gateway.launch()
    await gateway.until_ready()
    await gateway.control.start()
    taken = await until_taken(gateway, 1, "headworks_gateway_config_connected")
    # Counted by the process that was killed; the one after it has served nobody.
    assert taken.value("headworks_gateway_requests_total") == 2
    (connected,) = taken.of("headworks_gateway_config_connected")
    times = [at_ms for at_ms, _ in connected]
    assert times == sorted(set(times))
    assert 0 in [value for _, value in connected]


def bodies(state_dir: Path) -> list[bytes]:
    """What waits in the spool of a running gateway."""
    with closing(sqlite3.connect(state_dir / "metrics.spool")) as spool:
        return [body for (body,) in spool.execute("SELECT body FROM records ORDER BY number")]


def moment(**values: Any) -> Moment:
    nothing: Mapping[str, Any] = {
        "revision": 3,
        "connected": True,
        "draining": False,
        "in_flight": 0,
        "persist_errors": 0,
        "engines": [],
        "pools": [],
        "looks": [],
        "ledger": LedgerMoment(is_shared=False, requests_shared=0, requests_local=0, waiting=0, lapsed=0),
    }
    return Moment(**{**nothing, **values})


def pushed_of(metrics: Metrics) -> list[Mapping[str, str]]:
    """The labels of all that a first push says."""
    named = Named(compile_view(decode_snapshot(configuration("http://127.0.0.1:1")), 3))
    changes = Changes(metrics.families, "gw")
    of_families = [series.labels for series in changes.due(changes.take_touched(), named, 1_000)]
    return of_families + [labels for labels, _ in samples(metrics.few(moment()), named, "gw")]


def test_a_client_that_nobody_configured_is_pushed_as_unknown_and_a_removed_tenant_not_at_all():
    metrics = Metrics()
    metrics.request("unknown", "unknown", "unknown", "refused", "unknown_key")
    metrics.request("main", "alpha", "interactive", "ok", "ok")
    metrics.request("main", "removed", "interactive", "ok", "ok")
    of_requests = "headworks_gateway_requests_total"
    pushed = [labels["tenant"] for labels in pushed_of(metrics) if labels["__name__"] == of_requests]
    assert sorted(pushed) == ["alpha", "unknown"]


def test_the_cut_streams_of_a_removed_engine_are_not_pushed():
    metrics = Metrics()
    there = next(iter(configuration("http://127.0.0.1:1")["engines"]))
    for engine in (there, "removed"):
        metrics.stream_cut("main", engine, "engine_error")
    assert {labels["engine"] for labels in pushed_of(metrics) if "engine" in labels} == {there}


def test_a_removed_model_is_not_pushed():
    metrics = Metrics()
    for model in (MODEL, "acme/removed"):
        metrics.caches.looked("exact", "alpha", model, hit=True)
    of_hits = "headworks_gateway_cache_hits_total"
    pushed = [labels["model"] for labels in pushed_of(metrics) if labels["__name__"] == of_hits]
    assert pushed == [MODEL]


async def test_thousands_of_series_go_in_bodies_of_a_bounded_size(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("gateway.push._BODY_SERIES", 100)
    metrics, bodies = Metrics(), asyncio.Queue[bytes]()
    for priority_class in ("interactive", "batch"):
        metrics.series("main", "alpha", priority_class).ttft.observe(0.1)
    view = compile_view(decode_snapshot(configuration("http://127.0.0.1:1")), 3)
    gateway = SimpleNamespace(metrics=metrics, view=view, moment=moment, unix_ms=lambda: 1_700_000_000_000)
    push = SimpleNamespace(put_body=bodies.put, run=asyncio.Event().wait)
    pushing = asyncio.create_task(SeriesPush("gw", cast("Any", gateway), cast("Any", push), 0.1).run())
    try:
        sizes = [len(decode_series(await asyncio.wait_for(bodies.get(), 10), Bounds()))]
        while sizes[-1] == 100:
            sizes.append(len(decode_series(await asyncio.wait_for(bodies.get(), 10), Bounds())))
    finally:
        pushing.cancel()
    # Two classes have four histograms and two counters each, of 16, 16, 12 and 12 bounds.
    assert sum(sizes) > 2 * (56 + 3 * 4 + 2)
    assert len(sizes) == 1 + sum(sizes) // 100


class HeldMetrics(Metrics):
    """Whose page stops after its first rows, until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.is_held, self.let_go = threading.Event(), threading.Event()
        self.let_go.set()

    def few(self, now: Moment) -> Iterator[Metric]:
        for family in super().few(now):
            yield family
            self.is_held.set()
            assert self.let_go.wait(10)


async def test_a_push_that_is_cut_off_leaves_no_series_without_an_end():
    metrics, bodies = HeldMetrics(), list[bytes]()
    metrics.request("main", "alpha", "interactive", "ok", "none")
    view = compile_view(decode_snapshot(configuration("http://127.0.0.1:1")), 3)
    gateway = SimpleNamespace(metrics=metrics, view=view, moment=moment, unix_ms=lambda: 1_700_000_000_000)

    async def put_body(body: bytes) -> None:
        bodies.append(body)

    push = SeriesPush("gw", cast("Any", gateway), cast("Any", SimpleNamespace(put_body=put_body)), 5)
    await push.push_once()
    metrics.is_held.clear()
    metrics.let_go.clear()
    cut_off = asyncio.create_task(push.push_once())
    assert await asyncio.to_thread(metrics.is_held.wait, 10)
    cut_off.cancel()
    ending = asyncio.create_task(push.end())
    await asyncio.wait((cut_off,))
    metrics.let_go.set()
    await ending
    taken = Taken(bodies)
    assert len(taken.series) > 10
    assert all([is_stale(value) for _, value in samples_] == [False, True] for samples_ in taken.series.values())


def test_every_label_that_is_pushed_is_one_that_the_receiver_takes():
    metrics = Metrics()
    metrics.request("main", "alpha", "interactive", "ok", "ok")
    metrics.series("main", "alpha", "interactive").ttft.observe(0.1)
    pushed = pushed_of(metrics)
    assert len(pushed) > 50
    assert [problem for labels in pushed for problem in labels_of(key_of(labels), Bounds())[1]] == []
