"""Samples of the node's parts on their way out, each with its node, and an end for series that vanish."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, NoReturn

from gpu_agent.samples import Sample
from wire.push import MetricPush
from wire.write_body import METRIC_NAME, STALE, Series

# Parts that are read together come within this time, and go out in one body.
_GATHER_SECONDS = 0.05
# What a disk and a control plane that both stand still may hold up; then the oldest go.
_SERIES_IN_MEMORY = 50_000
# A metric, its labels' names and their values: of one part, these tell series apart.
_Identity = tuple[str, ...]


class LivePart(NamedTuple):
    """The series that one part gave last, and the value of each, in one order. It is replaced, never changed."""

    labels: Collection[Mapping[str, str]]
    values: array[float]


class Telemetry:
    """Takes samples by part (the GPUs, an engine, the agent) whenever one has some, pushes them and keeps the last."""

    def __init__(self, node: str, push: MetricPush) -> None:
        self._node, self._push = node, push
        # What each part gave last, by part.
        self._given: dict[str, dict[_Identity, Mapping[str, str]]] = {}
        self._values: dict[str, array[float]] = {}
        self._waiting: list[Series] = []
        self._added = asyncio.Event()

    def add(self, part: str, samples: Iterable[Sample]) -> None:
        """All samples of a part. A series that it gave before and does not give now ends.

        A part names a series' labels in the same order each time. Of a series that is given twice the first one counts.
        """
        now_ms = _now_ms()
        before = self._given.get(part, {})
        given: dict[_Identity, Mapping[str, str]] = {}
        values = array("d")
        fresh = []
        for name, own_labels, value, at_ms in samples:
            identity = (name, *own_labels, *own_labels.values())
            if identity in given:
                continue
            # One map of labels for each series, however often it is given.
            labels = before.get(identity) or {METRIC_NAME: name, "node": self._node, **own_labels}
            given[identity] = labels
            values.append(value)
            fresh.append(Series(labels, [(at_ms or now_ms, value)]))
        self._given[part], self._values[part] = given, values
        self._wait(fresh + _ends((before[identity] for identity in before.keys() - given.keys()), now_ms))

    def end(self, part: str) -> None:
        """The part is gone, and its series end."""
        if series := self._given.pop(part, None):
            del self._values[part]
            self._wait(_ends(series.values(), _now_ms()))

    def live(self) -> list[LivePart]:
        """Every series that has not ended."""
        return [LivePart(labels.values(), self._values[part]) for part, labels in self._given.items()]

    async def run(self) -> NoReturn:
        """Push what comes. A control plane that stalls holds up no reading."""
        while True:
            await self._added.wait()
            await asyncio.sleep(_GATHER_SECONDS)
            self._added.clear()
            await self._push.put(self.waiting())

    def waiting(self) -> list[Series]:
        """Take what waits to be pushed, oldest first."""
        taken, self._waiting = self._waiting, []
        return taken

    def _wait(self, series: list[Series]) -> None:
        if series:
            self._waiting = _newest(self._waiting + series, _SERIES_IN_MEMORY)
            self._added.set()


def _newest(waiting: list[Series], limit: int) -> list[Series]:
    """The last `limit`, and the last end of each series before them: without it the series would seem to go on."""
    if len(waiting) <= limit:
        return waiting
    ends = {tuple(each.labels.items()): each for each in waiting[:-limit] if _is_end(each)}
    return [*ends.values(), *waiting[-limit:]]


def _ends(vanished: Iterable[Mapping[str, str]], now_ms: int) -> list[Series]:
    return [Series(labels, [(now_ms, STALE)]) for labels in vanished]


def _is_end(series: Series) -> bool:
    # Other values may be NaN as well, and no NaN equals another.
    return series.samples[0][1] is STALE


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
