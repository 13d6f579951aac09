"""Quotas of all tenants: tokens and requests per minute, parallel sequences, tokens a calendar day.

Where there is a Redis all gateways count together there (`quota.ledger`); without one, or while it is away, each holds
its share of every limit in memory. The state outlives configuration changes. Buckets refill by monotonic milliseconds;
which limits hold, and when a day ends, is read off the wall clock at each request.
"""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Callable, Mapping

from gateway.budgets import KeptDay
from gateway.quota.headers import Header, duration, ratelimit_headers, retry_after
from gateway.quota.lease import QuotaLease
from gateway.quota.ledger import NONE, Ledger, Operation, Standing
from gateway.quota.metrics import LedgerMoment
from gateway.quota.tenant import TenantQuota
from gateway.redis_link import RedisLink
from gateway.refusals import Refused
from gateway.view import View
from wire.snapshot import Tenant

__all__ = ["Header", "QuotaLease", "Quotas", "duration", "retry_after"]
_CANCEL_KEPT_MS = 60_000


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
        # Of tenants with a budget what is taken of their days, as it is kept, and whose may be another by now.
        self._days, self._days_changed = dict(kept or {}), set[str]()
        self._configured: Mapping[str, Tenant] = {}
        self._revision = 0
        self._live_gateways = 1
        # Of those that have asked for something.
        self._tenants: dict[str, TenantQuota] = {}
        self._numbers = itertools.count()
        # Clients may send one id twice: what is reserved goes by an id of this gateway's own.
        self._gateway = uuid.uuid4().hex
        self._decided_together = self._decided_alone = 0
        self.ledger: Ledger | None = None

    def count_together(self, link: RedisLink) -> None:
        """From now on count with all gateways on the link's Redis, whenever it is there."""
        self.ledger = Ledger(link, self.now_ms, lambda: self._tenants, self._rejoin)

    @property
    def is_together(self) -> bool:
        return self.ledger is not None and self.ledger.link.alive

    def _counts_together(self, tenant: str) -> bool:
        return self.ledger is not None and self.ledger.counts(tenant)

    def configure(self, view: View, live_gateways: int) -> None:
        """Take the limits of a view, divided by the gateways alive. They hold from the next request on."""
        if live_gateways != self._live_gateways:
            # What is taken of this gateway's share is another part of the whole.
            self._days_changed |= self._days.keys() & self._tenants.keys()
        self._configured, self._live_gateways = view.snapshot.tenants, live_gateways
        self._revision = view.revision
        for name in self._tenants.keys() - self._configured.keys():
            del self._tenants[name]
            self._days.pop(name, None)

    def changed_days(self) -> dict[str, KeptDay] | None:
        """What is taken of the days of all tenants with a budget; None if that is as at the last call."""
        if not self._days_changed:
            return None
        changed, self._days_changed = self._days_changed, set()
        for name in changed & self._tenants.keys():
            if day := self._tenants[name].kept_day():
                self._days[name] = day
        return {name: kept for name, kept in self._days.items() if name in self._configured}

    def largest_tokens(self, tenant: str) -> int | None:
        """The most tokens that one request of the tenant can ever reserve here; None without a limit.

        Raises: Refused (`unknown_key`).
        """
        quota = self._quota(tenant)
        if self._counts_together(tenant):
            limits = (quota.limits.tpm_limit, quota.limits.daily_token_budget)
        else:
            limits = (None if quota.tpm is None else quota.tpm.capacity, quota.budget)
        return min((limit for limit in limits if limit is not None), default=None)

    async def reserve(self, tenant: str, tokens: int, sequences: int) -> QuotaLease:
        """Reserve of all limits or of none: of all gateways together, or `take` where their Redis is not there.

        What can never fit is named before what only has to wait, and a day's end before waits of a minute at most.
        Raises: Refused (`unknown_key`, `never_fits`, `daily_token_budget`, `max_parallel_requests`, `rpm_limit`,
        `tpm_limit`).
        """
        ledger = self.ledger
        if ledger is None or not ledger.counts(tenant):
            return self.take(tenant, tokens, sequences)
        quota = self._quota(tenant)
        if not quota.has_limits:
            return self.take(tenant, tokens, sequences)
        lease = self._lease(quota, tokens, sequences)
        arguments: tuple[str | int, ...] = (
            "reserve",
            self._revision,
            *quota.terms,
            lease.id,
            tokens,
            1,
            sequences,
            self._lease_ms,
        )
        try:
            standing = await ledger.ask(tenant, arguments)
        except asyncio.CancelledError:
            self._cancel(ledger, tenant, lease)
            raise
        if standing is None:
            self._cancel(ledger, tenant, lease)
            return self.take(tenant, tokens, sequences)
        self._decided_together += 1
        self._see(quota, standing)
        if not standing.granted:
            refusal = quota.together_refusal(tokens, sequences, ledger.link.clock_ms())
            raise refusal or Refused("internal_error", "the quota ledger refused without a reason")
        lease.held = "together"
        lease.day_end_ms = standing.day_end_ms
        quota.leases[lease.id] = lease
        quota.running += sequences
        return lease

    def take(self, tenant: str, tokens: int, sequences: int) -> QuotaLease:
        """Reserve of all limits or of none, of this gateway's share. Raises as `reserve`."""
        quota = self._quota(tenant)
        self._decided_alone += 1
        now_ms = self.now_ms()
        has_redis = self.ledger is not None
        if self.ledger is not None:
            quota.go_alone(now_ms, self.ledger.lost_at_ms(tenant))
        if refusal := quota.alone_refusal(tokens, sequences, now_ms, self._clock_ms(), has_redis):
            raise refusal
        lease = self._lease(quota, tokens, sequences)
        quota.take_alone(lease, now_ms)
        if has_redis and quota.has_limits:
            quota.leases[lease.id] = lease
        self._note_day(quota, lease.share is not None)
        return lease

    def settle(self, lease: QuotaLease) -> None:
        """For `QuotaLease.settle`."""
        quota = lease.quota
        quota.running -= lease.sequences
        if lease.held == "alone":
            quota.settle_alone(lease, self.now_ms())
            quota.leases.pop(lease.id, None)
            self._note_day(quota, lease.share is not None)
        elif lease.held == "together":
            self._send_settle(lease)

    def headers(self, tenant: str) -> list[Header]:
        """The x-ratelimit headers of what is enforced here; none for a limit that is not set."""
        quota = self._current(tenant)
        if quota is None:
            return []
        now_ms = self.now_ms()
        if self._counts_together(tenant) and quota.has_limits:
            return ratelimit_headers(*quota.seen_buckets(now_ms), now_ms)
        return ratelimit_headers(quota.rpm, quota.tpm, now_ms)

    def numbers(self, tenant: str) -> dict[str, int]:
        """What is left of the limits, for the log of decisions."""
        quota = self._current(tenant)
        if quota is None:
            return {}
        together, now_ms = self._counts_together(tenant) and quota.has_limits, self.now_ms()
        requests, tokens = quota.seen_buckets(now_ms) if together else (quota.rpm, quota.tpm)
        numbers = {"counted_together": int(together)}
        if tokens:
            numbers |= {"tokens_left": tokens.available(now_ms), "tpm_limit": tokens.capacity}
        if requests:
            numbers |= {"requests_left": requests.available(now_ms), "rpm_limit": requests.capacity}
        if together and quota.seen and quota.seen.parallel_limit != NONE:
            numbers |= {"running": quota.seen.running, "max_parallel_requests": quota.seen.parallel_limit}
        elif not together and quota.parallel_limit is not None:
            numbers |= {"running": quota.running, "max_parallel_requests": quota.parallel_limit}
        return numbers

    def told(self) -> str:
        """How limits are held, in words for operators; empty where there is no Redis to speak of."""
        if self.ledger is None:
            return ""
        if self.is_together:
            apart = ", ".join(self.ledger.unreadable)
            but = f"; of {apart} by this gateway's share, for what Redis holds of them cannot be read" if apart else ""
            return f"counted together with the other gateways on Redis{but}"
        share = "all" if self._live_gateways <= 1 else f"1/{self._live_gateways}"
        return f"this gateway holds {share} of every limit, for Redis is away ({self.ledger.link.error})"

    def moment(self) -> LedgerMoment:
        ledger = self.ledger
        waiting, lapsed, unreadable = (ledger.waiting, ledger.dropped, ledger.unreadable) if ledger else (0, 0, ())
        unix_ms = self._unix_ms()
        used = ((name, quota.day_used_ratio(unix_ms)) for name, quota in self._tenants.items())
        days = {name: ratio for name, ratio in used if ratio is not None}
        decided = (self._decided_together, self._decided_alone)
        return LedgerMoment(self.is_together, *decided, waiting, lapsed, unreadable, days)

    async def close(self, seconds: float) -> None:
        """Tell what is not told yet."""
        if self.ledger is not None:
            await self.ledger.close(seconds)

    def _lease(self, quota: TenantQuota, tokens: int, sequences: int) -> QuotaLease:
        lease_id = f"{self._gateway}-{next(self._numbers):x}"
        return QuotaLease(self, quota, lease_id, tokens, sequences, self.now_ms() + self._lease_ms, "alone")

    def _see(self, quota: TenantQuota, standing: Standing) -> None:
        quota.see(standing, self.now_ms())
        self._note_day(quota, standing.budget != NONE)

    def _note_day(self, quota: TenantQuota, is_counted: bool) -> None:
        if is_counted:
            self._days_changed.add(quota.name)

    def _cancel(self, ledger: Ledger, tenant: str, lease: QuotaLease) -> None:
        """Nobody knows whether it was granted: undo it, or keep it from being granted later."""
        until_ms = self.now_ms() + _CANCEL_KEPT_MS
        ledger.send(Operation(tenant, ("cancel", lease.id), lambda standing: None, until_ms))

    def _send_settle(self, lease: QuotaLease) -> None:
        quota = lease.quota

        def answered(standing: Standing | None) -> None:
            quota.leases.pop(lease.id, None)
            if standing is not None and not quota.is_alone:
                self._see(quota, standing)

        if self.ledger is not None:
            arguments = ("settle", lease.id, *lease.used)
            self.ledger.send(Operation(quota.name, arguments, answered, lease.until_ms))

    def _rejoin(self, name: str) -> Operation | None:
        """The Redis, or what it has of a tenant, is there again: what it is told first; None where there is nothing."""
        quota, now_ms = self._current(name), self.now_ms()
        if quota is None:
            return None
        if self.ledger is not None:
            quota.go_alone(now_ms, self.ledger.lost_at_ms(name))
        if not quota.has_something_to_tell(now_ms):
            return None
        arguments = ("rejoin", self._revision, *quota.terms, self._gateway, *quota.told(now_ms))
        return Operation(name, arguments, self._rejoined(quota))

    def _rejoined(self, quota: TenantQuota) -> Callable[[Standing | None], None]:
        told = quota.alone_use.numbers()

        def answered(standing: Standing | None) -> None:
            if standing is None:
                return
            quota.told_use, quota.rejoined_ms = told, self.now_ms()
            self._see(quota, standing)
            for lease in list(quota.leases.values()):
                if lease.held == "told":
                    lease.held = "together"
                    if lease.settled:
                        self._send_settle(lease)

        return answered

    def _clock_ms(self) -> int:
        """Gateways that count together go by one clock."""
        if self.ledger is not None and self.ledger.link.alive:
            return self.ledger.link.clock_ms()
        return self._unix_ms()

    def _quota(self, tenant: str) -> TenantQuota:
        quota = self._current(tenant)
        if quota is None:
            raise Refused("unknown_key", "the key's tenant was removed while the request was read")
        return quota

    def _current(self, name: str) -> TenantQuota | None:
        """The tenant's quota with the limits and the day of this moment."""
        tenant = self._configured.get(name)
        if tenant is None:
            return None
        quota = self._tenants.get(name) or self._tenants.setdefault(name, TenantQuota(name, self._lease_ms))
        unix_ms = self._clock_ms()
        if self.ledger is not None and not self.ledger.counts(name):
            quota.go_alone(self.now_ms(), self.ledger.lost_at_ms(name))
        if not quota.is_of(tenant, self._live_gateways, unix_ms):
            quota.work_out(tenant, self._live_gateways, unix_ms, self.now_ms(), lambda: self._days.get(name))
        return quota
