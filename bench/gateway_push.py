"""What a gateway's pushes of its own series cost where it serves thousands of tenants.

In this process: the gateway's counters, its push every 5 s (the clock is turned, nobody waits) and a receiver that
takes each body at once. Before each push some tenants have asked for something: nearly all of them, or a few. CPU time
counts as a part of the 5 s; the event loop is held for as long as a task that sleeps a millisecond sleeps longer.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from typing import Any, cast

import uvloop

from bench.support.report import Targets, report
from gateway.collector import calm_collector
from gateway.metrics import Metrics, Moment
from gateway.push import SeriesPush
from gateway.quota.metrics import LedgerMoment
from gateway.view import View, compile_view
from wire.push import MetricPush
from wire.snapshot_checks import decode_snapshot

TENANTS, FEW, MANY = 3_000, 100, 2_500
INTERVAL_SECONDS = 5
PUSHES = 4
POOL, PRIORITY_CLASS, MODEL = "main", "interactive", "bench/model"
TARGETS: Targets = {
    "few_core_share": ("at most", 0.1),
    "many_core_share": ("at most", 0.3),
    "few_loop_held_max_ms": ("at most", 20.0),
    "many_loop_held_max_ms": ("at most", 20.0),
}


class Receiver:
    """Takes bodies at once, and knows how many bytes came."""

    def __init__(self) -> None:
        self.bytes = 0

    async def put_body(self, body: bytes) -> None:
        self.bytes += len(body)


class Site:
    """A gateway's counters of so many tenants, under a clock that is turned."""

    def __init__(self, tenants: int) -> None:
        self.metrics, self.view = Metrics(), view_of(tenants)
        self.names = sorted(self.view.snapshot.tenants)
        self.now_ms = 1_700_000_000_000
        self._dice = random.Random(0)

    def unix_ms(self) -> int:
        return self.now_ms

    def moment(self) -> Moment:
        ledger = LedgerMoment(is_shared=False, requests_shared=0, requests_local=0, waiting=0, lapsed=0)
        return Moment(1, True, False, 0, 0, engines=[], pools=[], looks=[], ledger=ledger)

    def ask(self, tenants: int) -> None:
        """One request each of so many tenants, with times as a pool of 8B models has them."""
        for tenant in self._dice.sample(self.names, tenants):
            self.metrics.request(POOL, tenant, PRIORITY_CLASS, "ok", "none")
            self.metrics.body_seconds(POOL, tenant, 0.001, 0.01)
            self.metrics.judged(POOL, tenant, PRIORITY_CLASS, met=True)
            series = self.metrics.series(POOL, tenant, PRIORITY_CLASS)
            series.prompt_tokens.inc(200)
            series.generation_tokens.inc(100)
            series.queue.observe(self._dice.uniform(0.001, 0.01))
            series.ttft.observe(self._dice.uniform(0.1, 0.4))
            series.tpot.observe(self._dice.uniform(0.02, 0.04))
            series.e2e.observe(self._dice.uniform(2, 5))


def view_of(tenants: int) -> View:
    content = {
        "kind": "gateway",
        "schema": 1,
        "tenants": {f"tenant-{number:05d}": {} for number in range(tenants)},
        "models": {MODEL: {"max_context_tokens": 8192, "default_max_tokens": 256, "max_tokens": 4096}},
        "pools": {POOL: {"model": MODEL}},
        "priority_classes": {PRIORITY_CLASS: {"rank": 0}},
    }
    return compile_view(decode_snapshot(content), 1)


async def held_ms(longest: list[float]) -> None:
    """Notes in `longest[0]` for how long the loop was held at most, until cancelled."""
    while True:
        begun = time.perf_counter()
        await asyncio.sleep(0.001)
        longest[0] = max(longest[0], (time.perf_counter() - begun - 0.001) * 1000)


async def pushes(site: Site, push: SeriesPush, receiver: Receiver, name: str, asking: int) -> dict[str, float]:
    """CPU, bytes and the longest hold of the pushes after the first, of which each series is a part."""
    cpu_seconds, longest, receiver.bytes = 0.0, [0.0], 0
    for _ in range(PUSHES):
        site.ask(asking)
        site.now_ms += INTERVAL_SECONDS * 1000
        watch = asyncio.create_task(held_ms(longest))
        begun = time.process_time()
        await push.push_once()
        cpu_seconds += time.process_time() - begun
        watch.cancel()
    return {
        f"{name}_core_share": cpu_seconds / PUSHES / INTERVAL_SECONDS,
        f"{name}_kb_per_push": receiver.bytes / PUSHES / 1e3,
        f"{name}_loop_held_max_ms": longest[0],
    }


async def bench(tenants: int) -> dict[str, float]:
    site, receiver = Site(tenants), Receiver()
    push = SeriesPush("bench", cast("Any", site), cast(MetricPush, receiver), INTERVAL_SECONDS)
    site.ask(tenants)
    await push.push_once()
    few = await pushes(site, push, receiver, "few", FEW * tenants // TENANTS)
    return few | await pushes(site, push, receiver, "many", MANY * tenants // TENANTS)


def main(argv: list[str] | None = None) -> int:
    """Prints a table, then one JSON object. Exit status 0 only if every target holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tenants", type=int, default=TENANTS, help=f"that the gateway has seen ({TENANTS})")
    calm_collector()
    return report("gateway_push", __doc__, uvloop.run(bench(parser.parse_args(argv).tenants)), TARGETS)


if __name__ == "__main__":
    sys.exit(main())
