"""How many requests at once a pool serves without making them wait: found from how long they wait, not configured.

The idea is TCP Vegas' (Brakmo & Peterson, 1995) as Netflix's concurrency-limits took it to services: a limit grows
while latency is near its long-term minimum and shrinks when it rises. Here latency is the time to first token, which a
request waits for in the engine's queue and behind other prompts, while its whole time mostly tells how long its answer
is. Little's law turns what TTFT has risen by into requests that wait: waiting = first tokens a second × (TTFT - base).
An engine's own count of its queue is the same number seen from inside; the larger of both counts. A few that wait keep
an engine busy; more only wait.

Time is integer milliseconds, monotonic. Source: seed 1, sections 2 and 8.
"""

from __future__ import annotations

from statistics import median_low
from typing import NamedTuple

# An update needs so many requests, so that a few outliers do not move their median, and so much time.
_AT_LEAST_SAMPLES = 10
_WINDOW_MS = 1_000
_KEPT_SAMPLES = 256
# Requests that may wait at the engine, as a share of the limit and at least: under `few` the limit grows, over `many`
# it shrinks. Where slots are few, a single waiting request waits long.
_FEW_PERMILLE, _FEW_AT_LEAST_MILLIS = 5, 250
_MANY_PERMILLE, _MANY_AT_LEAST_MILLIS = 10, 500
# A limit grows by one more each time, and at most by a quarter of itself; it never shrinks by more than that at once.
_CHANGE_AT_MOST = 4
# Below this share of the limit in use, nothing is learned of a higher one.
_USED_PERMILLE = 900
# Prompts differ, and are read the slower the more requests run beside them: so many times the least TTFT is no waiting.
# More where engines tell how many wait, for then the rest is known to be work.
_TOLERATED_PERMILLE, _TOLERATED_BESIDE_QUEUE_PERMILLE = 2_000, 4_000
# The least TTFT is measured anew when it has not been met for so long: prompts get longer, engines are replaced.
_BASE_HOLDS_MS = 600_000
# While it is measured the limit is lower by what waits, and by this part of itself.
_LOWERED_BY = 8


class _Sample(NamedTuple):
    """Of one request: its TTFT, None where nobody saw it, and how many waited at the engines then."""

    ttft_ms: int | None
    waiting: int | None
    in_flight: int


class AdaptiveLimit:
    """The limit of one pool at one gateway, between `minimum` and `maximum`.

    `limit` is what may be in flight; it can be below what is in flight, and then nothing is cut, but nothing admitted.
    Begin low: the first requests must not wait, since they show what TTFT is without waiting.
    """

    def __init__(self, minimum: int, maximum: int, initial: int, now_ms: int) -> None:
        self._minimum, self._maximum = minimum, maximum
        self._limit = min(max(initial, minimum), maximum)
        self._step = 1
        self._base_ms: int | None = None
        self._base_met_ms = now_ms
        self._lowered: int | None = None
        self._begun_ms = self._valid_from_ms = now_ms
        self._answered = 0
        self._samples: list[_Sample] = []

    @property
    def limit(self) -> int:
        """While the base is measured anew it is lower, so that the queue at the engine runs empty."""
        return self._limit if self._lowered is None else min(max(self._minimum, self._lowered), self._limit)

    @property
    def base_ms(self) -> int | None:
        """TTFT without waiting, as far as it is known."""
        return self._base_ms

    def configure(self, minimum: int, maximum: int) -> None:
        """Take other bounds; what was learned stays."""
        self._minimum, self._maximum = minimum, maximum
        self._limit = min(max(self._limit, minimum), maximum)

    def observe(
        self, sent_ms: int, now_ms: int, in_flight: int, waiting: int | None = None, *, whole: bool = False
    ) -> None:
        """The first token has come of a request that was sent at `sent_ms`, as the `in_flight`-th.

        Of work without tokens (embeddings) its answer. `whole`: an answer came in one piece, of which nobody saw the
        first token. `waiting`: requests in the queues of the pool's engines, by the last looks at their pages; None
        where they do not say, and then a whole answer tells nothing. Failures are not told: they are the breaker's.
        """
        self._answered += 1
        told = not whole or waiting is not None
        # What was sent under an older limit tells of that one.
        if told and sent_ms >= self._valid_from_ms and len(self._samples) < _KEPT_SAMPLES:
            self._samples.append(_Sample(None if whole else max(0, now_ms - sent_ms), waiting, in_flight))
        if len(self._samples) >= _AT_LEAST_SAMPLES and now_ms - self._begun_ms >= _WINDOW_MS:
            self._update(now_ms)

    def _update(self, now_ms: int) -> None:
        self._lowered = None
        told = [sample.waiting for sample in self._samples if sample.waiting is not None]
        ttfts_ms = [sample.ttft_ms for sample in self._samples if sample.ttft_ms is not None]
        # Medians: what comes in a burst and is gone again is no queue.
        waiting_millis = 1000 * median_low(told) if told else 0
        if ttfts_ms:
            ttft_ms = median_low(ttfts_ms)
            if self._base_ms is None or ttft_ms <= self._base_ms:
                self._base_ms, self._base_met_ms = ttft_ms, now_ms
            elif now_ms - self._base_met_ms >= _BASE_HOLDS_MS:
                self._measure_base(ttft_ms - self._base_ms, now_ms)
                return
            # Who has just come stands in an engine's queue until its next step, also of an idle one: half of its TTFT.
            waiting_millis = max(0, waiting_millis - self._waiting_millis(self._base_ms // 2, now_ms))
            tolerated_ms = self._base_ms * (_TOLERATED_BESIDE_QUEUE_PERMILLE if told else _TOLERATED_PERMILLE) // 1000
            waiting_millis = max(waiting_millis, self._waiting_millis(max(0, ttft_ms - tolerated_ms), now_ms))
        self._adapt(waiting_millis, now_ms)

    def _measure_base(self, waited_ms: int, now_ms: int) -> None:
        """For one window let the queue at the engines run empty."""
        waiting = self._waiting_millis(waited_ms, now_ms) // 1000
        self._lowered = self._limit - waiting - 1 - self._limit // _LOWERED_BY
        self._base_ms = None
        self._begin(now_ms, now_ms)

    def _waiting_millis(self, waited_ms: int, now_ms: int) -> int:
        """Thousandths of a request that wait on average, if each waits so long."""
        return 1000 * self._answered * waited_ms // (now_ms - self._begun_ms)

    def _adapt(self, waiting_millis: int, now_ms: int) -> None:
        few_millis = max(_FEW_AT_LEAST_MILLIS, self._limit * _FEW_PERMILLE)
        many_millis = max(_MANY_AT_LEAST_MILLIS, self._limit * _MANY_PERMILLE)
        change_at_most = 1 + self._limit // _CHANGE_AT_MOST
        valid_from_ms = self._valid_from_ms
        if waiting_millis > many_millis:
            excess = -(-(waiting_millis - few_millis) // 1000)
            self._limit = max(self._minimum, self._limit - min(excess, change_at_most))
            self._step, valid_from_ms = 1, now_ms
        elif waiting_millis < few_millis and self._is_used():
            self._limit = min(self._maximum, self._limit + min(self._step, change_at_most))
            self._step, valid_from_ms = self._step + 1, now_ms
        else:
            self._step = 1
        self._begin(now_ms, valid_from_ms)

    def _begin(self, now_ms: int, valid_from_ms: int) -> None:
        self._begun_ms, self._valid_from_ms = now_ms, valid_from_ms
        self._answered, self._samples = 0, []

    def _is_used(self) -> bool:
        return 1000 * max(sample.in_flight for sample in self._samples) >= _USED_PERMILLE * self._limit
