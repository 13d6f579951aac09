"""A request's place on one engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.pools.choice import Chosen
from policy.breaker import Outcome, Permit
from policy.fairness import Waiting

if TYPE_CHECKING:
    from gateway.pools.claim import Claim
    from gateway.pools.pool import PoolState

# Of the time that an answer took: what its engine made meanwhile is not known.
_UNREAD_SHARE = 0.1


class Placement:
    """What one request holds of an engine and its pool. `end` gives it back; only the first call counts.

    The engine's breaker hears of each attempt, the pool's of the request: what another engine of it served after all is
    no failure of the pool, so that one bad engine does not take its whole pool with it. So the pool's is told by
    `close`, once no attempt follows.
    """

    __slots__ = (
        "_charged", "_claim", "_ended", "_engine_permit", "_held_by", "_outcome", "_pool_permit", "_sent_as",
        "_sent_ms", "_told_first_token", "chosen", "engine", "pool", "state",
    )  # fmt: skip

    def __init__(
        self,
        held_by: PoolState,
        chosen: Chosen,
        claim: Claim,
        charged: Waiting,
        engine_permit: Permit | None,
        pool_permit: Permit | None,
        now_ms: int,
    ) -> None:
        """`charged`: what the queue has counted for it."""
        state = chosen.state
        self.pool, self.engine, self.state, self.chosen = held_by.name, state.engine, state, chosen
        self._charged = charged
        self._held_by, self._claim = held_by, claim
        self._engine_permit, self._pool_permit = engine_permit, pool_permit
        self._outcome: Outcome = "ignored"
        self._ended = self._told_first_token = False
        state.reserved_tokens += claim.tokens
        state.sequences += claim.sequences
        state.in_flight += 1
        held_by.in_flight += 1
        self._sent_ms, self._sent_as = now_ms, held_by.in_flight

    def first_token(self, now_ms: int) -> None:
        """The first token of a stream has come. Only the first call counts."""
        if self._told_first_token:
            return
        self._told_first_token = True
        self._held_by.first_token(self._sent_ms, now_ms, self._sent_as)
        self._pass_probes(now_ms)

    def answered(self, output_tokens: int, sequences: int, now_ms: int, unread_seconds: float = 0) -> None:
        """Its answer is there. Where its client was waited for (`unread_seconds`), that says little of the engine."""
        took_ms = now_ms - self._sent_ms
        if unread_seconds * 1000 <= took_ms * _UNREAD_SHARE:
            self._held_by.pace.learn(output_tokens / sequences, took_ms)

    def unseen_output(self, sequences: int, most: int, now_ms: int) -> int:
        """What an engine has made by now of an answer that nobody has seen; `most` and `sequences` were asked for."""
        return sequences * min(most, self._held_by.pace.tokens_in(now_ms - self._sent_ms))

    def end(self, outcome: Outcome, now_ms: int) -> None:
        if self._ended:
            return
        self._ended = True
        claim, state = self._claim, self.state
        state.reserved_tokens -= claim.tokens
        state.sequences -= claim.sequences
        state.in_flight -= 1
        self._held_by.in_flight -= 1
        self._outcome = outcome
        self._tell_engine(outcome, now_ms)
        if outcome == "success" and not self._told_first_token:
            # Without output tokens the answer is what was waited for.
            self._held_by.first_token(self._sent_ms, now_ms, self._sent_as, whole=claim.output_tokens > 0)
        self._held_by.given_back(self._charged, outcome, claim.used_tokens()[1])
        if state.pool is not None and state.pool is not self._held_by:
            # The engine is another pool's by now, and so is the room.
            state.pool.freed(outcome)
        # It leads back to the request, which holds this (see `Exchange.close`).
        del self._claim

    def tell(self, outcome: Outcome, now_ms: int) -> None:
        """Tell the breakers before the end, which then tells them no more."""
        self._outcome = outcome
        self._tell_engine(outcome, now_ms)
        self.close(now_ms)
        self._held_by.freed(outcome)

    def is_of(self, pool: PoolState) -> bool:
        return self._held_by is pool

    def hand_over(self) -> Permit | None:
        """Another attempt follows in the same pool, and answers for this one too: by its permit."""
        permit, self._pool_permit = self._pool_permit, None
        return permit

    def close(self, now_ms: int) -> None:
        """No attempt follows. Only the first call counts."""
        permit, self._pool_permit = self._pool_permit, None
        if permit is not None:
            self._held_by.judge(permit, self._outcome, now_ms)

    def _pass_probes(self, now_ms: int) -> None:
        """What probes are for is shown by now; a stream may go on for minutes, in which few others would be let in."""
        of_engine = self._engine_permit is not None and self._engine_permit.probe_round > 0
        of_pool = self._pool_permit is not None and self._pool_permit.probe_round > 0
        if of_engine:
            self._tell_engine("success", now_ms)
        if of_pool:
            self._outcome = "success"
            self.close(now_ms)
        if of_engine or of_pool:
            self._held_by.freed("success")

    def _tell_engine(self, outcome: Outcome, now_ms: int) -> None:
        permit, self._engine_permit = self._engine_permit, None
        if permit is not None:
            self.state.breaker.record(permit, outcome, now_ms)
