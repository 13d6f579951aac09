"""The control plane's own series: written into the metric store, so that it alerts on itself without a scraper.

What it knows from its rows one worker writes each interval, however many there are, with the label `job`; what a web
process counts that process writes, with the label `instance` beside it.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from django.utils import timezone
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from controlplane import settings_rows
from controlplane.core import gauges
from controlplane.core.fields import epoch_ms, from_epoch_ms
from controlplane.core.idle import give_back_connection
from controlplane.telemetry import settings_rows as rows
from controlplane.telemetry.models import OwnSeriesTurn
from controlplane.telemetry.recording.writing import NotWritten, write
from wire.write_body import METRIC_NAME, STALE, Series

log = logging.getLogger(__name__)

JOB = "headworks"
Labels = dict[str, str]
Identity = tuple[tuple[str, str], ...]


class OwnSeries:
    """Writes families as they are now, and ends the series that it wrote before and that are no more.

    Those that another process wrote end by the look-back.
    """

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels = labels
        self._alive: dict[Identity, Labels] = {}

    def put(self, families: Iterable[Metric], at_ms: int) -> int:
        """How many series there are. Raises NotWritten."""
        found = {tuple(sorted(labels.items())): (labels, value) for labels, value in self._samples(families)}
        ended = [labels for identity, labels in self._alive.items() if identity not in found]
        series = [Series(labels, [(at_ms, value)]) for labels, value in found.values()]
        write([*series, *(Series(labels, [(at_ms, STALE)]) for labels in ended)], at_ms)
        self._alive = {identity: labels for identity, (labels, _) in found.items()}
        return len(found)

    def _samples(self, families: Iterable[Metric]) -> Iterator[tuple[Labels, float]]:
        for family in families:
            # When a counter began, as a series of its own: no query asks for it.
            created = f"{family.name}_created"
            for sample in family.samples:
                if sample.name != created:
                    given = {name: value for name, value in sample.labels.items() if value}
                    yield {**given, **self._labels, METRIC_NAME: sample.name}, sample.value


_fleet = OwnSeries({"job": JOB})


def record(now: datetime) -> int:
    """Write what is known of the fleet and of this control plane, if it is time; how many series."""
    at_ms = claim(epoch_ms(now))
    if at_ms is None:
        return 0
    try:
        return _fleet.put(gauges.families(from_epoch_ms(at_ms)), at_ms)
    except NotWritten as error:
        log.warning("the control plane's own series are not kept: %s", error)
        return 0


def claim(now_ms: int) -> int | None:
    """The moment to write of; None: it is not time. Of several workers one changes the row."""
    interval_ms = rows.OWN_SERIES_INTERVAL_SECONDS.read() * 1000
    turn, _ = OwnSeriesTurn.objects.get_or_create(pk=1)
    at_ms = now_ms - now_ms % interval_ms
    # A clock that was set back may not stop it.
    if at_ms == turn.taken_ms or 0 < turn.taken_ms - at_ms < interval_ms:
        return None
    unclaimed = OwnSeriesTurn.objects.filter(pk=1, taken_ms=turn.taken_ms)
    return at_ms if unclaimed.update(taken_ms=at_ms) else None


class ProcessSeries:
    """What one web process counts, written by a thread of it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._series = OwnSeries({"job": JOB, "instance": f"{socket.gethostname()}:{settings_rows.PORT.read()}"})
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, name="own-series", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def _run(self) -> None:
        interval_seconds = rows.OWN_SERIES_INTERVAL_SECONDS.read()
        while not self._stopping.wait(interval_seconds - time.time() % interval_seconds):
            try:
                self._series.put(self._registry.collect(), epoch_ms(timezone.now()))
            except NotWritten as error:
                log.warning("what this process counts is not kept: %s", error)
            except Exception:
                # The next round may do better; without this thread the process would say nothing of itself any more.
                log.exception("what this process counts cannot be kept")
            finally:
                give_back_connection()
