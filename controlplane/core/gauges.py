"""What the control plane knows of its fleet and of itself, as metric families: each app gives its own.

The page /metrics shows them to scrapers, and the worker keeps them in the metric store, so that a control plane that
nobody scrapes alerts on itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

from django.db import Error
from prometheus_client.core import GaugeMetricFamily, Metric

log = logging.getLogger(__name__)

Source = Callable[[datetime], Iterable[Metric]]
_sources: list[Source] = []


def register(source: Source) -> None:
    """`source`: of a moment the families as they are then, read from rows by a few cheap queries."""
    if source not in _sources:
        _sources.append(source)


def families(now: datetime) -> Iterator[Metric]:
    """All of them. What cannot be read now is absent, not 0."""
    for source in _sources:
        try:
            yield from list(source(now))
        except Error as error:
            log.warning("metrics of %s cannot be read: %s", source.__module__, error)


def gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    """An empty family `headworks_<name>`."""
    return GaugeMetricFamily(f"headworks_{name}", text, labels=labels)
