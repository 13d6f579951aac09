"""When a line of a batch may start in a pool: only in capacity that interactive requests leave.

Three things are asked before each start: does an interactive request wait for the pool; is the KV cache that is
reserved and used under the share that batches may fill; are fewer requests in flight than a limit. The limit counts
all requests of the pool, interactive ones too, so that a wave of these takes the place of lines that have ended, at
once and without anybody being told. It is found by additive increase and multiplicative decrease (Chiu & Jain, 1989):
up while all stands well, down when an interactive request waits, when the engines queue, or when the time to first
token of interactive requests rises above what it was without lines. It goes down once, and not again before those in
flight are as few. Where requests waited is remembered: up to there it comes back fast, beyond only once in a while, as
CUBIC does (RFC 9438), since each look beyond costs interactive time.

Time is integer milliseconds, monotonic. Source: seed 1, sections 5, 6 and 8.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from statistics import median_low
from typing import Literal, NamedTuple

Standing = Literal["well", "interactive_waits", "kv", "engines_queue", "ttft", "busy"]

_WINDOW_MS = 1_000
_FIRST_PER_ENGINE = 8
# The step up in a window; what is left after a decrease: of those in flight that did not wait in an engine, and else of
# the limit.
_STEP_PERMILLE, _UNQUEUED_PERMILLE, _LEFT_PERMILLE, _LEFT_BY_TTFT_PERMILLE = 125, 920, 900, 850
_CEILING_HOLDS_MS = 120_000
# Whoever has just come is in an engine's queue for a step: only a queue that two looks see is one.
_WINDOWS_OF_QUEUE = 2
# Below this share of the limit in flight, nothing is learned of a higher one.
_USED_PERMILLE = 900
# TTFT: the quantile that is compared, of so many samples at least and at most, none older than this.
_QUANTILE_PERMILLE = 900
_SAMPLES_AT_LEAST, _SAMPLES_AT_MOST, _SAMPLES_LAST_MS = 32, 256, 60_000
# Of those without lines the newest count, however old; of so many with prompts alike the median is what is usual.
_BASE_AT_MOST, _ALIKE_AT_LEAST = 512, 4


class Sight(NamedTuple):
    """One pool at one moment.

    `interactive_waiting`: requests of other classes in its line at the gateway. `engines_waiting`: in the engines' own
    queues, None where they do not say. `kv_permille`: reserved and used of what may be reserved, None: not known.
    `in_flight`: all requests at its engines; `lines`: those of batches among them. `engines`: that take work.
    `concurrency`: the pool's own limit, `ttft_slo_ms` its promise, if it has one.
    """

    interactive_waiting: int
    engines_waiting: int | None
    kv_permille: int | None
    in_flight: int
    lines: int
    engines: int
    concurrency: int | None = None
    ttft_slo_ms: int | None = None


class Options(NamedTuple):
    """`headroom_permille`: the share of the KV cache, and of the pool's own concurrency, that lines leave alone.

    `ttft_percent`: how much of the time to first token that interactive requests had without lines they may have
    with them, such as 115.
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
        self._began_ms = now_ms
        self._most_in_flight = 0
        self._held_back_by: Standing = "well"
        self._windows_of_queue = 0
        self._alone: deque[_First] = deque(maxlen=_BASE_AT_MOST)
        self._beside: deque[_First] = deque(maxlen=_SAMPLES_AT_MOST)
        self._is_slow = False
        # It was slow, and too few have come since to say that it is not.
        self._doubts = False

    def first_token(self, ttft_ms: int, prompt_tokens: int, now_ms: int, lines: int) -> None:
        """An interactive request had its first token while so many lines were in flight."""
        first = _First(now_ms, ttft_ms, prompt_tokens.bit_length())
        (self._beside if lines else self._alone).append(first)

    def refused(self, now_ms: int, rest_ms: int) -> None:
        """The pool had no place for a line after all: fewer, and none before `rest_ms` are over."""
        self._remember(now_ms, self.limit * _LEFT_PERMILLE // 1000)
        self._pause_until_ms = max(self._pause_until_ms, now_ms + rest_ms)

    def look(self, sight: Sight, now_ms: int) -> None:
        """Learn from what is seen; call it several times a second. Once a window the limit moves."""
        if not self.limit:
            self.limit = max(1, _FIRST_PER_ENGINE * sight.engines)
        self._most_in_flight = max(self._most_in_flight, sight.in_flight)
        if now_ms - self._began_ms >= _WINDOW_MS:
            self._judge_first_tokens(sight.ttft_slo_ms, now_ms)
        standing = self._standing(sight)
        if standing not in ("well", "busy"):
            self._held_back_by = standing
        if now_ms - self._began_ms < _WINDOW_MS:
            return
        self._windows_of_queue = self._windows_of_queue + 1 if sight.engines_waiting else 0
        if self._held_back_by == "well":
            # With even one that waits in an engine, its last sequence may just have been taken.
            if not sight.engines_waiting:
                self._increase(now_ms)
        elif sight.lines and sight.in_flight <= self.limit:
            self._decrease(sight, now_ms)
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
        if sight.engines_waiting and sight.engines_waiting > sight.engines:
            return "engines_queue"
        if sight.kv_permille is not None and sight.kv_permille >= 1000 - self._options.headroom_permille:
            return "kv"
        if self._is_slow:
            return "ttft"
        return "busy" if sight.in_flight >= self._bound(sight) else "well"

    def _bound(self, sight: Sight) -> int:
        limit = max(1, self.limit)
        if sight.concurrency is None:
            return limit
        return min(limit, max(1, sight.concurrency * (1000 - self._options.headroom_permille) // 1000))

    def _judge_first_tokens(self, slo_ms: int | None, now_ms: int) -> None:
        """Whether interactive requests wait longer for their first token than they may.

        A long prompt takes long by itself, so of each counts what it took beyond what is usual for its length.
        """
        while self._beside and self._beside[0].at_ms < now_ms - _SAMPLES_LAST_MS:
            self._beside.popleft()
        if len(self._beside) < _SAMPLES_AT_LEAST:
            self._is_slow = False
            return
        broken = slo_ms is not None and _quantile([first.ttft_ms for first in self._beside]) > slo_ms
        self._is_slow = broken or self._is_slower()
        self._doubts = False

    def _is_slower(self) -> bool:
        """Whether p90 has risen by more than it may. False where too few were seen."""
        usual_ms = _usual_ms(self._alone)
        alone, beside = _beyond_usual_ms(self._alone, usual_ms), _beyond_usual_ms(self._beside, usual_ms)
        if min(len(alone), len(beside)) < _SAMPLES_AT_LEAST:
            return False
        before_ms = _quantile([first.ttft_ms for first in self._alone])
        return 100 * (_quantile(beside) - _quantile(alone)) > before_ms * (self._options.ttft_percent - 100)

    def _increase(self, now_ms: int) -> None:
        if self._doubts or 1000 * self._most_in_flight < _USED_PERMILLE * self.limit:
            return
        higher = self.limit + max(1, self.limit * _STEP_PERMILLE // 1000)
        if self._ceiling is not None:
            # Up to what is known at once; beyond it one by one, and only once in a while.
            beyond = self.limit + (now_ms >= self._ceiling_until_ms)
            higher = max(beyond, min(higher, self._ceiling))
        self.limit = higher

    def _decrease(self, sight: Sight, now_ms: int) -> None:
        match self._held_back_by:
            case "engines_queue" if self._windows_of_queue >= _WINDOWS_OF_QUEUE:
                self._remember(now_ms, (sight.in_flight - (sight.engines_waiting or 0)) * _UNQUEUED_PERMILLE // 1000)
            case "interactive_waits":
                self._remember(now_ms, self.limit * _LEFT_PERMILLE // 1000)
            case "ttft":
                self._remember(now_ms, self.limit * _LEFT_BY_TTFT_PERMILLE // 1000)
                # From there one by one, as soon as it is known not to be slow.
                self._ceiling_until_ms = now_ms
                # What was seen under the limit before tells of that one.
                self._beside.clear()
                self._is_slow, self._doubts = False, True

    def _remember(self, now_ms: int, limit: int) -> None:
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


def _beyond_usual_ms(firsts: Iterable[_First], usual_ms: dict[int, int]) -> list[int]:
    return [first.ttft_ms - usual_ms[first.length] for first in firsts if first.length in usual_ms]


def _quantile(samples: Collection[int]) -> int:
    return sorted(samples)[len(samples) * _QUANTILE_PERMILLE // 1000]
