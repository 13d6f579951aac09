"""Token bucket with reservations: what a tenant may still take of a limit per minute.

A request reserves its worst case before it runs and settles what it really used. Room comes back continuously,
so there is no window at whose edge a limit doubles or a budget forgets to reset. All arithmetic is on integers:
time is integer milliseconds (any monotonic origin), amounts are tokens (or requests), and the level is kept in
1/60,000 of a token, since a limit of L per minute refills exactly L such units a millisecond.

Source: seed 1, sections 10 and 22.
"""

from __future__ import annotations

from typing import NamedTuple

MS_PER_MINUTE = 60_000


class Granted(NamedTuple):
    """The amount is reserved until it is settled or `expires_at_ms` passes."""

    amount: int
    expires_at_ms: int


class Wait(NamedTuple):
    """Not now: it fits after `wait_ms`, if nobody else takes room meanwhile."""

    wait_ms: int


class NeverFits(NamedTuple):
    """Larger than the bucket can ever hold (`capacity`)."""

    capacity: int


class BucketState(NamedTuple):
    """A bucket without its reservations. `level` and `forgiven` are in 1/60,000 of a token."""

    limit: int
    level: int
    forgiven: int
    forgiven_under: int

    def shared_out(self, limit: int, parts: int) -> BucketState:
        """One of `parts` equal parts of what is in it, for a bucket of `limit`. Together they hold no more than it."""
        level = min(limit * MS_PER_MINUTE, self.level // parts)
        return BucketState(limit, level, self.forgiven // parts, max(limit, self.forgiven_under // parts))


class Bucket:
    """One limit. Its capacity is the limit of a minute; it starts full. Reservations lapse after `lease_ms`."""

    def __init__(self, limit_per_minute: int, now_ms: int, lease_ms: int) -> None:
        self._limit = limit_per_minute
        self._lease_ms = lease_ms
        self._level = limit_per_minute * MS_PER_MINUTE
        self._updated_ms = now_ms
        # Use that a lowered limit did not hold against its tenant, and the limit that had allowed it (see `set_limit`).
        self._forgiven = 0
        self._forgiven_under = limit_per_minute
        self._reservations: dict[str, Granted] = {}

    @classmethod
    def restored(cls, state: BucketState, now_ms: int, lease_ms: int) -> Bucket:
        """A bucket as it was, with nothing reserved."""
        bucket = cls(state.limit, now_ms, lease_ms)
        bucket._level, bucket._forgiven, bucket._forgiven_under = state[1:]
        return bucket

    @property
    def capacity(self) -> int:
        return self._limit

    def state(self, now_ms: int) -> BucketState:
        self._advance(now_ms)
        return BucketState(self._limit, self._level, self._forgiven, self._forgiven_under)

    def obstacle(self, amount: int, now_ms: int) -> Wait | NeverFits | None:
        """Why `amount` (≥ 0) cannot be taken now; None where it can. Nothing is taken."""
        self._advance(now_ms)
        missing = amount * MS_PER_MINUTE - self._level
        if amount > self._limit or (missing > 0 and self._limit == 0):
            return NeverFits(self._limit)
        return Wait(-(-missing // self._limit)) if missing > 0 else None

    def reserve(self, request_id: str, amount: int, now_ms: int) -> Granted | Wait | NeverFits:
        """Take `amount` (≥ 0) for a request. Asking again for a live id answers the same grant and takes nothing."""
        self._advance(now_ms)
        if held := self._reservations.get(request_id):
            return held
        if obstacle := self.obstacle(amount, now_ms):
            return obstacle
        granted = Granted(amount, self._updated_ms + self._lease_ms)
        self._reservations[request_id] = granted
        self._level -= amount * MS_PER_MINUTE
        return granted

    def take(self, amount: int, now_ms: int) -> Wait | NeverFits | None:
        """Take `amount` (≥ 0) for good; else why it cannot be taken now."""
        if obstacle := self.obstacle(amount, now_ms):
            return obstacle
        self._level -= amount * MS_PER_MINUTE
        return None

    def settle(self, request_id: str, used: int, now_ms: int) -> bool:
        """Replace a reservation by what was used: less gives back, more takes a debt that refills before new grants.

        Only the first settlement counts. False when the id is unknown: settled before, or expired.
        """
        self._advance(now_ms)
        held = self._reservations.pop(request_id, None)
        if held is None:
            return False
        self._raise_level((held.amount - used) * MS_PER_MINUTE)
        return True

    def set_limit(self, limit_per_minute: int, now_ms: int) -> None:
        """Change the limit and keep the used part, so that lowering bites at once and raising gives room at once.

        A change never makes a debt, nor deepens one: use that was within the old limit is held against the new
        one for at most a full bucket, else a tenant lowered from 1,000,000 to 100 would wait for days. What that
        forgives is remembered and taken off when the limit rises again, so that going down and up gives nothing. It
        fades as fast as the higher limit would have refilled beyond the lower one: within a minute.
        """
        self._advance(now_ms)
        change = (limit_per_minute - self._limit) * MS_PER_MINUTE
        if self._forgiven == 0:
            self._forgiven_under = self._limit
        if change < 0:
            level = max(self._level + change, min(self._level, 0))
            self._forgiven += level - (self._level + change)
        else:
            again = min(self._forgiven, change)
            level = self._level + change - again
            self._forgiven -= again
        self._level, self._limit = level, limit_per_minute

    def available(self, now_ms: int) -> int:
        """Whole tokens that a reservation could take now; 0 while in debt."""
        self._advance(now_ms)
        return max(0, self._level // MS_PER_MINUTE)

    def full_in_ms(self, now_ms: int) -> int:
        """Time until the bucket is full again if nothing is taken; 0 for a limit of 0."""
        self._advance(now_ms)
        missing = self._limit * MS_PER_MINUTE - self._level
        return -(-missing // self._limit) if self._limit else 0

    def _advance(self, now_ms: int) -> None:
        # A clock that stands still or steps back gives nothing and takes nothing.
        elapsed = now_ms - self._updated_ms
        if elapsed <= 0:
            return
        self._updated_ms += elapsed
        self._raise_level(elapsed * self._limit)
        self._forgiven = max(0, self._forgiven - elapsed * max(0, self._forgiven_under - self._limit))
        # All leases are of one length, so the reservations stand in the order of their expiry.
        while self._reservations:
            oldest, held = next(iter(self._reservations.items()))
            if held.expires_at_ms > self._updated_ms:
                break
            del self._reservations[oldest]
            self._raise_level(held.amount * MS_PER_MINUTE)

    def _raise_level(self, by: int) -> None:
        """What does not fit into the bucket makes good for what was forgiven; the rest is lost."""
        level = self._level + by
        self._level = min(self._limit * MS_PER_MINUTE, level)
        self._forgiven = max(0, self._forgiven - (level - self._level))
