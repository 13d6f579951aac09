"""How many requests of this gateway may be at a pool's engines at once: configured, found by itself, or any number."""

from __future__ import annotations

from msgspec import UNSET

from policy.concurrency import AdaptiveLimit
from policy.quota import gateway_share
from wire.snapshot import Pool

# Where a pool is to find its limit and names no largest one: more than any pool serves.
_NO_LARGEST = 100_000
# With so many requests an engine an adaptive limit begins: few enough to see what one is like that waits for nothing.
_FIRST_PER_ENGINE = 16


class Concurrency:
    """`limit`: None where nothing bounds it."""

    def __init__(self) -> None:
        self._fixed: int | None = None
        self._adaptive: AdaptiveLimit | None = None
        self._gateways = 1

    @property
    def limit(self) -> int | None:
        return self._fixed if self._adaptive is None else self._adaptive.limit

    def configure(self, pool: Pool, engines: int, gateways: int, now_ms: int) -> None:
        """Take the pool's limits, of which each of the `gateways` has its share."""
        self._gateways = max(1, gateways)
        self._fixed = None if pool.max_concurrency is UNSET else gateway_share(pool.max_concurrency, gateways)
        if not pool.adaptive_concurrency:
            self._adaptive = None
            return
        largest = _NO_LARGEST if self._fixed is None else self._fixed
        # One an engine, so that none stands idle.
        least = min(max(1, engines), largest)
        if self._adaptive is None:
            self._adaptive = AdaptiveLimit(least, largest, _FIRST_PER_ENGINE * max(1, engines), now_ms)
        else:
            self._adaptive.configure(least, largest)

    @property
    def is_adaptive(self) -> bool:
        return self._adaptive is not None

    def observe(self, sent_ms: int, now_ms: int, in_flight: int, waiting: int | None, *, whole: bool) -> None:
        """As AdaptiveLimit's. Of what waits at the engines, all gateways' requests, this one's share counts."""
        if self._adaptive is not None:
            share = None if waiting is None else -(-waiting // self._gateways)
            self._adaptive.observe(sent_ms, now_ms, in_flight, share, whole=whole)
