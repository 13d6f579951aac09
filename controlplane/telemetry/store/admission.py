"""Which samples of a write are taken: pure, on what the store knows of each series."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from controlplane.telemetry.store.columns import Bools, Columns, Ints, bits_of
from wire.problems import Problem

UNSEEN = np.iinfo(np.int64).min


@dataclass(frozen=True)
class Window:
    """Times that are taken. A late sample is one that is older than the newest of its series."""

    oldest_ms: int
    newest_ms: int
    late_ms: int


def ordered(columns: Columns) -> tuple[Columns, list[Problem]]:
    """By series and time, each sample once. Problem: one time with two values."""
    if len(np.unique(columns.series)) == len(columns.series):
        return columns, []
    columns = columns.take(np.lexsort((columns.times_ms, columns.series)))
    again = np.zeros(len(columns.series), np.bool_)
    again[1:] = (np.diff(columns.series) == 0) & (np.diff(columns.times_ms) == 0)
    bits = bits_of(columns.values)
    clash = again.copy()
    clash[1:] &= bits[1:] != bits[:-1]
    return columns.take(~again), [_clash(columns.times_ms[clash][0])] if clash.any() else []


def outside(columns: Columns, window: Window) -> list[Problem]:
    """Samples that are too old to be kept, or whose clock is ahead."""
    problems = []
    if len(columns.times_ms):
        oldest, newest = int(columns.times_ms.min()), int(columns.times_ms.max())
        if oldest < window.oldest_ms:
            message = f"a sample of {_shown(oldest)} is older than what is kept (since {_shown(window.oldest_ms)})"
            problems.append(Problem("/samples", "too_old", message))
        if newest > window.newest_ms:
            message = f"a sample of {_shown(newest)} is ahead of this clock; see to the writer's clock"
            problems.append(Problem("/samples", "too_far_in_future", message))
    return problems


def late(columns: Columns, newest: Ints) -> Bools:
    """Which samples are not newer than the newest of their series (`newest` is indexed by series)."""
    where: Bools = columns.times_ms <= newest[columns.series]
    return where


def admit_late(
    columns: Columns, newest: Ints, stored: Mapping[tuple[int, int], int], window: Window
) -> tuple[Bools, list[Problem]]:
    """Which late samples are new. `stored`: bits of the value by (series, time).

    A sample that is stored already with the same value is passed over: a writer sends again what it got no answer for.
    """
    new = np.zeros(len(columns.series), np.bool_)
    problems: dict[str, Problem] = {}
    numbers, times, bits = columns.series.tolist(), columns.times_ms.tolist(), bits_of(columns.values).tolist()
    for place, (series, time_ms, value_bits) in enumerate(zip(numbers, times, bits, strict=True)):
        known = stored.get((series, time_ms))
        if known is None:
            new[place] = True
            if time_ms < int(newest[series]) - window.late_ms:
                message = (
                    f"a sample of {_shown(time_ms)} comes after one of {_shown(int(newest[series]))}; "
                    f"send a series' samples in order, at most {window.late_ms / 1000:g} s late"
                )
                problems.setdefault("out_of_order", Problem("/samples", "out_of_order", message))
        elif known != value_bits:
            problems.setdefault("duplicate", _clash(time_ms))
    return new, list(problems.values())


def _clash(time_ms: int) -> Problem:
    message = f"a series has two values at {_shown(time_ms)}; send one value a time"
    return Problem("/samples", "duplicate", message)


def _shown(time_ms: int) -> str:
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"
