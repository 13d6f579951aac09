"""A tenant's token budget of a calendar day: what is reserved and what was used of it.

A request counts to the day on which it was admitted. Times are epoch milliseconds.
"""

from __future__ import annotations

from typing import NamedTuple

from policy.limits import Day, day_of
from wire.snapshot import Tenant

_DAY_MS = 86_400_000


class DayShare(NamedTuple):
    """Tokens that a request holds of a day. `days`: how many days the budget had begun before."""

    tokens: int
    days: int


class DayBudget:
    """What was used of the day. `used_tokens` and `reserved_tokens` are of `day`, and begin anew with the next."""

    __slots__ = ("_days", "day", "reserved_tokens", "used_tokens")

    def __init__(self, day: Day, used_tokens: int = 0) -> None:
        self.day = day
        self.used_tokens = used_tokens
        self.reserved_tokens = 0
        self._days = 0

    @property
    def taken_tokens(self) -> int:
        return self.used_tokens + self.reserved_tokens

    def turn(self, tenant: Tenant, unix_ms: int) -> None:
        """Begin a new day once this one is over.

        Neither a clock that steps back nor a time zone with another day gives anything back: the day waits for its
        time, or gets other ends. Only a clock that had been ahead by more than a day is taken to have been wrong.
        """
        if unix_ms >= self.day.end_ms:
            self.used_tokens = self.reserved_tokens = 0
            self._days += 1
        elif 0 < self.day.start_ms - unix_ms <= _DAY_MS:
            return
        self.day = day_of(tenant, unix_ms)

    def reserve(self, tokens: int, budget: int | None) -> DayShare | None:
        """Take `tokens`, or None where what is left of `budget` (None: no bound) does not hold them."""
        if budget is not None and self.taken_tokens + tokens > budget:
            return None
        self.reserved_tokens += tokens
        return DayShare(tokens, self._days)

    def settle(self, share: DayShare, used_tokens: int) -> None:
        """Replace a reservation by what was used, once. Of a day that is over nothing is counted any more."""
        if share.days != self._days:
            return
        self.reserved_tokens -= share.tokens
        self.used_tokens += used_tokens
