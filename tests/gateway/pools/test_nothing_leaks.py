"""Whatever happens to requests, in whatever order: what is held is what those that live hold; in the end, nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.exchange import Exchange
from gateway.pools import Placement, judge_pool
from gateway.refusals import Refused
from policy.breaker import Outcome
from tests.gateway.fleet import MODEL
from tests.gateway.pools.asking import Bench, turns

QUICK = {"minimum_requests": 3, "error_permille": 500, "cooldown_ms": 1_000, "half_open_probes": 2}
ROUTES = (("main",), ("spare",), ("main", "spare"))
# What a pool may be configured to be from one moment to the next.
CHANGES: tuple[dict[str, Any], ...] = (
    {"engines__e0__cordoned": True},
    {"engines__e0__cordoned": False},
    {"engines__e1__url": "http://127.0.0.1:9"},
    {"engines__e1__url": "http://127.0.0.1:2"},
    {"pools__main__queue_cap": 0},
    {"pools__main__queue_cap": 3},
    {"pools__main__max_concurrency": 2},
    {"pools__main__max_concurrency": 50},
    {"priority_classes__bulk__kv_ceiling_permille": 400},
    {"priority_classes__bulk__kv_ceiling_permille": 1000},
    {"engines__e2__pool": "main"},
    {"engines__e2__pool": "spare"},
)


class Step(NamedTuple):
    """One thing that happens; numbers pick what it happens to."""

    what: str
    pick: int
    size: int


steps = st.lists(
    st.builds(
        Step,
        st.sampled_from(["ask", "ask", "ask", "end", "end", "fail", "retry", "leave", "time", "change", "told"]),
        st.integers(0, 99),
        st.integers(1, 100),
    ),
    min_size=20,
    max_size=80,
)


class Request(NamedTuple):
    x: Exchange
    task: asyncio.Task[Placement]


class World:
    """Pools, and beside them what each request holds as far as a client of theirs can know."""

    def __init__(self) -> None:
        self.bench = Bench(
            3,
            pools__main__breaker=QUICK,
            pools__main__queue_ttl_ms=3_600_000,
            pools__spare={"model": MODEL, "kv_admit_permille": 1000, "queue_ttl_ms": 3_600_000, "queue_cap": 2},
            engines__e2__pool="spare",
            priority_classes={"gold": {"rank": 0}, "bulk": {"rank": 3, "shed_order": 1}},
        )
        self.bench.configure(pools__spare__breaker=QUICK)
        self.requests: list[Request] = []
        # Of attempts that have ended, and of those that go on.
        self.running: list[tuple[Exchange, Placement]] = []

    def ask(self, pick: int, size: int) -> None:
        x = self.bench.asked(
            size,
            pools=ROUTES[pick % 3],
            tenant=("alpha", "beta")[pick % 2],
            priority_class=("", "gold", "bulk")[pick % 3],
        )
        self.requests.append(Request(x, asyncio.create_task(self.bench.place_for(x))))

    def end(self, pick: int, outcome: Outcome, *, again: bool = False) -> None:
        if not self.running:
            return
        x, placement = self.running.pop(pick % len(self.running))
        for _ in range(2):
            # Only the first call counts.
            placement.end(outcome, self.bench.clock.now_ms())
        if again:
            try:
                x.placement = self.bench.pools.place_again(x, avoid=placement.state.name)
            except Refused:
                pass
            else:
                self.running.append((x, x.placement))
                return
        judge_pool(x, "ok", "none")

    def leave(self, pick: int) -> None:
        if self.requests:
            self.requests[pick % len(self.requests)].task.cancel()

    async def settle(self) -> None:
        await turns()
        for request in [each for each in self.requests if each.task.done()]:
            self.requests.remove(request)
            if request.task.cancelled() or request.task.exception() is not None:
                assert request.task.cancelled() or isinstance(request.task.exception(), Refused)
                judge_pool(request.x, "refused", "any")
            else:
                self.running.append((request.x, request.task.result()))

    def do(self, step: Step) -> None:
        bench = self.bench
        if step.what == "ask":
            self.ask(step.pick, step.size)
        elif step.what == "end":
            self.end(step.pick, "success" if step.size > 10 else "ignored")
        elif step.what in ("fail", "retry"):
            self.end(step.pick, "failure", again=step.what == "retry")
        elif step.what == "leave":
            self.leave(step.pick)
        elif step.what == "time":
            bench.clock.monotonic_ms += 10 * step.size
            bench.pools.review()
        elif step.what == "change":
            bench.configure(live_gateways=1 + step.size % 2, **CHANGES[step.pick % len(CHANGES)])
        else:
            until = bench.clock.unix_ms() + 10 * step.size
            bench.pools.apply_remote("engine", f"e{step.pick % 3}", "open" if step.pick % 2 else "closed", until)

    def holds(self) -> Iterator[str]:
        """What is wrong."""
        for _, engine, _ in self.bench.pools.engines():
            own = [placement for _, placement in self.running if placement.state is engine]
            if (engine.in_flight, engine.sequences) != (len(own), len(own)):
                yield f"{engine.name} counts {engine.in_flight} requests of {len(own)}"
            if engine.reserved_tokens != sum(self.tokens_of(placement) for placement in own):
                yield f"{engine.name} counts {engine.reserved_tokens} tokens"
            if engine.reserved_tokens > 100:
                yield f"{engine.name} has promised more than it has"
        waiting = self.bench.waiting
        if waiting != len(self.requests):
            yield f"{waiting} wait of {len(self.requests)}"
        busy = {pool for pool, engine, _ in self.bench.pools.engines() if engine.in_flight}
        for pool in self.bench.pools.moments():
            # An engine that came from another pool brings requests of that one with it.
            if pool.queue_length and not pool.in_flight and pool.name not in busy and not self.only_under_a_ceiling():
                yield f"{pool.name} stands idle while some wait"

    def only_under_a_ceiling(self) -> bool:
        """Of those room is kept free; where engines are cordoned, all of it may be."""
        return all(request.x.priority_class == "bulk" for request in self.requests)

    def tokens_of(self, placement: Placement) -> int:
        return next(x.max_tokens for x, each in self.running if each is placement)


async def play(happens: list[Step]) -> None:
    world = World()
    for step in happens:
        world.do(step)
        await world.settle()
        assert list(world.holds()) == []
    for request in list(world.requests):
        request.task.cancel()
    await world.settle()
    while world.running:
        world.end(0, "success")
        await world.settle()
    assert list(world.holds()) == []
    assert [(pool.in_flight, pool.queue_length, pool.queue_tokens) for pool in world.bench.pools.moments()] == [
        (0, 0, 0)
    ] * 2
    # No probe is lost: time and requests that go well close every breaker.
    world.bench.configure(
        engines__e0__cordoned=False, engines__e2__pool="spare", pools__main__max_concurrency=50, live_gateways=1
    )
    world.bench.clock.monotonic_ms += 60_000
    for _ in range(6):
        for route in ROUTES:
            world.bench.end(await world.bench.place(1, pools=route))
    assert {pool.state for pool in world.bench.pools.moments()} == {"closed"}
    assert {state for _, _, state in world.bench.pools.engines()} == {"closed"}


@given(steps)
@settings(max_examples=60, deadline=None)
def test_what_is_held_is_what_those_that_live_hold(happens: list[Step]):
    asyncio.run(play(happens))
