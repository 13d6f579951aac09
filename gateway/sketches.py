"""Lengths and arrivals of each minute, counted by tenant, class and pool while requests pass."""

from __future__ import annotations

from collections.abc import Callable

from gateway.metrics import UNKNOWN
from wire.sketches import MINUTE_MS, Sketch, bucket_of

# Rows of one minute; what would be one more counts under `unknown`.
_ROWS_MAX = 2_000
_Key = tuple[str, str, str]
_ELSE: _Key = (UNKNOWN, UNKNOWN, UNKNOWN)


class _Row:
    __slots__ = ("arrivals", "max_tokens", "output_tokens", "prompt_tokens")

    def __init__(self) -> None:
        self.arrivals = 0
        self.prompt_tokens: dict[int, int] = {}
        self.max_tokens: dict[int, int] = {}
        self.output_tokens: dict[int, int] = {}


class MinuteSketches:
    """Counts into the minute that runs; `take` gives those that ended. `unix_ms` is the wall clock.

    A clock that is set back goes on counting into the minute that it had reached. Minutes that nobody takes are
    given up from the oldest on, `rows_max` rows being kept at most; `note_dropped` hears of how many.
    """

    def __init__(self, unix_ms: Callable[[], int], rows_max: int, note_dropped: Callable[[int], None]) -> None:
        self._unix_ms, self._rows_max, self._note_dropped = unix_ms, rows_max, note_dropped
        self._minute = 0
        self._rows: dict[_Key, _Row] = {}
        self._ended: list[Sketch] = []

    def arrived(self, tenant: str, priority_class: str, pool: str, prompt_tokens: int, max_tokens: int) -> None:
        """A request that was given a pool; `max_tokens` is that of one sequence."""
        row = self._row((tenant, priority_class or UNKNOWN, pool))
        row.arrivals += 1
        _count(row.prompt_tokens, prompt_tokens)
        _count(row.max_tokens, max_tokens)

    def answered(self, tenant: str, priority_class: str, pool: str, output_tokens: int) -> None:
        """An answer that ended."""
        _count(self._row((tenant, priority_class or UNKNOWN, pool)).output_tokens, output_tokens)

    def take(self, count: int, *, all_of_them: bool = False) -> list[Sketch]:
        """The oldest `count` of the minutes that ended, the running one too if `all_of_them`; kept here no longer."""
        self._turn(self._unix_ms())
        if all_of_them:
            self._end_minute()
        taken, self._ended = self._ended[:count], self._ended[count:]
        return taken

    def _row(self, key: _Key) -> _Row:
        self._turn(self._unix_ms())
        row = self._rows.get(key)
        if row is None:
            if len(self._rows) >= _ROWS_MAX:
                key = _ELSE
            row = self._rows.setdefault(key, _Row())
        return row

    def _turn(self, now_ms: int) -> None:
        if now_ms - self._minute >= MINUTE_MS:
            self._end_minute()
            self._minute = now_ms - now_ms % MINUTE_MS

    def _end_minute(self) -> None:
        self._ended += [
            Sketch(
                self._minute,
                *key,
                arrivals=row.arrivals,
                prompt_tokens=list(row.prompt_tokens.items()),
                max_tokens=list(row.max_tokens.items()),
                output_tokens=list(row.output_tokens.items()),
            )
            for key, row in self._rows.items()
        ]
        self._rows = {}
        if (excess := len(self._ended) - self._rows_max) > 0:
            del self._ended[:excess]
            self._note_dropped(excess)


def _count(counts: dict[int, int], length: int) -> None:
    bucket = bucket_of(length)
    counts[bucket] = counts.get(bucket, 0) + 1
