"""What one request holds of its tenant's limits, and what a gateway has taken of them without the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from policy.budget import DayShare

if TYPE_CHECKING:
    from gateway.quota.tenant import TenantQuota
    from gateway.quotas import Quotas

# `alone`: granted here. `told`: the Redis was told of it, and has not answered. `together`: it is held there.
Held = Literal["alone", "told", "together"]


class QuotaLease:
    """What one admitted request holds. `settle` gives it back; only the first call counts."""

    __slots__ = (
        "_quotas", "counted_requests", "counted_tokens", "day_end_ms", "held", "id", "quota", "sequences", "settled",
        "share", "tokens", "until_ms", "used",
    )  # fmt: skip

    def __init__(
        self, quotas: Quotas, quota: TenantQuota, lease_id: str, tokens: int, sequences: int, until_ms: int, held: Held
    ) -> None:
        self._quotas, self.quota, self.id = quotas, quota, lease_id
        self.tokens, self.sequences, self.until_ms, self.held = tokens, sequences, until_ms, held
        self.share: DayShare | None = None
        self.day_end_ms = 0
        # Whether it is part of this gateway's use alone.
        self.counted_tokens = self.counted_requests = False
        self.settled = False
        # (tokens, requests), once it is settled.
        self.used = (0, 0)

    def settle(self, used_tokens: int, *, reached_engine: bool) -> None:
        """Replace the reservation by what was used. A request that reached no engine is not counted as one."""
        if self.settled:
            return
        self.settled = True
        self.used = (used_tokens, int(reached_engine))
        self._quotas.settle(self)


class AloneUse:
    """What this gateway has taken of a tenant's limits alone since it began; `day` of the day until `day_end_ms`."""

    __slots__ = ("day", "day_end_ms", "requests", "tokens")

    def __init__(self) -> None:
        self.tokens = self.requests = self.day = self.day_end_ms = 0

    def add(self, lease: QuotaLease, tokens: int, requests: int) -> None:
        """Of a limit that the tenant did not have when the lease was taken, nothing."""
        if lease.counted_tokens:
            self.tokens += tokens
        if lease.counted_requests:
            self.requests += requests
        if lease.share and lease.day_end_ms == self.day_end_ms:
            self.day += tokens

    def begin_day(self, day_end_ms: int) -> None:
        if day_end_ms != self.day_end_ms:
            self.day, self.day_end_ms = 0, day_end_ms

    def numbers(self) -> tuple[int, int, int, int]:
        return self.tokens, self.requests, self.day, self.day_end_ms
