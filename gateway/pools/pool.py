"""One pool at this gateway: its line, its engines, its breaker, and what requests hold of it.

Whatever gives room back (an answer that ends, a client that leaves the line, a new configuration) serves the next
request in the same turn of the event loop. What nothing tells of (an engine's page, a cooldown or an override that is
over) is looked at once a second while some wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from gateway.pools.breakers import NamedBreaker, Tell
from gateway.pools.choice import Choice, Chosen, Looks, Obstacle
from gateway.pools.claim import Claim
from gateway.pools.concurrency import Concurrency
from gateway.pools.engine_state import EngineState
from gateway.pools.line import Answer, Line
from gateway.pools.placement import Placement
from gateway.pools.words import queue_timeout, shed
from gateway.view import View
from policy.breaker import Outcome, Permit, State, held_override
from policy.fairness import Waiting
from policy.kv_ledger import KvRoom
from policy.output_pace import OutputPace
from wire.snapshot import Override, Pool

_LOOK_AGAIN_MS = 1_000


class Clock(Protocol):
    """Monotonic and Unix milliseconds."""

    def now_ms(self) -> int: ...

    def unix_ms(self) -> int: ...


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """From settings. `retry_seconds`: where the time to free capacity is not known; `longest_seconds`: of a request."""

    overtakings: int
    affinity_spread_permille: int
    affinity_blocks: int
    retry_seconds: float
    longest_seconds: float


class PoolState:
    """The state outlives configuration changes. Use it inside a running event loop."""

    def __init__(self, name: str, pool: Pool, clock: Clock, looks: Looks, options: PoolOptions, tell: Tell) -> None:
        self.name, self.pool = name, pool
        self.in_flight = 0
        self.breaker = NamedBreaker("pool", name, pool.breaker, tell)
        self.choice = Choice(pool, self.breaker, looks, options.affinity_spread_permille, options.affinity_blocks)
        self.line = Line(pool, options.overtakings, clock.now_ms(), self._expire)
        self.concurrency = Concurrency()
        self.pace = OutputPace()
        self._clock, self._options = clock, options
        self._overrides: tuple[Override, ...] = ()
        self._timer: asyncio.TimerHandle | None = None

    def configure(self, view: View, engines: Iterable[EngineState], weights: Mapping[str, int], gateways: int) -> None:
        """Take a view as one of so many gateways. `review` it once all pools have."""
        now_ms = self._clock.now_ms()
        self.pool = view.snapshot.pools[self.name]
        self._overrides = view.overrides_of.get(("pool", self.name), ())
        self.breaker.configure(self.pool.breaker)
        self.choice.configure(self.pool, engines, view.snapshot.priority_classes, gateways)
        for engine in self.choice.engines:
            engine.pool = self
        self.concurrency.configure(self.pool, len(self.choice.engines), gateways, now_ms)
        self.line.configure(self.pool, view.snapshot.priority_classes, weights, now_ms)

    # A request that wants a place

    def place_now(self, claim: Claim) -> Placement | set[Obstacle]:
        """A place at once, where it is the claim's turn and there is room; else what keeps it from one."""
        now_ms = self._clock.now_ms()
        chosen = self._choose(claim, now_ms)
        if not isinstance(chosen, Chosen):
            return chosen
        if not self.line:
            permit = self._permit(chosen.state, now_ms)
            return self._take(claim, chosen, self.line.charge(claim, now_ms), permit, now_ms)
        answer = self.line.enter(claim, now_ms)
        self.dispatch()
        if answer.done() and isinstance(placement := answer.result(), Placement):
            return placement
        self.line.remove(claim, now_ms, was_last=True)
        return {"queue"}

    def place_again(self, claim: Claim, avoid: str, follows: Placement | None) -> Placement | set[Obstacle]:
        """A place past the line, for one that has waited, on another engine than `avoid`, which has failed it."""
        now_ms = self._clock.now_ms()
        chosen = self._choose(claim, now_ms, avoid)
        if not isinstance(chosen, Chosen):
            return chosen
        if follows is not None and follows.is_of(self):
            permit = follows.hand_over()
        else:
            if follows is not None:
                follows.close(now_ms)
            permit = self._permit(chosen.state, now_ms)
        # Its prompt is charged already; of its output what it will have got.
        charged = Waiting(claim.number, claim.tenant, claim.priority_class, 0)
        return self._take(claim, chosen, charged, permit, now_ms)

    def join(self, claim: Claim) -> Answer:
        """Wait in the line. Whoever is cancelled meanwhile must `leave`."""
        now_ms = self._clock.now_ms()
        answer = self.line.enter(claim, now_ms)
        self._watch(now_ms)
        return answer

    def leave(self, claim: Claim) -> None:
        """A claim waits no more: its client left, or its deadline is over. A place that it was just given is back."""
        now_ms = self._clock.now_ms()
        wait = claim.wait
        if wait is not None and wait.answer.done() and not wait.answer.cancelled():
            placement = wait.answer.result()
            if isinstance(placement, Placement):
                placement.end("ignored", now_ms)
                placement.close(now_ms)
            return
        self.line.remove(claim, now_ms)
        self.dispatch()

    def shed_for(self, claim: Claim) -> bool:
        """Whether one that waits has given way to a claim: of a better class, or of a tenant with fewer waiting."""
        victim = self.line.gives_way_to(claim)
        if victim is not None:
            self.line.remove(victim, self._clock.now_ms(), shed(self, victim), was_last=True)
            # Room may have been held for it. By then the claim waits, too.
            asyncio.get_running_loop().call_soon(self.dispatch)
        return victim is not None

    def retry_in_seconds(self) -> float:
        """When who is refused now may come again."""
        wait_ms = self.line.drained_in_ms(self._clock.now_ms())
        options = self._options
        return min(max(options.retry_seconds, (wait_ms or 0) / 1000), options.longest_seconds)

    def taking(self) -> list[tuple[EngineState, KvRoom]]:
        """The engines that take work now, with their room."""
        return self.choice.survey(self._clock.now_ms(), self._clock.unix_ms()).taking

    # Serving the line

    def dispatch(self) -> None:
        """Serve whom there is room for, in order."""
        if not self.line:
            return
        now_ms = self._clock.now_ms()
        while not self._is_full() and self._serve_next(now_ms):
            pass

    def review(self) -> None:
        """Engines were cordoned, breakers opened or ceilings lowered: whom no engine will ever serve must look
        elsewhere."""
        if not self.line:
            return
        now_ms = self._clock.now_ms()
        largest = self.choice.largest_tokens(now_ms, self._clock.unix_ms())
        if largest is not None:
            for claim in self.line:
                if not self.choice.may_ever_take(claim, largest):
                    self.line.remove(claim, now_ms)
        self.dispatch()

    def dissolve(self) -> None:
        """The pool is gone, or another one by now: all that wait must look elsewhere."""
        for claim in self.line:
            self.line.remove(claim, self._clock.now_ms())

    # What placements tell

    def given_back(self, charged: Waiting, outcome: Outcome, output_tokens: int) -> None:
        """A request has left its engine."""
        self.line.correct(charged, output_tokens)
        if outcome == "success":
            self.line.expected.learn(charged.tenant, output_tokens)
        self.freed(outcome)

    def freed(self, outcome: Outcome) -> None:
        """An engine has room again, or a breaker lets more through; or one may have opened."""
        if outcome == "success":
            self.dispatch()
        else:
            self.review()

    def first_token(self, sent_ms: int, now_ms: int, sent_as: int, *, whole: bool = False) -> None:
        """A request that was sent as the `sent_as`-th of those in flight has its first token now.

        `whole`: its answer came in one piece, and nobody saw the first token of it.
        """
        if not self.concurrency.is_adaptive:
            return
        self.concurrency.observe(sent_ms, now_ms, sent_as, self.choice.waiting(), whole=whole)
        # More may be allowed from now on.
        self.dispatch()

    def judge(self, permit: Permit, outcome: Outcome, now_ms: int) -> None:
        """How a request went that a permit of the pool's breaker was given for."""
        before = self.breaker.state(now_ms)
        self.breaker.record(permit, outcome, now_ms)
        if (before, self.breaker.state(now_ms)) != ("closed", "closed"):
            self.freed(outcome)

    def standing(self) -> State:
        """The state of the pool's own breaker that holds, overrides included."""
        forced = self.forced()
        return self.breaker.state(self._clock.now_ms()) if forced is None else forced.state

    def forced(self) -> Override | None:
        """The override of the pool's own breaker that holds now."""
        return held_override(self._overrides, self._clock.unix_ms())

    def _serve_next(self, now_ms: int) -> bool:
        """Whether one of those that wait had room."""
        survey = self.choice.survey(now_ms, self._clock.unix_ms())
        chosen: Chosen | set[Obstacle] = set()

        def fits(claim: Claim, held_for: Claim | None) -> bool:
            nonlocal chosen
            chosen = self.choice.choose(survey, claim, held_for)
            return isinstance(chosen, Chosen)

        claim = self.line.next(now_ms, fits) if survey.taking else None
        if claim is None:
            return False
        wait = claim.wait
        if wait is None or not isinstance(chosen, Chosen):
            raise RuntimeError("who is served has waited, and has room")
        permit = self._permit(chosen.state, now_ms)
        self.line.answer(claim, self._take(claim, chosen, wait.waiting, permit, now_ms))
        return True

    def _choose(self, claim: Claim, now_ms: int, avoid: str = "") -> Chosen | set[Obstacle]:
        chosen = self.choice.choose(self.choice.survey(now_ms, self._clock.unix_ms(), avoid), claim)
        return {"concurrency"} if isinstance(chosen, Chosen) and self._is_full() else chosen

    def _is_full(self) -> bool:
        limit = self.concurrency.limit
        return limit is not None and self.in_flight >= limit

    def _take(
        self, claim: Claim, chosen: Chosen, charged: Waiting, pool_permit: Permit | None, now_ms: int
    ) -> Placement:
        state = chosen.state
        self.choice.used(claim, state)
        permit = state.breaker.permit(now_ms) if self._learns(state, state.breaker, now_ms) else None
        return Placement(self, chosen, claim, charged, permit, pool_permit, now_ms)

    def _permit(self, state: EngineState, now_ms: int) -> Permit | None:
        return self.breaker.permit(now_ms) if self._learns(state, self.breaker, now_ms) else None

    def _learns(self, state: EngineState, breaker: NamedBreaker, now_ms: int) -> bool:
        """A breaker that a person holds closed lets everything through and learns only while it is closed itself."""
        return state.forced(self._clock.unix_ms()) is None or breaker.state(now_ms) == "closed"

    def _expire(self, claim: Claim) -> None:
        self.line.remove(claim, self._clock.now_ms(), queue_timeout(self, claim))
        self.dispatch()

    def _watch(self, now_ms: int) -> None:
        """See to it that what nothing tells of is looked at."""
        if self._timer is None:
            after_ms = min(_LOOK_AGAIN_MS, self.choice.retry_in_ms(now_ms) or _LOOK_AGAIN_MS)
            self._timer = asyncio.get_running_loop().call_later(after_ms / 1000, self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        self.review()
        if self.line:
            self._watch(self._clock.now_ms())
