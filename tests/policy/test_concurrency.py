"""The adaptive limit before simulated engines whose capacity is known."""

from __future__ import annotations

import heapq
import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.concurrency import AdaptiveLimit

SECONDS = 1_000


@dataclass
class Server:
    """An engine of so many slots before which requests queue, and what came of those that it was offered.

    TTFT is the wait for a slot and some `prefill_ms`; a request leaves its slot after about `service_ms`.
    """

    slots: int
    service_ms: int
    prefill_ms: int
    limit: AdaptiveLimit
    outliers: float = 0.0
    tells: bool = False
    seed: int = 1
    now_ms: float = 0.0
    in_flight: int = 0
    busy: int = 0
    started: int = 0
    waiting: deque[tuple[float, int]] = field(default_factory=deque)
    coming: list[tuple[float, int, int, float]] = field(default_factory=list)
    limits: list[int] = field(default_factory=list)
    good: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    @property
    def peak(self) -> float:
        """Requests a millisecond that it can serve."""
        return self.slots / self.service_ms

    def serve(self, seconds: int, offered: float, slo_ms: float) -> float:
        """Goodput as a share of the peak, when `offered` times what it can serve arrives. The limits are kept."""
        end_ms = self.now_ms + seconds * 1000
        self.limits, self.good = [], 0
        arrival_ms = self.now_ms
        while self.now_ms < end_ms:
            arrival_ms += self.random.expovariate(offered * self.peak)
            while self.coming and self.coming[0][0] <= arrival_ms:
                self._happen(slo_ms)
            self.now_ms = arrival_ms
            self.limits.append(self.limit.limit)
            if self.in_flight < self.limit.limit:
                self.in_flight += 1
                self.waiting.append((arrival_ms, self.in_flight))
                self._start()
        return self.good / (seconds * 1000) / self.peak

    def _start(self) -> None:
        while self.waiting and self.busy < self.slots:
            sent_ms, place = self.waiting.popleft()
            self.busy += 1
            self.started += 1
            prefill_ms = self.prefill_ms * self.random.lognormvariate(0, 0.3)
            if self.random.random() < self.outliers:
                prefill_ms += 20 * self.prefill_ms
            first_ms = self.now_ms + prefill_ms
            decode_ms = self.random.expovariate(1 / (self.service_ms - self.prefill_ms))
            heapq.heappush(self.coming, (first_ms, self.started, place, sent_ms))
            heapq.heappush(self.coming, (first_ms + decode_ms, self.started, 0, first_ms - sent_ms))

    def _happen(self, slo_ms: float) -> None:
        self.now_ms, _, place, told = heapq.heappop(self.coming)
        if place:
            self.limit.observe(int(told), int(self.now_ms), place, len(self.waiting) if self.tells else None)
            return
        self.busy -= 1
        self.in_flight -= 1
        self.good += told <= slo_ms
        self._start()


def server(slots: int, service_ms: int, prefill_ms: int, initial: int = 4, **options: Any) -> Server:
    return Server(slots, service_ms, prefill_ms, AdaptiveLimit(1, 10_000, initial, 0), **options)


def mean(values: list[int]) -> float:
    return sum(values) / len(values)


@pytest.mark.parametrize(
    ("slots", "service_ms", "prefill_ms", "slo_ms"),
    [
        (32, 10_000, 100, 2_000),
        (128, 20_000, 500, 2_000),
        (8, 2_000, 200, 2_000),
        (256, 30_000, 1_000, 5_000),
        (32, 500, 450, 1_500),
    ],
    ids=["chat", "long prompts", "small", "large", "no answer to speak of"],
)
@pytest.mark.parametrize("tells", [False, True], ids=["by TTFT", "by its queue too"])
def test_at_three_times_the_load_goodput_stays_at_its_peak(slots, service_ms, prefill_ms, slo_ms, tells):
    peak = 0.0
    for fixed in (slots - slots // 16, slots, slots + slots // 16, slots + slots // 8):
        known = server(slots, service_ms, prefill_ms)
        known.limit = AdaptiveLimit(fixed, fixed, fixed, 0)
        peak = max(peak, known.serve(SECONDS, 3, slo_ms))
    engine = server(slots, service_ms, prefill_ms, tells=tells)
    engine.serve(300, 3, slo_ms)
    assert engine.serve(3 * SECONDS, 3, slo_ms) >= 0.95 * peak
    # Where TTFT is all of a request's time, as many may wait as run: twice the least TTFT is tolerated.
    most = 2 if prefill_ms > service_ms / 2 else 1.25
    assert slots <= mean(engine.limits) <= most * slots


def test_an_engine_that_tells_its_queue_may_read_prompts_slower_under_load():
    """That is work, and no reason to leave places empty: here a full one takes three times as long as an idle one."""
    limits = {}
    for tells in (True, False):
        engine = server(128, 20_000, 300, tells=tells)
        engine.serve(100, 0.3, 5_000)
        engine.prefill_ms = 900
        assert engine.limit.base_ms is not None
        engine.serve(300, 3, 5_000)
        goodput = engine.serve(200, 3, 5_000)
        limits[tells] = mean(engine.limits)
        assert goodput >= 0.9 or not tells
    assert 128 <= limits[True] <= 160
    assert limits[False] < 100, "which it would, by time to first token alone"


def test_without_a_limit_nothing_would_be_served_in_time():
    """That the simulated engine is one that needs a limit."""
    engine = server(32, 10_000, 100)
    engine.limit = AdaptiveLimit(10_000, 10_000, 10_000, 0)
    engine.serve(300, 3, 2_000)
    assert engine.serve(300, 3, 2_000) < 0.05


def test_outliers_do_not_move_it():
    engine = server(32, 10_000, 100, outliers=0.1)
    engine.serve(300, 3, 2_000)
    engine.serve(SECONDS, 3, 2_000)
    assert 32 <= mean(engine.limits) <= 40


def test_it_follows_an_engine_that_loses_capacity_and_gets_it_back():
    engine = server(64, 10_000, 100)
    engine.serve(SECONDS, 3, 2_000)
    engine.slots = 16
    engine.serve(300, 12, 2_000)
    engine.serve(300, 12, 2_000)
    assert 14 <= mean(engine.limits) <= 20
    engine.slots = 64
    engine.serve(120, 3, 2_000)
    assert engine.serve(300, 3, 2_000) >= 0.95


def test_a_time_to_first_token_that_became_longer_is_learned():
    """Prompts got ten times as long: that is no queue, though it looks like one until the base is measured anew."""
    engine = server(32, 10_000, 100)
    engine.serve(SECONDS, 3, 10_000)
    engine.prefill_ms = 2_000
    engine.serve(2 * SECONDS, 3, 10_000)
    assert engine.serve(300, 3, 10_000) >= 0.9


def test_it_grows_no_further_than_is_asked_for():
    engine = server(100, 10_000, 100)
    engine.serve(SECONDS, 0.2, 2_000)
    assert max(engine.limits) <= 50


def test_what_was_sent_under_an_older_limit_does_not_shrink_it_again():
    limit = AdaptiveLimit(1, 100, 20, 0)
    for at_ms in range(0, 2_000, 100):
        limit.observe(at_ms, at_ms + 100, 20)
    grown = limit.limit
    for _ in range(20):
        limit.observe(3_000, 8_000, grown)
    shrunk = limit.limit
    assert shrunk < grown
    for _ in range(100):
        limit.observe(7_999, 20_000, grown)
    assert limit.limit == shrunk


def test_it_heeds_the_engines_own_queue_where_ttft_shows_none():
    """As after a start into a full engine: no request has ever been seen that did not wait."""
    full, bursts = AdaptiveLimit(1, 100, 20, 0), AdaptiveLimit(1, 100, 20, 0)
    for at_ms in range(0, 20_000, 100):
        full.observe(at_ms, at_ms + 1_000, 20, waiting=9)
        bursts.observe(at_ms, at_ms + 1_000, 20, waiting=9 * (at_ms % 1_000 == 0))
    assert full.limit < 20
    assert bursts.limit > 20


def test_from_whole_answers_it_learns_by_the_engines_queue_and_not_by_their_length():
    told, silent = AdaptiveLimit(1, 100, 20, 0), AdaptiveLimit(1, 100, 20, 0)
    for at_ms in range(0, 20_000, 100):
        told.observe(at_ms, at_ms + 100 + at_ms, told.limit, waiting=0, whole=True)
        silent.observe(at_ms, at_ms + 100 + at_ms, silent.limit, whole=True)
    assert told.limit > 20
    assert silent.limit == 20
    for at_ms in range(40_000, 60_000, 100):
        told.observe(at_ms, at_ms + 100, told.limit, waiting=5, whole=True)
    assert told.limit < 20


def test_other_bounds_hold_at_once():
    limit = AdaptiveLimit(1, 100, 50, 0)
    limit.configure(1, 10)
    assert limit.limit <= 10
    limit.configure(60, 100)
    assert limit.limit == 60


observations = st.lists(
    st.tuples(
        st.integers(0, 5_000),
        st.integers(0, 100_000),
        st.integers(1, 1_000),
        st.none() | st.integers(0, 10_000),
        st.booleans(),
    ),
    max_size=200,
)


@given(st.integers(1, 50), st.integers(0, 200), st.integers(0, 500), observations)
def test_whatever_it_is_told_it_stays_within_its_bounds(minimum, more, initial, told):
    limit = AdaptiveLimit(minimum, minimum + more, initial, 0)
    now_ms = 0
    for passed_ms, ttft_ms, in_flight, waiting, whole in told:
        now_ms += passed_ms
        limit.observe(now_ms - ttft_ms, now_ms, in_flight, waiting, whole=whole)
        assert minimum <= limit.limit <= minimum + more
