"""The gateway's own series, pushed to the control plane beside the page that can be scraped.

The gateway serves on whatever becomes of them: what cannot be sent waits in a spool of the state directory.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Iterable, Iterator
from itertools import chain, islice

from prometheus_client.core import Metric

from gateway.changes import Changes
from gateway.metrics import Moment
from gateway.named import Labels, Named
from gateway.state import NOTHING_YET, Gateway
from wire.push import MetricPush
from wire.write_body import METRIC_NAME, STALE, Series, body_of, row

log = logging.getLogger("headworks.gateway")

# Series by what tells one from another.
Alive = dict[tuple[tuple[str, str], ...], Labels]
# A body of some 100 KB, which the control plane takes within a moment.
_BODY_SERIES = 5_000
# Python's threads take turns of 5 ms: requests wait less beside one that rests by itself.
_WORK_SECONDS = _REST_SECONDS = 0.001


class SeriesPush:
    """Pushes every `interval_seconds`; each series carries `gateway=<name>`."""

    def __init__(self, name: str, gateway: Gateway, push: MetricPush, interval_seconds: float) -> None:
        self._name, self._gateway, self._push = name, gateway, push
        self._interval_seconds = interval_seconds
        self._changes = Changes(gateway.metrics.families, name)
        # Of the few that are sent every time.
        self._sent: Alive = {}
        self._sent_at_ms = 0
        # In a thread, which goes on where the push is cancelled.
        self._encoding: asyncio.Future[bytes] | None = None

    async def run(self) -> None:
        """Push, and send what waits, until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._push.run())
                tasks.create_task(self._push_in_time())
        except* Exception:
            log.exception("metrics are no longer pushed")

    async def push_once(self) -> None:
        """Push what has to be said now. Calls do not overlap."""
        gateway = self._gateway
        moment, named, now_ms = gateway.moment(), Named(gateway.view or NOTHING_YET), gateway.unix_ms()
        touched = self._changes.take_touched()
        self._sent_at_ms = now_ms
        await self._put(chain(self._few(moment, named, now_ms), self._changes.due(touched, named, now_ms)))

    async def end(self) -> None:
        """Tell that all series end here, so that no query takes them for alive; once `run` was cancelled."""
        at_ms = max(self._gateway.unix_ms(), self._sent_at_ms + 1)
        if self._encoding is not None:
            await asyncio.wait((self._encoding,))
        await self._put(self._ends(at_ms))

    async def _push_in_time(self) -> None:
        loop = asyncio.get_running_loop()
        # Gateways that are started together do not push together.
        due = loop.time() + random.uniform(0, self._interval_seconds)  # noqa: S311 - spreads load
        while True:
            await asyncio.sleep(due - loop.time())
            await self.push_once()
            due = max(due + self._interval_seconds, loop.time())

    async def _put(self, series: Iterator[Series]) -> None:
        rows = _rested(series)
        while body := await self._next(rows):
            await self._push.put_body(body)

    async def _next(self, rows: Iterator[bytes]) -> bytes:
        self._encoding = asyncio.ensure_future(asyncio.to_thread(_next_body, rows))
        return await asyncio.shield(self._encoding)

    def _few(self, moment: Moment, named: Named, now_ms: int) -> Iterator[Series]:
        """One sample of each series that is sent every time, and an end for those that are no more."""
        alive = set()
        for labels, value in samples(self._gateway.metrics.few(moment), named, self._name):
            identity = tuple(labels.items())
            alive.add(identity)
            self._sent[identity] = labels
            yield Series(labels, ((now_ms, value),))
        yield from _stale([self._sent.pop(each) for each in self._sent.keys() - alive], now_ms)

    def _ends(self, at_ms: int) -> Iterator[Series]:
        yield from _stale(self._sent.values(), at_ms)
        yield from self._changes.end(at_ms)


def samples(families: Iterable[Metric], named: Named, name: str) -> Iterator[tuple[Labels, float]]:
    """The samples of families that speak of what is configured now, labelled for the store."""
    for family in families:
        # When a counter began, as a series of its own: no query asks for it.
        created = f"{family.name}_created"
        for sample in family.samples:
            if sample.name != created and named.takes(sample.labels):
                yield {METRIC_NAME: sample.name, "gateway": name, **sample.labels}, sample.value


def _stale(ended: Iterable[Labels], at_ms: int) -> Iterator[Series]:
    return (Series(labels, ((at_ms, STALE),)) for labels in ended)


def _rested(series: Iterator[Series]) -> Iterator[bytes]:
    """The series, encoded by a thread that rests as long as it works."""
    rests_at = time.monotonic() + _WORK_SECONDS
    for each in series:
        yield row(each)
        if time.monotonic() >= rests_at:
            time.sleep(_REST_SECONDS)
            rests_at = time.monotonic() + _WORK_SECONDS


def _next_body(rows: Iterator[bytes]) -> bytes:
    """Empty where there are no more rows."""
    some = list(islice(rows, _BODY_SERIES))
    return body_of(some) if some else b""
