"""Pools without a gateway around them: requests that ask for places, at a clock that a test moves."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any, cast

from gateway.exchange import Exchange
from gateway.pools import Placement, PoolOptions, Pools
from gateway.view import View, compile_view
from policy.kv_ledger import EngineLook
from tests.gateway.fleet import changed, configuration
from wire.snapshot_checks import decode_snapshot

OPTIONS = PoolOptions(
    overtakings=2, affinity_spread_permille=200, affinity_blocks=100, retry_seconds=1, longest_seconds=600
)
_revisions = itertools.count(1)


class TestClock:
    """Both clocks of a gateway, which move when a test says so."""

    __test__ = False

    def __init__(self) -> None:
        self.monotonic_ms, self.unix_from_ms = 1_000, 10**12

    def now_ms(self) -> int:
        return self.monotonic_ms

    def unix_ms(self) -> int:
        return self.unix_from_ms + self.monotonic_ms


class Pages:
    """What engines' pages say; nothing, until a test sets it."""

    def __init__(self) -> None:
        self.looks: dict[str, EngineLook] = {}
        self.stale_engines: set[str] = set()

    def look(self, engine: str) -> EngineLook | None:
        return self.looks.get(engine)

    def stale(self, engine: str) -> bool:
        return engine in self.stale_engines


class _Ask:
    def __init__(self, sequences: int, texts: list[str]) -> None:
        self.sequences, self.texts = sequences, texts


class _Size:
    def __init__(self, tokens: int) -> None:
        self.tokens = tokens


class _Gateway:
    def __init__(self, pools: Pools) -> None:
        self.pools = pools


class _Route:
    def __init__(self, pools: tuple[str, ...]) -> None:
        self.pools = pools


class Asked:
    """What pools read of an exchange. `needs`: KV tokens, all of them output, of which the request gets `got`."""

    def __init__(self, door: Pools, view: View, needs: int, **other: Any) -> None:
        self.gateway, self.view = _Gateway(door), view
        self.size, self.max_tokens = _Size(0), needs
        self.ask = _Ask(other.get("sequences", 1), other.get("texts", []))
        self.route = _Route(other.get("pools", ("main",)))
        self.tenant_name = other.get("tenant", "alpha")
        self.priority_class = other.get("priority_class", "")
        self.deadline = time.monotonic() + other.get("deadline_seconds", 600)
        self.placement: Placement | None = None
        self.output_tokens = other.get("got", needs)
        self.notes: dict[str, int] = {}

    def used_tokens(self) -> tuple[int, int]:
        return 0, self.output_tokens

    def note(self, **numbers: int) -> None:
        self.notes.update(numbers)


class Bench:
    """Pools under a configuration; engines' URLs lead nowhere."""

    def __init__(self, engines: int = 1, options: PoolOptions = OPTIONS, **paths: Any) -> None:
        self.clock, self.pages = TestClock(), Pages()
        self.pools = Pools(self.clock, self.pages, options)
        self.content = configuration(*(f"http://127.0.0.1:{port}" for port in range(1, engines + 1)))
        for number in range(engines):
            paths.setdefault(f"engines__e{number}__kv_capacity_tokens", 100)
        paths.setdefault("pools__main__kv_admit_permille", 1000)
        self.view: View
        self.configure(**paths)

    def configure(self, live_gateways: int = 1, **paths: Any) -> None:
        self.content = changed(self.content, **paths)
        self.view = compile_view(decode_snapshot(self.content), next(_revisions))
        self.pools.configure(self.view, live_gateways)

    def asked(self, needs: int, **other: Any) -> Exchange:
        return cast(Exchange, Asked(self.pools, self.view, needs, **other))

    async def place(self, needs: int, **other: Any) -> Placement:
        """A place that is there at once, or a refusal."""
        return await self.place_for(self.asked(needs, **other))

    async def place_for(self, x: Exchange) -> Placement:
        async with asyncio.timeout(5):
            x.placement = await self.pools.place(x)
        return x.placement

    async def waits(self, needs: int, **other: Any) -> asyncio.Task[Placement]:
        """A request that waits, as a task."""
        task = asyncio.create_task(self.place_for(self.asked(needs, **other)))
        before = self.waiting
        await turns()
        if task.done():
            task.result()
            raise AssertionError("it has a place at once")
        assert self.waiting == before + 1
        return task

    @property
    def waiting(self) -> int:
        return sum(pool.queue_length for pool in self.pools.moments())

    def end(self, placement: Placement, outcome: Any = "success") -> None:
        placement.end(outcome, self.clock.now_ms())
        placement.close(self.clock.now_ms())


async def turns() -> None:
    """Let all tasks go on as far as they can without time passing."""
    for _ in range(10):
        await asyncio.sleep(0)
