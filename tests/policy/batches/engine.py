"""Interactive requests and lines of batches at one simulated engine, in virtual time: the same numbers every time."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from policy.batches.room import BatchRoom, Options, Sight
from simulator.lengths import LogNormal
from simulator.scheduler import Limits, Scheduler, Sequence, StepCost

LIMITS = Limits(kv_capacity_tokens=160_000, max_num_seqs=64, max_model_len_tokens=4096)
_LOOK_SECONDS = 1.0


class Kind(NamedTuple):
    prompt: LogNormal
    output: LogNormal

    def draw(self, rng: random.Random) -> tuple[int, int]:
        return self.prompt.draw(rng), self.output.draw(rng)


# Chats as the simulator's own traffic has them.
CHATS = Kind(LogNormal(300, 1.0, 3_500), LogNormal(120, 0.5, 400))
# Texts are made or rewritten; texts are read, and little is written.
WRITING = Kind(LogNormal(100, 0.5, 500), LogNormal(200, 0.5, 600))
READING = Kind(LogNormal(600, 0.5, 2_000), LogNormal(100, 0.5, 400))

# How many lines may start now, in what a gateway sees of the pool.
Rule = Callable[[Sight, float], int]


class Load(NamedTuple):
    """`seconds` are measured after `warm_up`, in virtual time."""

    rate_per_second: float
    lines: Kind
    warm_up_seconds: float = 120.0
    seconds: float = 180.0
    chats: Kind = CHATS
    limits: Limits = LIMITS


class Outcome(NamedTuple):
    ttft_p50_ms: float
    ttft_p95_ms: float
    line_tokens_per_second: float


def none(sight: Sight, now: float) -> int:
    return 0


def as_many_as_run(sequences: int) -> Rule:
    """All that the engine has left, at whatever cost to interactive requests."""
    return lambda sight, now: sequences - sight.lines


class Ruled:
    """`room` decides from `begins` on; before that the load is interactive alone, so that it knows what is usual."""

    def __init__(self, options: Options, begins: float) -> None:
        self.room, self._begins = BatchRoom(options, 0), begins

    def __call__(self, sight: Sight, now: float) -> int:
        if now < self._begins:
            return 0
        self.room.look(sight, int(now * 1000))
        return self.room.free(sight, int(now * 1000))


def run(load: Load, rule: Rule, seed: int) -> Outcome:
    """The same seed has the same arrivals and lengths, whatever the rule."""
    return _Run(load, rule, seed).outcome()


class _Run:
    def __init__(self, load: Load, rule: Rule, seed: int) -> None:
        self._load, self._rule = load, rule
        self._room = rule.room if isinstance(rule, Ruled) else None
        self._ends = load.warm_up_seconds + load.seconds
        self._rng = random.Random(seed + 1_000)
        self._arrivals = self._draw_arrivals(random.Random(seed))
        self._scheduler = Scheduler(load.limits, StepCost())
        self._lines: set[Sequence] = set()
        self._chats: set[Sequence] = set()
        self._reserved_tokens = self._line_tokens = 0
        self._ttfts_ms: list[float] = []
        # (ms, ms after its arrival) of each chat's first token: a gateway tells of it once the chat has ended.
        self._firsts: dict[Sequence, tuple[int, int]] = {}
        # (running, waiting) at the last look at the engine's page.
        self._look, self._look_at = (0, 0), 0.0

    def outcome(self) -> Outcome:
        now = 0.0
        while now < self._ends:
            while self._arrivals and self._arrivals[-1][0] <= now:
                at, prompt, output = self._arrivals.pop()
                self._submit(self._chats, prompt, output, at)
            for _ in range(self._rule(self._sight(), now)):
                self._submit(self._lines, *self._load.lines.draw(self._rng), now)
            # Who came during the step before is in its queue.
            if now >= self._look_at:
                self._look = (len(self._scheduler.running), len(self._scheduler.waiting))
                self._look_at = now + _LOOK_SECONDS
            step = self._scheduler.plan(now)
            if step is None:
                now = min(now + 0.05, self._arrivals[-1][0] if self._arrivals else self._ends)
                continue
            now += step.duration_seconds
            for token in self._scheduler.complete(step, now):
                self._note(token.sequence, token.gap_seconds is None, now)
        times = sorted(self._ttfts_ms)
        rate = self._line_tokens / self._load.seconds
        return Outcome(times[len(times) // 2], times[len(times) * 95 // 100], rate)

    def _draw_arrivals(self, rng: random.Random) -> list[tuple[float, int, int]]:
        """The first is the last."""
        arrivals, at = [], 0.0
        while at < self._ends:
            at += rng.expovariate(self._load.rate_per_second)
            arrivals.append((at, *self._load.chats.draw(rng)))
        return arrivals[::-1]

    def _submit(self, kind: set[Sequence], prompt: int, output: int, at: float) -> None:
        sequence = Sequence("", prompt, output, at)
        kind.add(sequence)
        self._reserved_tokens += prompt + output
        self._scheduler.submit(sequence)

    def _sight(self) -> Sight:
        running, waiting = self._look
        kv_permille = 1000 * self._reserved_tokens // self._load.limits.kv_capacity_tokens
        in_flight = len(self._lines) + len(self._chats)
        return Sight(0, waiting, kv_permille, in_flight, len(self._lines), 1, running)

    def _note(self, sequence: Sequence, is_first: bool, now: float) -> None:
        is_line = sequence in self._lines
        if is_line and now >= self._load.warm_up_seconds:
            self._line_tokens += 1
        if is_first and not is_line:
            ttft_ms = (now - sequence.arrived_at) * 1000
            self._firsts[sequence] = (int(now * 1000), round(ttft_ms))
            if sequence.arrived_at >= self._load.warm_up_seconds:
                self._ttfts_ms.append(ttft_ms)
        if sequence.state == "finished":
            if not is_line and self._room is not None:
                at_ms, ttft_ms = self._firsts.pop(sequence)
                self._room.first_token(ttft_ms, sequence.prompt_tokens, at_ms, len(self._lines))
            (self._lines if is_line else self._chats).remove(sequence)
            self._reserved_tokens -= sequence.prompt_tokens + sequence.output_tokens
