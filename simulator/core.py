"""Runs a scheduler in real time on the event loop and tells each sequence's listener of its tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from simulator.metrics import EngineMetrics
from simulator.scheduler import Scheduler, Sequence, Step

Listener = Callable[[Sequence], None]
# A step later than this (the process was stopped, the machine is overloaded) is not caught up.
MAX_LAG_SECONDS = 0.1


class EngineCore:
    """One step after another while there is work. `speed` divides every step's time; `slow_factor` multiplies it."""

    def __init__(self, scheduler: Scheduler, metrics: EngineMetrics, speed: float) -> None:
        self._scheduler = scheduler
        self._metrics = metrics
        self._speed = speed
        self._loop = asyncio.get_running_loop()
        self._listeners: dict[Sequence, Listener] = {}
        self._stepping = False
        self._hung = self._paused = False
        self.slow_factor = 1.0

    def now(self) -> float:
        """The time of `Sequence.arrived_at`, in seconds."""
        return self._loop.time()

    def submit(self, sequence: Sequence, listener: Listener) -> None:
        self._scheduler.submit(sequence)
        self._listeners[sequence] = listener
        self._wake()

    def abort(self, sequence: Sequence) -> None:
        """Forget a sequence: its blocks are free at once and its listener hears no more."""
        self._scheduler.abort(sequence)
        self._listeners.pop(sequence, None)

    def set_hung(self, hung: bool) -> None:
        """A hung core takes sequences and computes nothing, as a stopped engine process does behind its API server."""
        self._hung = hung
        self._wake()

    def set_paused(self, paused: bool) -> None:
        """A paused core keeps its sequences where they stand."""
        self._paused = paused
        self._wake()

    def _wake(self) -> None:
        if not self._stepping:
            self._stepping = True
            # From the loop, so that sequences submitted together share the first step.
            self._loop.call_soon(self._begin_step)

    def _begin_step(self, after: float | None = None) -> None:
        """Start a step, in the sequence of one that should have ended at `after`, or afresh."""
        now = self._loop.time()
        step = None if self._hung or self._paused else self._scheduler.plan(now)
        if step is None:
            self._stepping = False
            return
        # Back-to-back steps are timed from one another, so that the timers' delays do not add up.
        start = now if after is None or now - after > MAX_LAG_SECONDS else after
        end = max(now, start + step.duration_seconds * self.slow_factor / self._speed)
        self._metrics.step(step.prefill_tokens + step.decode_sequences, step.preemptions)
        self._loop.call_at(end, self._end_step, step, end)

    def _end_step(self, step: Step, end: float) -> None:
        for token in self._scheduler.complete(step, end):
            self._metrics.token(token)
            sequence = token.sequence
            listener = self._listeners.pop(sequence) if sequence.state == "finished" else self._listeners[sequence]
            listener(sequence)
        self._begin_step(after=end)
