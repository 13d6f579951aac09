"""A replay refuses what a gateway's ledger would have refused."""

from __future__ import annotations

import heapq
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gateway.quotas import QuotaLease, Quotas
from gateway.refusals import Refused
from gateway.view import compile_view
from policy.limits import Limits
from policy.shadow import ADMITTED, Arrival, replay
from wire.snapshot import GatewaySnapshot

FREE = Limits(None, None, None, None, "", False)
TRIED = ("tpm_limit", "rpm_limit", "max_parallel_requests")
ARRIVALS = st.lists(
    st.builds(
        Arrival,
        at_ms=st.integers(0, 120_000),
        prompt_tokens=st.integers(0, 400),
        max_tokens=st.integers(1, 200),
        sequences=st.integers(1, 3),
        used_tokens=st.integers(0, 2_000),
        took_ms=st.integers(1, 30_000),
    ),
    max_size=60,
).map(lambda arrivals: sorted(arrivals, key=lambda each: each.at_ms))
LIMIT = st.none() | st.integers(0, 2_000)
FEW = st.none() | st.integers(0, 6)


def used_of(arrival: Arrival) -> int:
    return min(arrival.used_tokens, arrival.prompt_tokens + arrival.max_tokens * arrival.sequences)


class Ledger:
    """A gateway's own, at times that the test sets."""

    def __init__(self, limits: dict[str, Any]) -> None:
        self.now_ms = 0
        self.quotas = Quotas(lambda: self.now_ms, lambda: self.now_ms, 2**40)
        content = {"schema": 1, "kind": "gateway", "tenants": {"acme": limits}}
        self.quotas.configure(compile_view(msgspec.convert(content, GatewaySnapshot), 1), 1)
        self.running: list[tuple[int, int, QuotaLease, int]] = []

    def verdict(self, number: int, arrival: Arrival) -> str:
        while self.running and self.running[0][0] <= arrival.at_ms:
            self.now_ms, _, lease, used = heapq.heappop(self.running)
            lease.settle(used, reached_engine=True)
        self.now_ms = arrival.at_ms
        tokens = arrival.prompt_tokens + arrival.max_tokens * arrival.sequences
        try:
            lease = self.quotas.take("acme", tokens, arrival.sequences)
        except Refused as refused:
            return refused.reason
        heapq.heappush(self.running, (arrival.at_ms + arrival.took_ms, number, lease, used_of(arrival)))
        return ADMITTED


@given(ARRIVALS, LIMIT, FEW, FEW)
def test_each_request_gets_the_word_that_a_gateway_would_give(
    arrivals: list[Arrival], tpm: int | None, rpm: int | None, parallel: int | None
) -> None:
    limits = FREE._replace(tpm_limit=tpm, rpm_limit=rpm, max_parallel_requests=parallel)
    set_ones = {name: limit for name, limit in limits._asdict().items() if name in TRIED and limit is not None}
    ledger = Ledger(set_ones)
    expected = [ledger.verdict(number, arrival) for number, arrival in enumerate(arrivals)]
    assert replay(arrivals, lambda at_ms: limits, None) == expected


@given(ARRIVALS)
def test_without_limits_nothing_is_refused(arrivals: list[Arrival]) -> None:
    assert set(replay(arrivals, lambda at_ms: FREE, None)) <= {ADMITTED}


def test_a_cap_of_the_output_lets_more_through() -> None:
    arrivals = [Arrival(second * 1000, 10, 500, 1, 40, 100) for second in range(10)]
    limits = FREE._replace(tpm_limit=400)
    assert set(replay(arrivals, lambda at_ms: limits, None)) == {"never_fits"}
    assert set(replay(arrivals, lambda at_ms: limits, 40)) == {ADMITTED}


def test_limits_that_change_meanwhile_hold_from_then_on() -> None:
    arrivals = [Arrival(second * 1000, 10, 10, 1, 20, 100) for second in range(10)]
    said = replay(arrivals, lambda at_ms: FREE._replace(tpm_limit=None if at_ms < 5000 else 0), None)
    assert said == [ADMITTED] * 5 + ["never_fits"] * 5
