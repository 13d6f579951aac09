"""All pools and engines of this gateway, and how a request comes to a place in one of them.

A request's route names pools in the order of preference. It gets a place in the first of them that has one now. Where
none has, it waits in one line alone: of the first pool in which waiting is of use (something there passes by itself)
and whose line has room and is not too long for it. It is not moved from there, however soon another pool has room, but
where its pool can serve it no more: then it looks again, as if it had just come, its time to wait going on.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from gateway.pools.breakers import Kind, NamedBreaker
from gateway.pools.choice import PASSING, Looks
from gateway.pools.claim import Claim
from gateway.pools.engine_state import EngineState
from gateway.pools.placement import Placement
from gateway.pools.pool import Clock, PoolOptions, PoolState
from gateway.pools.words import Tried, cannot_finish, no_place, queue_full
from gateway.refusals import Refused
from gateway.view import View
from policy.affinity import leading_blocks
from policy.breaker import State
from policy.kv import reservation_tokens

if TYPE_CHECKING:
    from gateway.exchange import Exchange

# (kind, name, `open` or `closed`, until when by Unix milliseconds)
BreakerChange = Callable[[Kind, str, State, int], None]


class PoolMoment(NamedTuple):
    """What a scrape sees of one pool. `state`: of its own breaker. `limit`: None where nothing bounds it."""

    name: str
    state: State
    in_flight: int
    limit: int | None
    queue_length: int
    queue_tokens: int
    # Whether an override holds its breaker open or closed.
    forced: bool = False


class Pools:
    """The door to all pools. `on_breaker_change` hears what this gateway's breakers learned; `apply_remote` tells them.

    Use it inside a running event loop.
    """

    def __init__(self, clock: Clock, looks: Looks, options: PoolOptions) -> None:
        self.on_breaker_change: BreakerChange = lambda kind, name, state, until_unix_ms: None
        self._clock, self._looks, self._options = clock, looks, options
        self._pools: dict[str, PoolState] = {}
        self._engines: dict[str, EngineState] = {}
        self._numbers = itertools.count()

    def configure(self, view: View, live_gateways: int) -> None:
        """Take a view, as one of so many gateways. Who waits is judged by it at once."""
        snapshot = view.snapshot
        self._engines = self._configured_engines(view)
        before, self._pools = self._pools, {}
        weights = {name: tenant.weight for name, tenant in snapshot.tenants.items()}
        for name, pool in snapshot.pools.items():
            state = before.pop(name, None)
            if state is None:
                state = PoolState(name, pool, self._clock, self._looks, self._options, self._tell)
            elif state.pool.model != pool.model:
                # Who waits asked for the one that it served.
                state.dissolve()
            engines = (self._engines[engine] for engine in view.engines_of[name])
            state.configure(view, engines, weights, live_gateways)
            self._pools[name] = state
        for gone in before.values():
            gone.dissolve()
        self.review()

    def looked(self, engine: str) -> None:
        """An engine's page was read: there may be more room at it."""
        state = self._engines.get(engine)
        if state is not None:
            self._pools[state.engine.pool].dispatch()

    def gone(self, engine: str) -> None:
        """An engine's port has refused connections for long: it may keep those that it has, and say nothing more."""
        state = self._engines.get(engine)
        if state is not None:
            state.give_up_unanswered()

    def set_warming(self, engine: str, warming: bool) -> None:
        """Whether an engine is being warmed up; it is then used where no other is free."""
        state = self._engines.get(engine)
        if state is not None:
            state.warming = warming

    def review(self) -> None:
        """Something has changed of which no request tells: see who can be served now, and who nowhere any more."""
        for pool in self._pools.values():
            pool.review()

    async def place(self, x: Exchange) -> Placement:
        """A place on an engine, waited for where need be. Whoever gets it ends it.

        Raises: Refused (`no_engine`, `breaker_open`, `no_kv_capacity`, `never_fits_kv`, `queue_full`, `queue_timeout`,
        `cannot_finish_in_time`, `shed`).
        """
        self.ended(x)
        claim = self._claim(x)
        while True:
            tried: list[Tried] = []
            for pool in self._pools_of(x):
                found = pool.place_now(claim)
                if isinstance(found, Placement):
                    return self._noted(x, claim, found)
                tried.append((pool, found))
            pool = self._line_for(claim, tried)
            answer = pool.join(claim)
            x.note(queue_length=len(pool.line), queue_ttl_ms=pool.line.ttl_ms(claim), kv_tokens=claim.tokens)
            try:
                placement = await answer
            except asyncio.CancelledError:
                pool.leave(claim)
                raise
            if isinstance(placement, Refused):
                raise placement
            if placement is not None:
                return self._noted(x, claim, placement)

    def place_again(self, x: Exchange, avoid: str) -> Placement:
        """A place on another engine than `avoid`, which has failed the request: at once, or not at all.

        Raises: Refused, as `place`.
        """
        claim = self._claim(x)
        tried: list[Tried] = []
        for pool in self._pools_of(x):
            found = pool.place_again(claim, avoid, x.placement)
            if isinstance(found, Placement):
                return self._noted(x, claim, found)
            tried.append((pool, found))
        raise no_place(tried, claim, self._clock.now_ms(), self._options.retry_seconds)

    def ended(self, x: Exchange) -> None:
        """No further attempt follows on the request's last one."""
        if x.placement is not None:
            x.placement.close(self._clock.now_ms())

    # Breakers

    def stands_well(self, engine: str) -> bool:
        """Whether an engine's breaker, or who overrides it, lets requests through."""
        state = self._engines.get(engine)
        if state is None:
            return False
        now_ms = self._clock.now_ms()
        forced = state.forced(self._clock.unix_ms())
        return state.breaker.may_try(now_ms) if forced is None else forced.state == "closed"

    def apply_remote(self, kind: Kind, name: str, state: State, until_unix_ms: int) -> None:
        """Another gateway's breaker of this name opened, until then, or closed. Unknown names are passed over."""
        breaker = self._breaker(kind, name)
        if breaker is None:
            return
        now_ms = self._clock.now_ms()
        if state == "open":
            breaker.hold_open(now_ms + until_unix_ms - self._clock.unix_ms(), now_ms)
        elif state == "closed":
            breaker.close_with_others(now_ms)
        self.review()

    # What is seen from outside

    def pool(self, name: str) -> PoolState | None:
        return self._pools.get(name)

    def held(self, engine: str) -> tuple[int, int]:
        """(KV tokens, sequences) that this gateway's requests hold of an engine now."""
        state = self._engines.get(engine)
        return (0, 0) if state is None else (state.reserved_tokens, state.sequences)

    def saturated(self) -> bool:
        """Whether every pool that has a queue has no room in it."""
        queues = [pool for pool in self._pools.values() if pool.pool.queue_cap]
        return bool(queues) and not any(pool.line.has_room for pool in queues)

    def engines(self) -> list[tuple[str, EngineState, State]]:
        """(pool, engine, the breaker state that holds, overrides included) of each."""
        now_ms, unix_ms = self._clock.now_ms(), self._clock.unix_ms()
        return [(each.engine.pool, each, each.standing(now_ms, unix_ms)) for each in self._engines.values()]

    def forced(self) -> frozenset[str]:
        """The engines whose breaker an override, on them or on their pool, holds open or closed."""
        unix_ms = self._clock.unix_ms()
        return frozenset(each.name for each in self._engines.values() if each.forced(unix_ms) is not None)

    def moments(self) -> list[PoolMoment]:
        return [
            PoolMoment(
                pool.name,
                pool.standing(),
                pool.in_flight,
                pool.concurrency.limit,
                len(pool.line),
                pool.line.waiting_tokens,
                pool.forced() is not None,
            )
            for pool in self._pools.values()
        ]

    def _configured_engines(self, view: View) -> dict[str, EngineState]:
        """An engine whose URL changes is another engine; what requests hold of the one before is of no account."""
        engines: dict[str, EngineState] = {}
        for name, engine in view.snapshot.engines.items():
            thresholds = view.snapshot.pools[engine.pool].breaker
            state = self._engines.get(name)
            if state is None or state.engine.url != engine.url:
                state = EngineState(name, engine, NamedBreaker("engine", name, thresholds, self._tell))
            state.engine, state.overrides = engine, view.overrides(engine.pool, name)
            state.breaker.configure(thresholds)
            engines[name] = state
        return engines

    def _pools_of(self, x: Exchange) -> Iterable[PoolState]:
        """The pools of a request's route that serve still what they served when it was routed."""
        routed = x.view.snapshot.pools
        for name in x.route.pools:
            pool = self._pools.get(name)
            if pool is not None and pool.pool.model == routed[name].model:
                yield pool

    def _claim(self, x: Exchange) -> Claim:
        prompt_tokens, output_tokens = x.size.tokens, x.max_tokens * x.ask.sequences
        several = any(len(pool.choice.engines) > 1 for pool in self._pools_of(x))
        return Claim(
            number=str(next(self._numbers)),
            tenant=x.tenant_name,
            priority_class=x.priority_class,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            tokens=reservation_tokens(prompt_tokens, x.max_tokens, x.ask.sequences),
            sequences=x.ask.sequences,
            blocks=leading_blocks(x.ask.texts) if several else [],
            deadline_ms=self._clock.now_ms() + round((x.deadline - time.monotonic()) * 1000),
            used_tokens=x.used_tokens,
        )

    def _line_for(self, claim: Claim, tried: list[Tried]) -> PoolState:
        """Where a claim waits that has no place now. Raises: Refused."""
        now_ms = self._clock.now_ms()
        useful = [pool for pool, obstacles in tried if obstacles & PASSING and pool.pool.queue_cap]
        if not useful:
            raise no_place(tried, claim, now_ms, self._options.retry_seconds)
        late = [pool.line.late_by_ms(claim, now_ms) for pool in useful]
        in_time = [pool for pool, late_by_ms in zip(useful, late, strict=True) if late_by_ms is None]
        for pool in in_time:
            if pool.line.has_room:
                return pool
        for pool in in_time:
            if pool.shed_for(claim):
                return pool
        preferred, late_by_ms = useful[0], late[0]
        raise queue_full(preferred, claim) if late_by_ms is None else cannot_finish(preferred, claim, late_by_ms)

    def _noted(self, x: Exchange, claim: Claim, placement: Placement) -> Placement:
        chosen = placement.chosen
        x.note(kv_tokens=claim.tokens, engine_load_permille=round(chosen.load_permille))
        if chosen.room_tokens is not None:
            x.note(room_tokens=chosen.room_tokens)
        if claim.waits_since_ms is not None:
            x.note(waited_ms=self._clock.now_ms() - claim.waits_since_ms)
        return placement

    def _breaker(self, kind: Kind, name: str) -> NamedBreaker | None:
        if kind == "engine":
            engine = self._engines.get(name)
            return None if engine is None else engine.breaker
        pool = self._pools.get(name)
        return None if pool is None else pool.breaker

    def _tell(self, kind: Kind, name: str, state: State, for_ms: int) -> None:
        self.on_breaker_change(kind, name, state, self._clock.unix_ms() + for_ms)


def judge_pool(x: Exchange, outcome: str, reason: str) -> None:
    """An ending of the pipeline: no attempt follows on the last one, whatever became of the request."""
    x.gateway.pools.ended(x)
