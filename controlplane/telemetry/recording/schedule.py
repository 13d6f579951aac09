"""When a group is evaluated: pure, on Unix times in milliseconds."""

from __future__ import annotations


def due_ms(next_ms: int, now_ms: int, interval_ms: int, delay_ms: int, late_ms: int) -> int | None:
    """The moment to evaluate now; None: none yet.

    Moments are whole multiples of the interval, so that a chart's steps meet them, and each is evaluated `delay_ms`
    after it, when its samples have come. Missed ones follow one after the other as far back as `late_ms`.
    """
    latest = _floor(now_ms - delay_ms, interval_ms)
    if next_ms > now_ms + 2 * interval_ms:
        # The clock was set back since.
        return latest
    oldest = min(_ceiling(now_ms - late_ms, interval_ms), latest)
    at_ms = max(_ceiling(next_ms, interval_ms), oldest)
    return at_ms if at_ms <= latest else None


def _floor(time_ms: int, interval_ms: int) -> int:
    return time_ms - time_ms % interval_ms


def _ceiling(time_ms: int, interval_ms: int) -> int:
    return time_ms + -time_ms % interval_ms
