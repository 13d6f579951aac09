"""Quotas of all tenants: tokens and requests per minute, parallel sequences, tokens a calendar day.

The state outlives configuration changes. Buckets refill by monotonic milliseconds; which limits hold, and when a day
ends, is read off the wall clock at each request.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from gateway.budgets import KeptDay
from gateway.refusals import Refused, asked_for
from gateway.view import View
from policy.bucket import Bucket, Granted, NeverFits, Wait
from policy.budget import DayBudget, DayShare
from policy.limits import Day, day_of, limits_at, next_change_ms
from policy.quota import gateway_share
from wire.snapshot import Tenant

Header = tuple[bytes, bytes]
# Spreading clients over a fifth of a day's wait would cost them hours.
_JITTER_MAX_SECONDS = 60.0


class _TenantQuota:
    """`tenant` and `live_gateways`: what the limits were worked out of, for `since_ms` to before `until_ms`."""

    __slots__ = (
        "budget", "day", "live_gateways", "parallel", "parallel_limit", "rpm", "since_ms", "tenant", "tpm", "until_ms",
    )  # fmt: skip

    def __init__(self) -> None:
        self.tenant = Tenant()
        # Nothing is worked out yet.
        self.live_gateways = self.since_ms = 0
        self.until_ms: float = 0
        self.tpm: Bucket | None = None
        self.rpm: Bucket | None = None
        self.parallel_limit: int | None = None
        self.parallel = 0
        # Counted from the first budget on, and also while none is set.
        self.budget: int | None = None
        self.day: DayBudget | None = None

    def is_of(self, tenant: Tenant, live_gateways: int, unix_ms: int) -> bool:
        """Whether the limits hold still. A clock that was set back may show hours in which other ones do."""
        return (
            self.since_ms <= unix_ms < self.until_ms
            and self.live_gateways == live_gateways
            # A new configuration holds its tenants anew, nearly all of them as they were.
            and (self.tenant is tenant or self.tenant == tenant)
        )


class QuotaLease:
    """What one admitted request holds. `settle` gives it back; only the first call counts."""

    __slots__ = ("_id", "_quotas", "_sequences", "_share", "_tenant", "settled")

    def __init__(
        self, quotas: Quotas, tenant: _TenantQuota, lease_id: str, sequences: int, share: DayShare | None
    ) -> None:
        self._quotas, self._tenant, self._id, self._sequences = quotas, tenant, lease_id, sequences
        self._share = share
        self.settled = False

    def settle(self, used_tokens: int, *, reached_engine: bool) -> None:
        """Replace the reservation by what was used. A request that reached no engine is not counted as one."""
        if self.settled:
            return
        self.settled = True
        now_ms = self._quotas.now_ms()
        self._tenant.parallel -= self._sequences
        if self._tenant.tpm:
            self._tenant.tpm.settle(self._id, used_tokens, now_ms)
        if self._tenant.rpm:
            self._tenant.rpm.settle(self._id, int(reached_engine), now_ms)
        if self._share:
            self._quotas.settle_day(self._tenant, self._share, used_tokens)


class Quotas:
    """The only holder of buckets and budgets. `lease_ms`: a reservation that nobody settles lapses after it.

    `kept`: what was used of tenants' days before this process.
    """

    def __init__(
        self,
        now_ms: Callable[[], int],
        unix_ms: Callable[[], int],
        lease_ms: int,
        kept: Mapping[str, KeptDay] | None = None,
    ) -> None:
        self.now_ms, self._unix_ms = now_ms, unix_ms
        self._lease_ms = lease_ms
        self._kept = dict(kept or {})
        self._configured: Mapping[str, Tenant] = {}
        self._live_gateways = 1
        # Of those that have asked for something.
        self._tenants: dict[str, _TenantQuota] = {}
        self._ids = itertools.count()
        self._days_changed = False

    def configure(self, view: View, live_gateways: int) -> None:
        """Take the limits of a view, divided by the gateways alive. They hold from the next request on."""
        self._configured, self._live_gateways = view.snapshot.tenants, live_gateways
        for name in self._tenants.keys() - self._configured.keys():
            del self._tenants[name]

    def changed_days(self) -> dict[str, KeptDay] | None:
        """What is taken of the days of all tenants with a budget; None if that is as at the last call."""
        if not self._days_changed:
            return None
        self._days_changed = False
        days = {name: kept for name, kept in self._kept.items() if name in self._configured}
        for name, quota in self._tenants.items():
            if day := quota.day:
                days[name] = KeptDay(day.day.start_ms, day.day.end_ms, day.taken_tokens)
        return days

    def largest_tokens(self, tenant: str) -> int | None:
        """The most tokens that one request of the tenant can ever reserve here; None without a limit.

        Raises: Refused (`unknown_key`).
        """
        quota = self._quota(tenant)
        capacity = None if quota.tpm is None else quota.tpm.capacity
        return min((limit for limit in (capacity, quota.budget) if limit is not None), default=None)

    def take(self, tenant: str, tokens: int, sequences: int) -> QuotaLease:
        """Reserve of all limits or of none.

        What can never fit is named before what only has to wait, and a day's end before waits of a minute at most.
        Raises: Refused (`unknown_key`, `never_fits`, `daily_token_budget`, `max_parallel_requests`, `rpm_limit`,
        `tpm_limit`).
        """
        quota = self._quota(tenant)
        lease_id = str(next(self._ids))
        share = quota.day.reserve(tokens, quota.budget) if quota.day else None
        refusals = [
            refusal
            for refusal in (
                self._day_refusal(quota, tokens) if quota.day and not share else None,
                self._parallel_refusal(quota, sequences),
                self._reserve(quota.rpm, lease_id, 1, "rpm_limit", "request"),
                self._reserve(quota.tpm, lease_id, tokens, "tpm_limit", "token"),
            )
            if refusal is not None
        ]
        if refusals:
            for bucket in (quota.rpm, quota.tpm):
                if bucket:
                    bucket.settle(lease_id, 0, self.now_ms())
            if quota.day and share:
                quota.day.settle(share, 0)
            raise next((refusal for refusal in refusals if refusal.reason == "never_fits"), refusals[0])
        quota.parallel += sequences
        self._days_changed |= share is not None
        return QuotaLease(self, quota, lease_id, sequences, share)

    def settle_day(self, quota: _TenantQuota, share: DayShare, used_tokens: int) -> None:
        """Replace what a lease reserved of its tenant's day by what was used."""
        if quota.day:
            quota.day.settle(share, used_tokens)
            self._days_changed = True

    def _quota(self, tenant: str) -> _TenantQuota:
        quota = self._current(tenant)
        if quota is None:
            raise Refused("unknown_key", "the key's tenant was removed while the request was read")
        return quota

    def _current(self, name: str) -> _TenantQuota | None:
        """The tenant's quota with the limits and the day of this moment."""
        tenant = self._configured.get(name)
        if tenant is None:
            return None
        quota = self._tenants.get(name) or self._tenants.setdefault(name, _TenantQuota())
        unix_ms = self._unix_ms()
        if not quota.is_of(tenant, self._live_gateways, unix_ms):
            quota.tenant, quota.live_gateways = tenant, self._live_gateways
            self._work_out(name, quota, unix_ms)
        return quota

    def _work_out(self, name: str, quota: _TenantQuota, unix_ms: int) -> None:
        """The gateway's share of the limits that hold now, and until when they do."""
        limits, now_ms = limits_at(quota.tenant, unix_ms), self.now_ms()

        def share(limit: int | None) -> int | None:
            return None if limit is None else gateway_share(limit, quota.live_gateways)

        quota.tpm = self._bucket(quota.tpm, share(limits.tpm_limit), now_ms)
        quota.rpm = self._bucket(quota.rpm, share(limits.rpm_limit), now_ms)
        quota.parallel_limit = share(limits.max_parallel_requests)
        quota.budget = share(limits.daily_token_budget)
        if quota.day is None and quota.budget is not None:
            quota.day = self._day(name, quota.tenant, unix_ms)
        ends = [next_change_ms(quota.tenant, unix_ms)]
        if quota.day:
            quota.day.turn(quota.tenant, unix_ms)
            ends.append(quota.day.day.end_ms)
        quota.since_ms = unix_ms
        quota.until_ms = min((end for end in ends if end is not None), default=math.inf)

    def _bucket(self, old: Bucket | None, limit: int | None, now_ms: int) -> Bucket | None:
        if limit is None:
            return None
        if old is None:
            return Bucket(limit, now_ms, self._lease_ms)
        if old.capacity != limit:
            old.set_limit(limit, now_ms)
        return old

    def _day(self, name: str, tenant: Tenant, unix_ms: int) -> DayBudget:
        kept = self._kept.pop(name, None)
        if kept is None:
            return DayBudget(day_of(tenant, unix_ms))
        return DayBudget(Day(kept.start_ms, kept.end_ms), kept.taken_tokens)

    def _day_refusal(self, quota: _TenantQuota, tokens: int) -> Refused | None:
        budget, day = quota.budget, quota.day
        if budget is None or day is None:
            return None
        asked = f"{asked_for(tokens, 'token')} (largest output included)"
        if tokens > budget:
            message = f"{asked}; the limit is {budget} a day"
            return Refused("never_fits", message, param="max_tokens", numbers={"asked": tokens, "limit": budget})
        left = max(0, budget - day.taken_tokens)
        ends = datetime.fromtimestamp(day.day.end_ms // 1000, UTC).isoformat().replace("+00:00", "Z")
        return Refused(
            "daily_token_budget",
            f"{asked} and {left} of the day's {budget} tokens are left; "
            f"the day ends at {ends} (midnight in {quota.tenant.time_zone})",
            retry_after_seconds=(day.day.end_ms - self._unix_ms()) / 1000,
            numbers={"asked": tokens, "left": left, "limit": budget},
        )

    def _parallel_refusal(self, quota: _TenantQuota, sequences: int) -> Refused | None:
        limit = quota.parallel_limit
        if limit is None or quota.parallel + sequences <= limit:
            return None
        asked = asked_for(sequences, "sequence")
        if sequences > limit:
            message = f"{asked} and at most {limit} may run at once"
            return Refused("never_fits", message, param="n", numbers={"asked": sequences, "limit": limit})
        # When a running sequence ends is not known; a second is the shortest that the header can say.
        message = f"{asked} and {quota.parallel} of {limit} parallel sequences are running"
        numbers = {"asked": sequences, "running": quota.parallel, "limit": limit}
        return Refused("max_parallel_requests", message, retry_after_seconds=1, numbers=numbers)

    def _reserve(self, bucket: Bucket | None, lease_id: str, amount: int, reason: str, unit: str) -> Refused | None:
        if bucket is None:
            return None
        match bucket.reserve(lease_id, amount, self.now_ms()):
            case Granted():
                return None
            case NeverFits(capacity):
                asked, param = asked_for(amount, unit), None
                if unit == "token":
                    asked, param = f"{asked} (largest output included)", "max_tokens"
                message = f"{asked}; the limit is {capacity} a minute"
                return Refused("never_fits", message, param=param, numbers={"asked": amount, "limit": capacity})
            case Wait(wait_ms):
                left = bucket.available(self.now_ms())
                return Refused(
                    reason,
                    f"{asked_for(amount, unit)} and {left} of {bucket.capacity} {unit}s "
                    f"a minute are left; it fits in {wait_ms / 1000:.1f} s",
                    retry_after_seconds=wait_ms / 1000,
                    numbers={"asked": amount, "left": left, "limit": bucket.capacity},
                )

    def headers(self, tenant: str) -> list[Header]:
        """The x-ratelimit headers of what this gateway enforces; none for a limit that is not set."""
        quota = self._current(tenant)
        if quota is None:
            return []
        now_ms = self.now_ms()
        headers: list[Header] = []
        for unit, bucket in ((b"requests", quota.rpm), (b"tokens", quota.tpm)):
            if bucket:
                headers += (
                    (b"x-ratelimit-limit-" + unit, b"%d" % bucket.capacity),
                    (b"x-ratelimit-remaining-" + unit, b"%d" % bucket.available(now_ms)),
                    (b"x-ratelimit-reset-" + unit, duration(bucket.full_in_ms(now_ms)).encode()),
                )
        return headers


def duration(milliseconds: int) -> str:
    """A duration as OpenAI writes it: `850ms`, `12s`, `6m0s`, `1h0m5s`; seconds are rounded up."""
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    seconds = -(-milliseconds // 1000)
    hours, minutes = seconds // 3600, seconds // 60 % 60
    return (f"{hours}h" if hours else "") + (f"{minutes}m" if seconds >= 60 else "") + f"{seconds % 60}s"


def retry_after(seconds: float) -> int:
    """Whole seconds for Retry-After, never below the wait and at least 1.

    Moved up by at most 20 % of the wait, and a minute, at random, so that clients do not come back together. Only
    where no whole second lies within those 20 % is the wait rounded up beyond them.
    """
    spread = min(0.2 * seconds, _JITTER_MAX_SECONDS)
    jittered = seconds + spread * random.random()  # noqa: S311 - spreads load, guards nothing
    return max(1, math.ceil(seconds), int(jittered))
