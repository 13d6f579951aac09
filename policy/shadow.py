"""What a proposed limit would have done to requests that came: who would have been refused, and by which limit.

Requests are replayed in their order through the same buckets that gateways keep, as if one ledger held the whole limit.
It begins full, and nobody who is refused here comes back: of clients that retried, every attempt stands for itself.
Source: seed 1, sections 10 and 22.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import NamedTuple

from policy.bucket import Bucket, Granted, NeverFits
from policy.kv import reservation_tokens
from policy.limits import Limits

ADMITTED = ""
# Every request settles in the replay itself, so no reservation ever lapses.
_LEASE_MS = 2**53


class Arrival(NamedTuple):
    """A request that was given a pool. `max_tokens` is of one sequence; it used `used_tokens` and ran for `took_ms`."""

    at_ms: int
    prompt_tokens: int
    max_tokens: int
    sequences: int
    used_tokens: int
    took_ms: int


class _Running(NamedTuple):
    ends_ms: int
    request_id: str
    used_tokens: int
    sequences: int


def replay(arrivals: Iterable[Arrival], limits_at: Callable[[int], Limits], max_tokens_cap: int | None) -> list[str]:
    """Of each arrival, in the order of `at_ms`: ADMITTED, or the reason for which it is refused.

    `limits_at`: what holds at a moment; a day's budget is left out, since what was used of the day is not known here.
    """
    ledger, verdicts = _Ledger(), []
    for number, arrival in enumerate(arrivals):
        ledger.turn(arrival.at_ms, limits_at(arrival.at_ms))
        verdicts.append(ledger.take(str(number), arrival, max_tokens_cap))
    return verdicts


class _Ledger:
    """Tokens, requests and sequences of one tenant."""

    def __init__(self) -> None:
        self._tpm: Bucket | None = None
        self._rpm: Bucket | None = None
        self._parallel_limit: int | None = None
        self._parallel = 0
        self._running: list[_Running] = []

    def turn(self, now_ms: int, limits: Limits) -> None:
        """End what has ended by now, and take the limits of this moment."""
        while self._running and self._running[0].ends_ms <= now_ms:
            self._settle(heapq.heappop(self._running))
        self._tpm = _bucket(self._tpm, limits.tpm_limit, now_ms)
        self._rpm = _bucket(self._rpm, limits.rpm_limit, now_ms)
        self._parallel_limit = limits.max_parallel_requests

    def take(self, request_id: str, arrival: Arrival, max_tokens_cap: int | None) -> str:
        """In the order in which gateways name what refuses (gateway/quotas.py)."""
        output = arrival.max_tokens if max_tokens_cap is None else min(arrival.max_tokens, max_tokens_cap)
        tokens = reservation_tokens(arrival.prompt_tokens, output, arrival.sequences)
        parallel = ""
        if self._parallel_limit is not None and self._parallel + arrival.sequences > self._parallel_limit:
            parallel = "never_fits" if arrival.sequences > self._parallel_limit else "max_parallel_requests"
        refusals = [
            parallel,
            _reserve(self._rpm, request_id, 1, arrival.at_ms, "rpm_limit"),
            _reserve(self._tpm, request_id, tokens, arrival.at_ms, "tpm_limit"),
        ]
        if any(refusals):
            for bucket in (self._rpm, self._tpm):
                if bucket:
                    bucket.settle(request_id, 0, arrival.at_ms)
            return "never_fits" if "never_fits" in refusals else next(filter(None, refusals))
        self._parallel += arrival.sequences
        used = min(arrival.used_tokens, tokens)
        heapq.heappush(self._running, _Running(arrival.at_ms + arrival.took_ms, request_id, used, arrival.sequences))
        return ADMITTED

    def _settle(self, ended: _Running) -> None:
        self._parallel -= ended.sequences
        if self._tpm:
            self._tpm.settle(ended.request_id, ended.used_tokens, ended.ends_ms)
        if self._rpm:
            self._rpm.settle(ended.request_id, 1, ended.ends_ms)


def _bucket(old: Bucket | None, limit: int | None, now_ms: int) -> Bucket | None:
    if limit is None:
        return None
    if old is None:
        return Bucket(limit, now_ms, _LEASE_MS)
    if old.capacity != limit:
        old.set_limit(limit, now_ms)
    return old


def _reserve(bucket: Bucket | None, request_id: str, amount: int, now_ms: int, reason: str) -> str:
    match None if bucket is None else bucket.reserve(request_id, amount, now_ms):
        case None | Granted():
            return ADMITTED
        case NeverFits():
            return "never_fits"
        case _:
            return reason
