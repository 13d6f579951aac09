"""One tenant's limits at this gateway: what it may take alone, and what it last saw of what all gateways take together.

Alone is a gateway without a Redis, and any gateway while its Redis is away. Then each holds its share of every limit.
It begins with its part of what was last seen together, not with a full bucket, so that a Redis that comes and goes
gives nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from gateway.budgets import KeptDay
from gateway.quota import refusals
from gateway.quota.lease import AloneUse, QuotaLease
from gateway.quota.ledger import LARGEST, NONE, Standing
from gateway.refusals import Refused
from policy.bucket import Bucket, BucketState
from policy.budget import DayBudget
from policy.limits import Day, Limits, day_of, limits_at, next_change_ms
from policy.quota import gateway_share
from wire.snapshot import Tenant

# Gateways that race have last seen their bucket some milliseconds ago, and others took of it since: what is refilled in
# this time is left out where it is parted, so that the parts are no more than what there was.
_UNSEEN_MS = 1_000
_NO_LIMITS = Limits(None, None, None, None, "", False)


class TenantQuota:
    """`tenant` and `live_gateways`: what the limits were worked out of, for `since_ms` to before `until_ms`.

    `tpm`, `rpm`, `day` and `budget` are this gateway's share, in force while `is_alone`. `running` counts its
    sequences, however they were granted.
    """

    __slots__ = (
        "_lease_ms", "alone_use", "budget", "day", "is_alone", "leases", "limits", "live_gateways", "lost_at_ms",
        "name", "parallel_limit", "rejoined_ms", "rpm", "running", "seen", "seen_ms", "since_ms", "tenant", "terms",
        "told_use", "tpm", "until_ms",
    )  # fmt: skip

    def __init__(self, name: str, lease_ms: int) -> None:
        self.name, self._lease_ms = name, lease_ms
        self.tenant, self.limits = Tenant(), _NO_LIMITS
        # Nothing is worked out yet.
        self.live_gateways = self.since_ms = 0
        self.until_ms: float = 0
        self.tpm: Bucket | None = None
        self.rpm: Bucket | None = None
        self.parallel_limit: int | None = None
        self.running = 0
        # Counted from the first budget on, and also while none is set.
        self.budget: int | None = None
        self.day: DayBudget | None = None
        # The limits as the ledger takes them, without the revision.
        self.terms: tuple[int, ...] = ()
        self.is_alone = True
        # By the clock of the Redis; 0: this tenant was never counted together here.
        self.lost_at_ms = 0
        # When the Redis last answered to know what this gateway did alone.
        self.rejoined_ms: int | None = None
        self.seen: Standing | None = None
        self.seen_ms = 0
        # Of requests that run, and of those whose end the Redis has not answered yet; where there is a Redis.
        self.leases: dict[str, QuotaLease] = {}
        self.alone_use = AloneUse()
        # `alone_use`, as the Redis last answered to know it.
        self.told_use = (0, 0, 0, 0)

    def is_of(self, tenant: Tenant, live_gateways: int, unix_ms: int) -> bool:
        """Whether the limits hold still. A clock that was set back may show hours in which other ones do."""
        return (
            self.since_ms <= unix_ms < self.until_ms
            and self.live_gateways == live_gateways
            # A new configuration holds its tenants anew, nearly all of them as they were.
            and (self.tenant is tenant or self.tenant == tenant)
        )

    def work_out(
        self, tenant: Tenant, live_gateways: int, unix_ms: int, now_ms: int, kept: Callable[[], KeptDay | None]
    ) -> None:
        """The limits that hold now, this gateway's share of them, and until when they do.

        `kept` is asked once, for the day that a budget begins with.
        """
        self.tenant, self.live_gateways = tenant, live_gateways
        limits = self.limits = limits_at(tenant, unix_ms)
        self.tpm = _bucket(self.tpm, self.share_of(limits.tpm_limit), now_ms, self._lease_ms)
        self.rpm = _bucket(self.rpm, self.share_of(limits.rpm_limit), now_ms, self._lease_ms)
        self.parallel_limit = self.share_of(limits.max_parallel_requests)
        self.budget = self.share_of(limits.daily_token_budget)
        today = day_of(tenant, unix_ms)
        ends = [next_change_ms(tenant, unix_ms), today.end_ms]
        if self.day is None and self.budget is not None:
            old = kept()
            self.day = DayBudget(Day(old.start_ms, old.end_ms), old.taken_tokens) if old else DayBudget(today)
        if self.day:
            self.day.turn(tenant, unix_ms)
            ends.append(self.day.day.end_ms)
            self.alone_use.begin_day(self.day.day.end_ms)
        self.terms = (
            *(NONE if limit is None else min(limit, LARGEST) for limit in limits[:4]),
            *today,
            day_of(tenant, today.end_ms).end_ms,
        )
        self.since_ms = unix_ms
        self.until_ms = min((end for end in ends if end is not None), default=math.inf)

    def share_of(self, limit: int | None) -> int | None:
        return None if limit is None else gateway_share(limit, self.live_gateways)

    @property
    def parts(self) -> int:
        return max(1, self.live_gateways)

    @property
    def has_limits(self) -> bool:
        """Or counts a day on, for a budget that was taken off."""
        return any(limit is not None for limit in self.limits[:4]) or bool(self.seen and self.seen.day_end_ms)

    def alone_refusal(self, tokens: int, sequences: int, now_ms: int, unix_ms: int, has_redis: bool) -> Refused | None:
        """Why this gateway's share does not hold a request."""
        whole = self.limits if has_redis else _NO_LIMITS
        taken, end_ms = (self.day.taken_tokens, self.day.day.end_ms) if self.day else (0, 0)
        zone = self.tenant.time_zone
        return refusals.first(
            (
                refusals.of_day(tokens, self.budget, taken, end_ms, zone, unix_ms, whole.daily_token_budget),
                refusals.of_parallel(sequences, self.running, self.parallel_limit, whole.max_parallel_requests),
                refusals.of_bucket(self.rpm, 1, now_ms, "rpm_limit", "request", whole.rpm_limit),
                refusals.of_bucket(self.tpm, tokens, now_ms, "tpm_limit", "token", whole.tpm_limit),
            )
        )

    def together_refusal(self, tokens: int, sequences: int, unix_ms: int) -> Refused | None:
        """Why what was just seen does not hold a request."""
        seen = self.seen
        if seen is None:
            return None
        requests, buckets = self.seen_buckets(self.seen_ms)
        budget, parallel = (None if limit == NONE else limit for limit in (seen.budget, seen.parallel_limit))
        zone = self.tenant.time_zone
        return refusals.first(
            (
                refusals.of_day(tokens, budget, seen.taken, seen.day_end_ms, zone, unix_ms, None),
                refusals.of_parallel(sequences, seen.running, parallel, None),
                refusals.of_bucket(requests, 1, self.seen_ms, "rpm_limit", "request", None),
                refusals.of_bucket(buckets, tokens, self.seen_ms, "tpm_limit", "token", None),
            )
        )

    def take_alone(self, lease: QuotaLease, now_ms: int) -> None:
        """What `alone_refusal` does not refuse."""
        if self.tpm:
            self.tpm.reserve(lease.id, lease.tokens, now_ms)
            lease.counted_tokens = True
        if self.rpm:
            self.rpm.reserve(lease.id, 1, now_ms)
            lease.counted_requests = True
        if self.day:
            lease.share, lease.day_end_ms = self.day.reserve(lease.tokens, None), self.day.day.end_ms
        self.running += lease.sequences
        self.alone_use.add(lease, lease.tokens, 1)

    def settle_alone(self, lease: QuotaLease, now_ms: int) -> None:
        tokens, requests = lease.used
        if self.tpm:
            self.tpm.settle(lease.id, tokens, now_ms)
        if self.rpm:
            self.rpm.settle(lease.id, requests, now_ms)
        if self.day and lease.share:
            self.day.settle(lease.share, tokens)
        self.alone_use.add(lease, tokens - lease.tokens, requests - 1)

    def see(self, standing: Standing, now_ms: int) -> None:
        self.seen, self.seen_ms, self.is_alone = standing, now_ms, False

    def seen_buckets(self, now_ms: int) -> tuple[Bucket | None, Bucket | None]:
        """Requests and tokens of all gateways as last seen, refilled since; full where this one saw nothing yet."""
        if self.seen is None:
            limits = (self.limits.rpm_limit, self.limits.tpm_limit)
            states = [None if limit is None else _full(limit) for limit in limits]
        else:
            states = [self.seen.requests, self.seen.tokens]
        requests, tokens = (None if state is None else _refilled(state, self.seen_ms, now_ms) for state in states)
        return requests, tokens

    def go_alone(self, now_ms: int, lost_at_ms: int) -> None:
        """Begin with this gateway's part of what was last seen together."""
        if self.is_alone or self.seen is None:
            return
        # The day may have ended since it was seen.
        self.is_alone, self.until_ms, self.lost_at_ms = True, 0, lost_at_ms
        requests, tokens = self.seen_buckets(now_ms)
        self.tpm = self._part(tokens, self.limits.tpm_limit, now_ms)
        self.rpm = self._part(requests, self.limits.rpm_limit, now_ms)
        if self.day:
            self.day = self._part_of_day(self.seen)
            self.alone_use.begin_day(self.day.day.end_ms)

    def has_something_to_tell(self, now_ms: int) -> bool:
        """While it is alone: anything that a new state at the Redis would not say."""
        if not self.has_limits:
            return False
        used = self.leases or self.alone_use.numbers() != self.told_use or (self.day and self.day.taken_tokens)
        return bool(used) or any(bucket and bucket.full_in_ms(now_ms) for bucket in (self.tpm, self.rpm))

    def told(self, now_ms: int) -> Iterator[str | int]:
        """What `rejoin` of the ledger takes after the gateway's name."""
        yield self.lost_at_ms
        for bucket in (self.tpm, self.rpm):
            yield from (bucket.state(now_ms).level, bucket.capacity) if bucket else ("-", "-")
        tokens, requests, day, day_end_ms = self.alone_use.numbers()
        told_tokens, told_requests, told_day, told_day_end_ms = self.told_use
        yield from (tokens, requests, day)
        yield from (told_tokens, told_requests, told_day if told_day_end_ms == day_end_ms else 0)
        seen = self.seen
        yield from (day_end_ms, seen.taken if seen and seen.day_end_ms == day_end_ms else 0, seen.born if seen else 0)
        for lease in self.leases.values():
            if lease.until_ms > now_ms:
                yield from (lease.id, lease.tokens, 1, lease.sequences, lease.until_ms - now_ms)
                yield from (int(lease.held != "together"), lease.day_end_ms)
            if lease.held == "alone":
                lease.held = "told"

    def kept_day(self) -> KeptDay | None:
        """What counts as taken of the day, should this gateway be alone after a restart."""
        if self.day is None:
            return None
        day = self.day if self.is_alone or self.seen is None else self._part_of_day(self.seen)
        return KeptDay(day.day.start_ms, day.day.end_ms, day.taken_tokens)

    def day_used_ratio(self, unix_ms: int) -> float | None:
        """Used part of the day's tokens, as this gateway counts them; None without a budget."""
        if self.budget is None or (day := self.kept_day()) is None:
            return None
        if day.end_ms <= unix_ms:
            return 0.0
        return day.taken_tokens / self.budget if self.budget else 1.0

    def _part(self, whole: Bucket | None, limit: int | None, now_ms: int) -> Bucket | None:
        share = self.share_of(limit)
        if share is None or limit is None:
            return None
        if whole is None:
            return Bucket(share, now_ms, self._lease_ms)
        whole.set_limit(min(limit, LARGEST), now_ms)
        state = whole.state(now_ms)
        if self.parts > 1:
            state = state._replace(level=state.level - state.limit * _UNSEEN_MS)
        part = state.shared_out(share, self.parts)
        if self.rejoined_ms is not None:
            # What it had then it gave back. However often the Redis goes, a gateway gets its share of the refill.
            part = part._replace(level=min(part.level, share * (now_ms - self.rejoined_ms)))
        return Bucket.restored(part, now_ms, self._lease_ms)

    def _part_of_day(self, seen: Standing) -> DayBudget:
        if not seen.day_end_ms:
            return self.day or DayBudget(day_of(self.tenant, self.since_ms))
        budget = self.limits.daily_token_budget
        if budget is None or self.budget is None:
            taken = seen.taken // self.parts
        else:
            taken = max(0, self.budget - max(0, budget - seen.taken) // self.parts)
        return DayBudget(Day(seen.day_start_ms, seen.day_end_ms), taken)


def _full(limit: int) -> BucketState:
    limit = min(limit, LARGEST)
    return Bucket(limit, 0, 0).state(0)


def _refilled(state: BucketState, then_ms: int, now_ms: int) -> Bucket:
    bucket = Bucket.restored(state, then_ms, 0)
    bucket.available(now_ms)
    return bucket


def _bucket(old: Bucket | None, limit: int | None, now_ms: int, lease_ms: int) -> Bucket | None:
    if limit is None:
        return None
    if old is None:
        return Bucket(limit, now_ms, lease_ms)
    if old.capacity != limit:
        old.set_limit(limit, now_ms)
    return old
