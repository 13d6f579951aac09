"""The gateway's own series, pushed to the control plane beside the page that can be scraped.

The gateway serves on whatever becomes of them: what cannot be sent waits in a spool of the state directory.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import Metric

from gateway.metrics import UNKNOWN, Moment
from gateway.state import NOTHING_YET, Gateway
from gateway.view import View
from wire.push import MetricPush
from wire.write_body import METRIC_NAME, STALE, Series

log = logging.getLogger("headworks.gateway")

Labels = Mapping[str, str]
# Series by what tells one from another.
Alive = dict[tuple[tuple[str, str], ...], Labels]


class SeriesPush:
    """Pushes every `interval_seconds`; each series carries `gateway=<name>`."""

    def __init__(self, name: str, gateway: Gateway, push: MetricPush, interval_seconds: float) -> None:
        self._name, self._gateway, self._push = name, gateway, push
        self._interval_seconds = interval_seconds
        self._sent: Alive = {}
        self._sent_at_ms = 0

    async def run(self) -> None:
        """Push, and send what waits, until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._push.run())
                tasks.create_task(self._push_in_time())
        except* Exception:
            log.exception("metrics are no longer pushed")

    async def end(self) -> None:
        """Tell that all series end here, so that no query takes them for alive; once `run` was cancelled."""
        at_ms = max(self._gateway.unix_ms(), self._sent_at_ms + 1)
        await self._push.put(_stale(self._sent.values(), at_ms))
        self._sent = {}

    async def _push_in_time(self) -> None:
        loop = asyncio.get_running_loop()
        # Gateways that are started together do not push together.
        due = loop.time() + random.uniform(0, self._interval_seconds)  # noqa: S311 - spreads load
        while True:
            await asyncio.sleep(due - loop.time())
            await self._push_now()
            due = max(due + self._interval_seconds, loop.time())

    async def _push_now(self) -> None:
        gateway = self._gateway
        moment, view, now_ms = gateway.moment(), gateway.view or NOTHING_YET, gateway.unix_ms()
        series, alive = await asyncio.to_thread(self._series, moment, view, now_ms, self._sent)
        self._sent, self._sent_at_ms = alive, now_ms
        await self._push.put(series)

    def _series(self, moment: Moment, view: View, now_ms: int, before: Alive) -> tuple[list[Series], Alive]:
        """One sample of each series and an end for those that are no more; and which are alive."""
        alive: Alive = {}
        series = []
        for labels, value in samples(self._gateway.metrics.families(moment), view, self._name):
            alive[tuple(labels.items())] = labels
            series.append(Series(labels, ((now_ms, value),)))
        gone = (labels for identity, labels in before.items() if identity not in alive)
        return series + _stale(gone, now_ms), alive


def samples(families: Iterable[Metric], view: View, name: str) -> Iterator[tuple[Labels, float]]:
    """The samples of a registry that speak of what is configured now, labelled for the store.

    The registry goes on counting for a tenant, pool, class or model that was removed; to the store such a series has
    ended.
    """
    configured = view.snapshot
    pools, tenants, classes, models = (
        names.keys() | {UNKNOWN}
        for names in (configured.pools, configured.tenants, configured.priority_classes, configured.models)
    )
    for family in families:
        # When a counter began, as a series of its own: no query asks for it.
        created = f"{family.name}_created"
        for sample in family.samples:
            labels = sample.labels
            if (
                sample.name != created
                and labels.get("pool", UNKNOWN) in pools
                and labels.get("tenant", UNKNOWN) in tenants
                and labels.get("priority_class", UNKNOWN) in classes
                and labels.get("model", UNKNOWN) in models
            ):
                yield {METRIC_NAME: sample.name, "gateway": name, **labels}, sample.value


def _stale(ended: Iterable[Labels], at_ms: int) -> list[Series]:
    return [Series(labels, ((at_ms, STALE),)) for labels in ended]
