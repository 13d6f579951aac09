"""Samples of the node's parts on their way out, each with its node, and an end for series that vanish."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping
from typing import NoReturn

from gpu_agent.samples import Sample
from wire.push import MetricPush
from wire.remote_write import METRIC_NAME, STALE, Series

# Parts that are read together come within this time, and go out in one body.
_GATHER_SECONDS = 0.05
# What a disk and a control plane that both stand still may hold up; then the oldest go.
_SERIES_IN_MEMORY = 50_000
# A metric and its labels' values: of one part, these tell series apart.
_Identity = tuple[str, ...]


class Telemetry:
    """Takes samples by part (the GPUs, an engine, the agent) whenever one has some, and pushes them."""

    def __init__(self, node: str, push: MetricPush) -> None:
        self._node, self._push = node, push
        # What each part gave last, by part.
        self._given: dict[str, dict[_Identity, Mapping[str, str]]] = {}
        self._waiting: list[Series] = []
        self._added = asyncio.Event()

    def add(self, part: str, samples: Iterable[Sample]) -> None:
        """All samples of a part. A series that it gave before and does not give now ends."""
        now_ms = _now_ms()
        before = self._given.get(part, {})
        given: dict[_Identity, Mapping[str, str]] = {}
        fresh = []
        for name, own_labels, value, at_ms in samples:
            identity = (name, *own_labels.values())
            # One map of labels for each series, however often it is given.
            labels = before.get(identity) or {METRIC_NAME: name, "node": self._node, **own_labels}
            given[identity] = labels
            fresh.append(Series(labels, [(at_ms or now_ms, value)]))
        self._given[part] = given
        self._wait(fresh + _ends((before[identity] for identity in before.keys() - given.keys()), now_ms))

    def keep_only(self, parts: Collection[str]) -> None:
        """End the series of every other part."""
        for gone in self._given.keys() - parts:
            self._wait(_ends(self._given.pop(gone).values(), _now_ms()))

    async def run(self) -> NoReturn:
        """Push what comes. A control plane that stalls holds up no reading."""
        while True:
            await self._added.wait()
            await asyncio.sleep(_GATHER_SECONDS)
            self._added.clear()
            body, self._waiting = self._waiting, []
            await self._push.put(body)

    def _wait(self, series: list[Series]) -> None:
        if series:
            self._waiting = (self._waiting + series)[-_SERIES_IN_MEMORY:]
            self._added.set()


def _ends(vanished: Iterable[Mapping[str, str]], now_ms: int) -> list[Series]:
    return [Series(labels, [(now_ms, STALE)]) for labels in vanished]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
