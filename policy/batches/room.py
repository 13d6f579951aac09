"""When a line of a batch may start in a pool: only in capacity that interactive requests leave.

Three things are asked before each start: does an interactive request wait for the pool; is the KV cache that is
reserved and used under the share that batches may fill; are fewer requests in flight than a limit. The limit counts
all requests of the pool, interactive ones too, so that a wave of these takes the place of lines that have ended, at
once and without anybody being told. It is found by additive increase and multiplicative decrease (Chiu & Jain, 1989):
up while all stands well, down when an interactive request waits, when the engines queue, or when interactive requests
wait longer for their first token than they did without lines. It goes down once, and not again before those in flight
are as few. What the engines run at once is remembered, and looked at again only once in a while, since each look costs
interactive time. Where first tokens were slow, it goes up by a small step for each lot of them that was not.

A longer time to first token is judged by the middle of what each request took beyond what is usual for the length of
its prompt. Lines make every step of an engine longer, and so shift all requests by about the same; a quantile of the
times themselves says more of which prompts happened to come (tests/policy/batches/engine.py has both).

Time is integer milliseconds, monotonic. Source: seed 1, sections 5, 6 and 8.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from statistics import median_low
from typing import Literal, NamedTuple

Standing = Literal["well", "busy", "interactive_waits", "kv", "engines_queue", "ttft"]

_WINDOW_MS = 1_000
_FIRST_PER_ENGINE = 8
# The step up in a window, and what is left of the limit after a decrease.
_STEP_PERMILLE, _SMALL_STEP_PERMILLE = 125, 30
_LEFT_PERMILLE = 900
_CEILING_HOLDS_MS = 600_000
# Whoever has just come is in an engine's queue for a step. A queue is what two looks in a row see, of more than come
# within a step: some of all that run.
_WINDOWS_OF_QUEUE, _COME_IN_A_STEP_PERMILLE = 2, 60
# Below this share of the limit in flight, nothing is learned of a higher one.
_USED_PERMILLE = 900
# Times to first token: so many at least are judged, and at most; none beside lines is older than this.
_SAMPLES_AT_LEAST, _SAMPLES_AT_MOST, _SAMPLES_LAST_MS = 32, 128, 60_000
# Of those without lines the newest count, however old; of so many with prompts alike the median is what is usual.
_ALONE_AT_MOST, _ALIKE_AT_LEAST = 512, 4
_QUANTILE_PERMILLE = 950


class Sight(NamedTuple):
    """One pool at one moment.

    `interactive_waiting`: requests of other classes in its line at the gateway. `engines_running`, `engines_waiting`:
    everybody's sequences in the engines, and in their own queues, None where they do not say. `kv_permille`: reserved
    and used of what may be reserved, None: not known.
    `in_flight`: all requests at its engines; `lines`: those of batches among them. `engines`: that take work.
    `concurrency`: the pool's own limit, `ttft_slo_ms` its promise, if it has one.
    """

    interactive_waiting: int
    engines_waiting: int | None
    kv_permille: int | None
    in_flight: int
    lines: int
    engines: int
    engines_running: int | None = None
    concurrency: int | None = None
    ttft_slo_ms: int | None = None

    @property
    def engines_queue(self) -> bool:
        """More wait in the engines than have just come."""
        just_come = self.engines + (self.engines_running or 0) * _COME_IN_A_STEP_PERMILLE // 1000
        return (self.engines_waiting or 0) > just_come


class Options(NamedTuple):
    """`headroom_permille`: the share of what an engine can hold, in KV cache and in sequences, that lines leave alone.

    `ttft_percent`: how much of the time to first token (p95) that interactive requests had without lines they may have
    with them, such as 110.
    """

    headroom_permille: int
    ttft_percent: int


class BatchRoom:
    """What one gateway knows of one pool. `limit`: requests in flight, all classes, under which a line may start."""

    def __init__(self, options: Options, now_ms: int) -> None:
        self.limit = 0
        self._options = options
        self._ceiling: int | None = None
        self._ceiling_until_ms = self._pause_until_ms = 0
        self._began_ms = self._fewer_since_ms = now_ms
        self._most_in_flight = 0
        self._held_back_by: Standing = "well"
        self._windows_of_queue = 0
        self._alone: deque[_First] = deque(maxlen=_ALONE_AT_MOST)
        self._beside: deque[_First] = deque(maxlen=_SAMPLES_AT_MOST)
        self._is_slow = self._was_slow = False

    def first_token(self, ttft_ms: int, prompt_tokens: int, at_ms: int, lines: int) -> None:
        """An interactive request had its first token at `at_ms`; so many lines were in flight.

        May be told later, as once it has ended: one that came before lines were made fewer says nothing of these.
        """
        first = _First(at_ms, ttft_ms, prompt_tokens.bit_length())
        if not lines:
            self._alone.append(first)
        elif at_ms - ttft_ms >= self._fewer_since_ms:
            self._beside.append(first)

    def refused(self, now_ms: int, rest_ms: int) -> None:
        """The pool had no place for a line after all: fewer, and none before `rest_ms` are over."""
        self._fall(self.limit * _LEFT_PERMILLE // 1000, now_ms)
        self._pause_until_ms = max(self._pause_until_ms, now_ms + rest_ms)

    def look(self, sight: Sight, now_ms: int) -> None:
        """Learn from what is seen; call it several times a second. Once a window the limit moves."""
        if not self.limit:
            self.limit = max(1, _FIRST_PER_ENGINE * sight.engines)
        self._most_in_flight = max(self._most_in_flight, sight.in_flight)
        ended = now_ms - self._began_ms >= _WINDOW_MS
        if ended:
            self._judge_first_tokens(sight.ttft_slo_ms, now_ms)
        standing = self._standing(sight)
        # Of a queue of the engines more than one window has to tell.
        if standing not in ("well", "busy", "engines_queue"):
            self._held_back_by = standing
        if ended:
            self._move(sight, now_ms)
            self._began_ms, self._most_in_flight, self._held_back_by = now_ms, sight.in_flight, "well"

    def free(self, sight: Sight, now_ms: int) -> int:
        """How many lines may start now, one after another."""
        if now_ms < self._pause_until_ms or not sight.engines:
            return 0
        if self._standing(sight) not in ("well", "ttft"):
            return 0
        return self._bound(sight) - sight.in_flight

    def _standing(self, sight: Sight) -> Standing:
        if sight.interactive_waiting:
            return "interactive_waits"
        if sight.engines_queue:
            return "engines_queue"
        if sight.kv_permille is not None and sight.kv_permille >= 1000 - self._options.headroom_permille:
            return "kv"
        if self._is_slow:
            return "ttft"
        return "busy" if sight.in_flight >= self._bound(sight) else "well"

    def _bound(self, sight: Sight) -> int:
        limit = max(1, self.limit)
        return limit if sight.concurrency is None else min(limit, max(1, self._spared(sight.concurrency)))

    def _spared(self, whole: int) -> int:
        return whole * (1000 - self._options.headroom_permille) // 1000

    def _judge_first_tokens(self, slo_ms: int | None, now_ms: int) -> None:
        """Whether interactive requests wait longer for their first token than they may."""
        while self._beside and self._beside[0].at_ms < now_ms - _SAMPLES_LAST_MS:
            self._beside.popleft()
        if len(self._beside) < _SAMPLES_AT_LEAST:
            self._is_slow = False
            return
        broken = slo_ms is not None and _p95_ms(self._beside) > slo_ms
        self._is_slow = broken or self._is_slower()

    def _is_slower(self) -> bool:
        """False where too few were seen."""
        usual_ms = _usual_ms(self._alone)
        beyond = [first.ttft_ms - usual_ms[first.length] for first in self._beside if first.length in usual_ms]
        if min(len(self._alone), len(beyond)) < _SAMPLES_AT_LEAST:
            return False
        return 100 * median_low(beyond) > _p95_ms(self._alone) * (self._options.ttft_percent - 100)

    def _move(self, sight: Sight, now_ms: int) -> None:
        self._windows_of_queue = self._windows_of_queue + 1 if sight.engines_queue else 0
        if self._windows_of_queue >= _WINDOWS_OF_QUEUE:
            self._held_back_by = "engines_queue"
        elif self._windows_of_queue:
            # Its last sequence may just have been taken, or not.
            return
        if self._held_back_by == "well":
            self._increase(now_ms)
        elif sight.lines and sight.in_flight <= self.limit:
            self._decrease(sight, now_ms)

    def _increase(self, now_ms: int) -> None:
        if 1000 * self._most_in_flight < _USED_PERMILLE * self.limit:
            return
        step = max(1, self.limit * _STEP_PERMILLE // 1000)
        if self._was_slow:
            # One small step for each lot of first tokens that were seen under the limit as it is.
            if len(self._beside) < _SAMPLES_AT_LEAST:
                return
            self._beside.clear()
            step = max(1, self.limit * _SMALL_STEP_PERMILLE // 1000)
        higher = self.limit + step
        if self._ceiling is not None:
            beyond = self.limit + (now_ms >= self._ceiling_until_ms)
            higher = max(beyond, min(higher, self._ceiling))
        self.limit = higher

    def _decrease(self, sight: Sight, now_ms: int) -> None:
        lower = self.limit * _LEFT_PERMILLE // 1000
        match self._held_back_by:
            case "engines_queue":
                if running := sight.engines_running:
                    # With a queue, those are all that run at once. Each gateway gives up its part of the rest.
                    there = running + (sight.engines_waiting or 0)
                    # What the engines say is a moment old: this one may have more in flight since.
                    lower = min(lower, min(self._most_in_flight, there) * self._spared(running) // there)
                self._fall(lower, now_ms)
            case "interactive_waits":
                self._fall(lower, now_ms)
            case "ttft":
                self.limit = max(1, lower)
                self._fewer_since_ms = now_ms
                self._beside.clear()
                self._is_slow, self._was_slow = False, True

    def _fall(self, limit: int, now_ms: int) -> None:
        self.limit = self._ceiling = max(1, limit)
        self._ceiling_until_ms = now_ms + _CEILING_HOLDS_MS


class _First(NamedTuple):
    """A first token: when, after what time, and the length of its prompt as a power of two."""

    at_ms: int
    ttft_ms: int
    length: int


def _usual_ms(alone: Iterable[_First]) -> dict[int, int]:
    """The median by length of prompt, where enough were seen."""
    by_length: dict[int, list[int]] = {}
    for first in alone:
        by_length.setdefault(first.length, []).append(first.ttft_ms)
    return {length: median_low(found) for length, found in by_length.items() if len(found) >= _ALIKE_AT_LEAST}


def _p95_ms(firsts: Iterable[_First]) -> int:
    times = sorted(first.ttft_ms for first in firsts)
    return times[len(times) * _QUANTILE_PERMILLE // 1000]
