"""Those that wait for a place in one pool: in which order, how long they may, and how long it will take.

Source: seed 1, sections 5, 6 and 8.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping

from msgspec import UNSET

from gateway.pools.claim import Claim, Wait
from gateway.pools.expected import ExpectedOutput
from gateway.pools.placement import Placement
from gateway.refusals import Refused
from policy.fairness import FairQueue, Waiting
from policy.overtaking import Overtaking
from policy.places import Places
from policy.queue import queue_cap, wait_ms
from policy.service_rate import ServiceRate
from wire.snapshot import Pool, PriorityClass

Answer = asyncio.Future[Placement | Refused | None]


class Line:
    """The claims that wait. `expire` is called with each whose time to wait is over. Use it inside a running loop."""

    def __init__(self, pool: Pool, overtakings: int, now_ms: int, expire: Callable[[Claim], None]) -> None:
        self.expected = ExpectedOutput()
        self._pool, self._expire = pool, expire
        self._classes: Mapping[str, PriorityClass] = {}
        self._queue = FairQueue({}, {})
        self._overtaking = Overtaking(self._queue, overtakings)
        self._places = Places(self._queue)
        self._rate = ServiceRate(now_ms)
        self._claims: dict[str, Claim] = {}

    def configure(
        self, pool: Pool, classes: Mapping[str, PriorityClass], weights: Mapping[str, int], now_ms: int
    ) -> None:
        """Those that wait are judged by this from now on; one that is too long now only shrinks."""
        self._pool, self._classes = pool, classes
        self._queue.configure(classes, weights)
        self.expected.forget_others(weights)
        for claim in self._claims.values():
            self._arm(claim, now_ms)

    def __len__(self) -> int:
        return len(self._claims)

    def __iter__(self) -> Iterator[Claim]:
        return iter(tuple(self._claims.values()))

    @property
    def waiting_tokens(self) -> int:
        """Prompt and expected output of all that wait."""
        return self._queue.waiting_tokens

    @property
    def has_room(self) -> bool:
        return len(self._claims) < self._pool.queue_cap

    # Coming and going

    def charge(self, claim: Claim, now_ms: int) -> Waiting:
        """Serve a claim that did not have to wait: only where none waits. What was charged for it."""
        waiting = self._waiting(claim, now_ms)
        self._queue.serve_at_once(waiting)
        return waiting

    def correct(self, charged: Waiting, output_tokens: int) -> None:
        """Charge the output that a served claim really got in place of what was expected."""
        self._queue.charge(charged, output_tokens)

    def enter(self, claim: Claim, now_ms: int) -> Answer:
        answer: Answer = asyncio.get_running_loop().create_future()
        if claim.waits_since_ms is None:
            claim.waits_since_ms = now_ms
        waiting = self._waiting(claim, now_ms)
        claim.wait = Wait(waiting, answer)
        self._claims[claim.number] = claim
        self._queue.push(waiting, now_ms)
        self._places.entered(waiting)
        self._arm(claim, now_ms)
        self._rate.waiting(True, now_ms)
        return answer

    def remove(
        self, claim: Claim, now_ms: int, answer: Placement | Refused | None = None, *, was_last: bool = False
    ) -> None:
        """It waits no more, and is told why. `was_last`: it was the newest of its tenant."""
        if self._claims.pop(claim.number, None) is not None:
            waiting = self._queue.remove(claim.number)
            if waiting is not None:
                self._places.left(waiting, served=False, was_last=was_last)
            self._overtaking.forget(claim.number)
            self._rate.waiting(bool(self._claims), now_ms)
        self.answer(claim, answer)

    def next(self, now_ms: int, fits: Callable[[Claim, Claim | None], bool]) -> Claim | None:
        """The claim to serve now, charged and out of the line; whoever takes it must `answer` it.

        `fits(claim, held_for)`: whether there is room for a claim now, besides what is held for another.
        """

        def fit(waiting: Waiting, held_for: Waiting | None) -> bool:
            claim = self._claims[waiting.request_id]
            if claim.wait is None or claim.wait.answer.done():
                # Cancelled a moment ago: its own task takes it out.
                return False
            return fits(claim, None if held_for is None else self._claims[held_for.request_id])

        waiting = self._overtaking.next(now_ms, fit)
        if waiting is None:
            return None
        self._rate.served(now_ms)
        self._places.left(waiting, served=True)
        claim = self._claims.pop(waiting.request_id)
        self._rate.waiting(bool(self._claims), now_ms)
        return claim

    def answer(self, claim: Claim, answer: Placement | Refused | None) -> None:
        wait = claim.wait
        if wait is None:
            return
        if wait.timer is not None:
            wait.timer.cancel()
        if not wait.answer.done():
            wait.answer.set_result(answer)

    def gives_way_to(self, claim: Claim) -> Claim | None:
        """Which one to shed for a claim when the line is full; None: refuse the claim."""
        waiting = self._queue.gives_way_to(claim.priority_class, claim.tenant)
        return None if waiting is None else self._claims[waiting.request_id]

    # How long

    def ttl_ms(self, claim: Claim) -> int:
        """How long a claim may wait: what its class says, else what the pool does."""
        described = self._classes.get(claim.priority_class)
        if described is not None and described.queue_ttl_ms is not UNSET:
            return described.queue_ttl_ms
        return self._pool.queue_ttl_ms

    def late_by_ms(self, claim: Claim, now_ms: int) -> int | None:
        """By how much a claim that enters would come too late, for its time to wait or its deadline; None: it need not.

        Told only where it would be late behind those alone that are known to go before it (policy/places.py), and at
        the highest rate that what was measured allows for (policy/service_rate.py): who comes later and goes first only
        makes it later.
        """
        rate = self._rate.at_most_per_second(now_ms)
        if rate is None:
            return None
        left_ms = min(self._expires_ms(claim, now_ms), claim.deadline_ms) - now_ms
        in_time = queue_cap(rate, left_ms)
        if len(self._claims) < in_time:
            return None
        before = self._places.before(claim.priority_class, claim.tenant, now_ms, self.ttl_ms(claim))
        return None if before < in_time else max(1, (wait_ms(before + 1, rate) or 0) - left_ms)

    def drained_in_ms(self, now_ms: int) -> int | None:
        """When all that wait will have been served, by Little's law; None where too few were served lately to say."""
        rate = self._rate.per_second(now_ms)
        return None if rate is None else wait_ms(len(self._claims), rate)

    def _waiting(self, claim: Claim, now_ms: int) -> Waiting:
        expected = self.expected.of(claim.tenant, claim.output_tokens)
        ttl_ms = self.ttl_ms(claim)
        # Half of its time to wait is for others; the rest must do for room to become free.
        hold_from_ms = self._expires_ms(claim, now_ms) - ttl_ms // 2
        return Waiting(claim.number, claim.tenant, claim.priority_class, claim.prompt_tokens, expected, hold_from_ms)

    def _expires_ms(self, claim: Claim, now_ms: int) -> int:
        since_ms = now_ms if claim.waits_since_ms is None else claim.waits_since_ms
        return since_ms + self.ttl_ms(claim)

    def _arm(self, claim: Claim, now_ms: int) -> None:
        wait = claim.wait
        if wait is None:
            return
        if wait.timer is not None:
            wait.timer.cancel()
        seconds = max(0, self._expires_ms(claim, now_ms) - now_ms) / 1000
        wait.timer = asyncio.get_running_loop().call_later(seconds, self._expire, claim)
