"""Series for the tests, and how they get into a store without HTTP."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from controlplane.telemetry.store.admission import Window
from controlplane.telemetry.store.writer import Owner, writer_of
from wire.write_body import Key, Series, key_of

ANY_TIME = Window(oldest_ms=-(2**60), newest_ms=2**60, late_ms=300_000)
MANY_SERIES = 1_000_000


def store(
    path: Path, series: Iterable[Series], owner: Owner, *, window: Window = ANY_TIME, most: int = MANY_SERIES
) -> None:
    keys: list[Key] = []
    counts: list[int] = []
    times_ms: list[int] = []
    values: list[float] = []
    fresh = {}
    writer = writer_of(path)
    for each in series:
        key = key_of(each.labels)
        keys.append(key)
        counts.append(len(each.samples))
        times_ms += [time_ms for time_ms, _ in each.samples]
        values += [value for _, value in each.samples]
        if key not in writer.known(owner):
            fresh[key] = each.labels
    writer.write(owner, keys, fresh, (counts, times_ms, values), window, most)


def named(name: str, samples: Iterable[tuple[int, float]], **labels: str) -> Series:
    """A series of node n-1, unless the labels say otherwise."""
    return Series({"__name__": name, "node": "n-1", **labels}, list(samples))
