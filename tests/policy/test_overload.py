"""The overload drill in simulated time: the scheduler and KV cache of simulated engines, and three times their load."""

from __future__ import annotations

import heapq
import itertools
import random

import pytest

from policy.concurrency import AdaptiveLimit
from simulator.lengths import LogNormal
from simulator.scheduler import Limits, Scheduler, Sequence, Step, StepCost

# Of a small GPU: 48 sequences take some 40 ms a step.
LIMITS = Limits(kv_capacity_tokens=48_000, max_num_seqs=48, max_model_len_tokens=4_096)
COST = StepCost(base_seconds=0.026, prefill_token_seconds=132e-6, decode_sequence_seconds=160e-6)
PROMPTS, OUTPUTS = LogNormal(250, 0.8, 2_000), LogNormal(100, 0.7, 500)
TTFT_SECONDS, TPOT_SECONDS = 2.0, 0.1
WARM_UP_SECONDS = 60.0


class Drill:
    """Two engines, and clients that come whether or not there is room; who finds none is refused."""

    def __init__(self, limit: AdaptiveLimit) -> None:
        self.limit = limit
        self._engines = [Scheduler(LIMITS, COST) for _ in range(2)]
        self._busy = [False, False]
        self._events: list[tuple[float, int, int, Step]] = []
        self._numbers = itertools.count()
        self._sent_as: dict[str, int] = {}
        self._at = [0, 0]
        self._good = 0

    def goodput(self, rate_per_second: float, seconds: float) -> float:
        """Answers a second that kept what was promised, after the warm-up."""
        rng = random.Random(1)
        arrival, look, waiting = 0.0, 0.0, 0
        while arrival < WARM_UP_SECONDS + seconds:
            arrival += rng.expovariate(rate_per_second)
            while self._events and self._events[0][0] <= arrival:
                now, _, engine, step = heapq.heappop(self._events)
                if now >= look:
                    # Pages are read once a second.
                    look, waiting = now + 1, sum(len(each.waiting) for each in self._engines)
                self._complete(now, engine, step, waiting)
            if sum(self._at) < self.limit.limit:
                self._send(Sequence(str(next(self._numbers)), PROMPTS.draw(rng), OUTPUTS.draw(rng), arrival), arrival)
        return self._good / seconds

    def _send(self, sequence: Sequence, now: float) -> None:
        engine = self._at.index(min(self._at))
        self._at[engine] += 1
        self._sent_as[sequence.id] = sum(self._at)
        self._engines[engine].submit(sequence)
        if not self._busy[engine]:
            self._step(engine, now)

    def _step(self, engine: int, now: float) -> None:
        step = self._engines[engine].plan(now)
        self._busy[engine] = step is not None
        if step is not None:
            heapq.heappush(self._events, (now + step.duration_seconds, next(self._numbers), engine, step))

    def _complete(self, now: float, engine: int, step: Step, waiting: int) -> None:
        for sequence, gap in self._engines[engine].complete(step, now):
            if gap is None:
                sent_as = self._sent_as.pop(sequence.id)
                self.limit.observe(int(sequence.arrived_at * 1000), int(now * 1000), sent_as, waiting)
            if sequence.state == "finished":
                self._at[engine] -= 1
                decode_seconds = now - sequence.first_token_at
                kept = decode_seconds <= TPOT_SECONDS * sequence.output_tokens
                kept &= sequence.first_token_at - sequence.arrived_at <= TTFT_SECONDS
                self._good += kept and now > WARM_UP_SECONDS
        self._step(engine, now)


def fixed(limit: int) -> AdaptiveLimit:
    return AdaptiveLimit(limit, limit, limit, 0)


@pytest.fixture(scope="module")
def peak() -> float:
    return max(Drill(fixed(limit)).goodput(50, 120) for limit in (80, 96, 104))


def test_three_times_the_load_leaves_the_goodput_at_its_peak(peak):
    assert Drill(AdaptiveLimit(2, 10_000, 32, 0)).goodput(3 * peak, 240) >= 0.95 * peak


def test_without_a_limit_it_leaves_hardly_any(peak):
    assert Drill(fixed(10**6)).goodput(3 * peak, 120) < 0.1 * peak
