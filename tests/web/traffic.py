"""Rows of what shapes traffic, and what gateways and engines measured of it, for tests of pages."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from controlplane.core.changes import UnitOfWork
from controlplane.fleet.services import ALIASES, MODELS, POOLS
from controlplane.telemetry.store.writer import Owner
from controlplane.tenants.services import CACHE_POLICIES, PRIORITY_CLASSES, SESSION_LIMITS
from tests.controlplane.telemetry.filling import store
from tests.web.conftest import write
from wire.write_body import Series

STEP_SECONDS = 15
# So that a rate over an hour has enough of it.
SPAN_SECONDS = 1800


def traffic_nouns() -> None:
    """One of each: a class, session limits, a cache policy, and a model that nothing uses, with an alias and a pool."""

    def make(unit: UnitOfWork) -> None:
        PRIORITY_CLASSES.create(unit, "interactive", {"rank": 10})
        SESSION_LIMITS.create(unit, "agents", {"max_iterations": 50})
        CACHE_POLICIES.create(unit, "faq", {"exact": {}})
        for name in ("unused", "served-by-unused"):
            MODELS.create(unit, name, {"max_context_tokens": 8192})
        ALIASES.create(unit, "llama", {"model": "served-by-unused"})
        POOLS.create(unit, "unused", {"model": "served-by-unused"})

    write(make)


def measured(path: Path, gauges: dict[tuple[str, ...], float], counters: dict[tuple[str, ...], float]) -> None:
    """Series that end now: gauges that stayed, and counters that grew evenly to their value within half an hour.

    A key is the metric's name and labels as "name=value"; each is told by gateway gw-1.
    """
    store(path, [*_series(gauges, grows=False), *_series(counters, grows=True)], Owner("gateway", "gw-1"))


def _series(values: dict[tuple[str, ...], float], *, grows: bool) -> Iterator[Series]:
    now_ms = int(time.time() * 1000)
    times_ms = [now_ms - 1000 * ago for ago in range(SPAN_SECONDS, -1, -STEP_SECONDS)]
    last = len(times_ms) - 1
    for (name, *pairs), value in values.items():
        labels = dict(pair.split("=", 1) for pair in pairs)
        samples = [(at_ms, value * place / last if grows else value) for place, at_ms in enumerate(times_ms)]
        yield Series({"__name__": name, "gateway": "gw-1", **labels}, samples)
