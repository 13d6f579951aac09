"""One what-if run: a pool of modelled engines behind a gateway's places, in virtual time."""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from msgspec import Struct

from simulator.scheduler import Limits, Scheduler, Sequence, Step, StepCost
from simulator.workload import MeasuredLengths, arrival_times
from wire.what_if import DRAIN_SECONDS, Ask, Point, Speed

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


class Missed(Struct):
    """How many requests were not good, each by the first thing that it missed."""

    refused: int = 0
    too_long: int = 0
    unfinished: int = 0
    ttft: int = 0
    tpot: int = 0
    e2e: int = 0


class Outcome(Struct):
    """What was measured of the requests that came after the warm-up. Times in seconds; KV use as a share.

    `step_seconds` weighs means: `running` sequences and `kv_use` of an engine that is at work.
    """

    arrived: int
    good: int
    missed: Missed
    ttft: dict[str, float]
    tpot: dict[str, float]
    e2e: dict[str, float]
    wait: dict[str, float]
    output_tokens_per_second: float
    preemptions: int
    kv_use_mean: float
    kv_use_peak: float
    running_mean: float
    busy: float


class _Request(NamedTuple):
    arrived_at: float
    prompt_tokens: int
    output_tokens: int


class Run:
    """Made once and run once, by `outcome`. Deterministic by `seed`; runs of one seed get the same requests.

    Raises: ValueError for a point that an engine refuses to start with.
    """

    def __init__(self, ask: Ask, point: Point, load: float, seed: int) -> None:
        self._ask = ask
        self._from = ask.warm_up_seconds
        self._until = ask.warm_up_seconds + ask.measured_seconds
        limits = limits_of(ask, point)
        self._engines = [Scheduler(limits, cost_of(ask.speed)) for _ in range(point.replicas)]
        self._at = [0] * point.replicas
        self._busy = [False] * point.replicas
        self._places = point.max_concurrency
        self._queue: deque[_Request] = deque()
        self._events: list[tuple[float, int, int, Step]] = []
        self._numbers = itertools.count()
        self._rng = random.Random(f"{seed} lengths")
        self._arrivals = arrival_times(ask.arrivals, load, random.Random(f"{seed} arrivals"))
        self._prompts, self._outputs = MeasuredLengths(ask.prompt_tokens), MeasuredLengths(ask.output_tokens)
        self._open = self._arrived = self._good = self._output_tokens = self._preemptions = 0
        self._missed = Missed()
        self._ended: list[tuple[float, float | None, float, float]] = []
        self._busy_seconds = self._kv_seconds = self._running_seconds = self._kv_peak = 0.0

    def outcome(self) -> Outcome:
        """Let everything come, and give what was seen once all that is measured has ended, or could have."""
        for request in self._requests():
            over = request.arrived_at - self._until
            self._pass_until(min(request.arrived_at, self._until + DRAIN_SECONDS))
            if over >= DRAIN_SECONDS or (over >= 0 and not self._open):
                break
            self._come(request)
        self._missed.unfinished += self._open
        return self._summary()

    def _requests(self) -> Iterator[_Request]:
        for now in self._arrivals:
            yield _Request(now, self._prompts.draw(self._rng), self._outputs.draw(self._rng))

    def _counts(self, arrived_at: float) -> bool:
        return self._from <= arrived_at < self._until

    def _come(self, request: _Request) -> None:
        counts = self._counts(request.arrived_at)
        self._arrived += counts
        longest = self._ask.max_model_len_tokens
        if request.prompt_tokens >= longest:
            self._missed.too_long += counts
            return
        request = request._replace(output_tokens=min(request.output_tokens, longest - request.prompt_tokens))
        self._expire(request.arrived_at)
        if self._has_place():
            self._open += counts
            self._send(request, request.arrived_at)
        elif self._ask.gateway is not None and len(self._queue) < self._ask.gateway.queue_cap:
            self._open += counts
            self._queue.append(request)
        else:
            self._missed.refused += counts

    def _has_place(self) -> bool:
        return self._places is None or sum(self._at) < self._places

    def _expire(self, now: float) -> None:
        """Refuse what waits for longer than it may."""
        if self._ask.gateway is None:
            return
        while self._queue and now - self._queue[0].arrived_at > self._ask.gateway.queue_ttl_ms / 1000:
            counts = self._counts(self._queue.popleft().arrived_at)
            self._open -= counts
            self._missed.refused += counts

    def _send(self, request: _Request, now: float) -> None:
        engine = self._at.index(min(self._at))
        self._at[engine] += 1
        sequence = Sequence("", request.prompt_tokens, request.output_tokens, request.arrived_at)
        self._engines[engine].submit(sequence)
        if not self._busy[engine]:
            self._step(engine, now)

    def _step(self, engine: int, now: float) -> None:
        scheduler = self._engines[engine]
        step = scheduler.plan(now)
        self._busy[engine] = step is not None
        if step is None:
            return
        if self._from <= now < self._until:
            seconds = step.duration_seconds
            self._busy_seconds += seconds
            self._kv_seconds += seconds * scheduler.kv_usage_ratio
            self._running_seconds += seconds * len(scheduler.running)
            self._kv_peak = max(self._kv_peak, scheduler.kv_usage_ratio)
            self._preemptions += step.preemptions
        heapq.heappush(self._events, (now + step.duration_seconds, next(self._numbers), engine, step))

    def _pass_until(self, moment: float) -> None:
        while self._events and self._events[0][0] <= moment:
            now, _, engine, step = heapq.heappop(self._events)
            tokens = self._engines[engine].complete(step, now)
            if self._from <= now < self._until:
                self._output_tokens += len(tokens)
            for sequence, _gap in tokens:
                if sequence.state == "finished":
                    self._at[engine] -= 1
                    self._end(sequence)
            self._expire(now)
            while self._queue and self._has_place():
                self._send(self._queue.popleft(), now)
            # It counts as busy until here, so that what was sent to it begins with this step.
            self._step(engine, now)

    def _end(self, sequence: Sequence) -> None:
        if not self._counts(sequence.arrived_at):
            return
        self._open -= 1
        before = self._ask.speed.request_seconds
        ttft = sequence.first_token_at - sequence.arrived_at + before
        more = sequence.output_tokens - 1
        tpot = (sequence.last_token_at - sequence.first_token_at) / more if more else None
        e2e = sequence.last_token_at - sequence.arrived_at + before
        self._ended.append((ttft, tpot, e2e, sequence.scheduled_at - sequence.arrived_at))
        slo = self._ask.slo
        if slo.ttft_ms is not None and ttft * 1000 > slo.ttft_ms:
            self._missed.ttft += 1
        elif slo.tpot_ms is not None and tpot is not None and tpot * 1000 > slo.tpot_ms:
            self._missed.tpot += 1
        elif slo.e2e_ms is not None and e2e * 1000 > slo.e2e_ms:
            self._missed.e2e += 1
        else:
            self._good += 1

    def _summary(self) -> Outcome:
        busy = self._busy_seconds or 1.0
        seconds = self._ask.measured_seconds
        return Outcome(
            arrived=self._arrived,
            good=self._good,
            missed=self._missed,
            ttft=_quantiles([ended[0] for ended in self._ended]),
            tpot=_quantiles([ended[1] for ended in self._ended if ended[1] is not None]),
            e2e=_quantiles([ended[2] for ended in self._ended]),
            wait=_quantiles([ended[3] for ended in self._ended]),
            output_tokens_per_second=self._output_tokens / seconds,
            preemptions=self._preemptions,
            kv_use_mean=self._kv_seconds / busy,
            kv_use_peak=self._kv_peak,
            running_mean=self._running_seconds / busy,
            busy=min(1.0, self._busy_seconds / seconds / len(self._engines)),
        )


def limits_of(ask: Ask, point: Point) -> Limits:
    """Raises: ValueError for a point that an engine refuses to start with."""
    return Limits(
        kv_capacity_tokens=point.kv_capacity_tokens,
        max_num_seqs=point.max_num_seqs,
        max_num_batched_tokens=point.max_num_batched_tokens,
        max_model_len_tokens=ask.max_model_len_tokens,
    )


def cost_of(speed: Speed) -> StepCost:
    return StepCost(
        base_seconds=speed.base_seconds,
        prefill_token_seconds=speed.prefill_token_seconds,
        decode_sequence_seconds=speed.decode_sequence_seconds,
        decode_kv_token_seconds=speed.decode_kv_token_seconds,
    )


def _quantiles(values: list[float]) -> dict[str, float]:
    """By nearest rank; empty where nothing was measured."""
    if not values:
        return {}
    ordered = sorted(values)
    found = {name: ordered[math.ceil(share * len(ordered)) - 1] for name, share in QUANTILES.items()}
    return {"mean": sum(values) / len(values), **found}
