"""Quotas of all tenants: tokens per minute, requests per minute, parallel sequences.

The state outlives configuration changes. Time is monotonic milliseconds.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable

from msgspec import UNSET, UnsetType

from gateway.refusals import Refused, asked_for
from gateway.view import View
from policy.bucket import Bucket, Granted, NeverFits, Wait
from policy.quota import gateway_share

Header = tuple[bytes, bytes]


class _TenantQuota:
    __slots__ = ("parallel", "parallel_limit", "rpm", "tpm")

    def __init__(self) -> None:
        self.tpm: Bucket | None = None
        self.rpm: Bucket | None = None
        self.parallel_limit: int | None = None
        self.parallel = 0


class QuotaLease:
    """What one admitted request holds. `settle` gives it back; only the first call counts."""

    __slots__ = ("_id", "_quotas", "_sequences", "_tenant", "settled")

    def __init__(self, quotas: Quotas, tenant: _TenantQuota, lease_id: str, sequences: int) -> None:
        self._quotas, self._tenant, self._id, self._sequences = quotas, tenant, lease_id, sequences
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


class Quotas:
    """The only holder of buckets. `lease_ms`: a reservation that nobody settles lapses after it."""

    def __init__(self, now_ms: Callable[[], int], lease_ms: int) -> None:
        self.now_ms = now_ms
        self._lease_ms = lease_ms
        self._tenants: dict[str, _TenantQuota] = {}
        self._ids = itertools.count()

    def configure(self, view: View, live_gateways: int) -> None:
        """Take the limits of a view, divided by the gateways alive. They hold from the next request on."""
        now_ms = self.now_ms()

        def bucket(old: Bucket | None, limit: int | UnsetType) -> Bucket | None:
            if limit is UNSET:
                return None
            share = gateway_share(limit, live_gateways)
            if old is None:
                return Bucket(share, now_ms, self._lease_ms)
            if old.capacity != share:
                old.set_limit(share, now_ms)
            return old

        for name, tenant in view.snapshot.tenants.items():
            quota = self._tenants.setdefault(name, _TenantQuota())
            quota.tpm = bucket(quota.tpm, tenant.tpm_limit)
            quota.rpm = bucket(quota.rpm, tenant.rpm_limit)
            limit = tenant.max_parallel_requests
            quota.parallel_limit = None if limit is UNSET else gateway_share(limit, live_gateways)
        for name in self._tenants.keys() - view.snapshot.tenants.keys():
            del self._tenants[name]

    def largest_tokens(self, tenant: str) -> int | None:
        """The most tokens that one request of the tenant can ever reserve here; None without a limit.

        Raises: Refused (`unknown_key`).
        """
        quota = self._quota(tenant)
        return None if quota.tpm is None else quota.tpm.capacity

    def take(self, tenant: str, tokens: int, sequences: int) -> QuotaLease:
        """Reserve all three limits or none. What can never fit is named before what only has to wait.

        Raises: Refused (`unknown_key`, `never_fits`, `max_parallel_requests`, `rpm_limit`, `tpm_limit`).
        """
        quota = self._quota(tenant)
        lease_id = str(next(self._ids))
        refusals = [
            refusal
            for refusal in (
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
            raise next((refusal for refusal in refusals if refusal.reason == "never_fits"), refusals[0])
        quota.parallel += sequences
        return QuotaLease(self, quota, lease_id, sequences)

    def _quota(self, tenant: str) -> _TenantQuota:
        quota = self._tenants.get(tenant)
        if quota is None:
            raise Refused("unknown_key", "the key's tenant was removed while the request was read")
        return quota

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
        quota = self._tenants.get(tenant)
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

    Moved up by at most 20 % of the wait at random, so that clients do not come back together. Only where no whole
    second lies within those 20 % is the wait rounded up beyond them.
    """
    jittered = seconds * (1 + 0.2 * random.random())  # noqa: S311 - spreads load, guards nothing
    return max(1, math.ceil(seconds), int(jittered))
