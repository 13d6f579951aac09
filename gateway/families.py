"""The metric families of a gateway, and which of their series have changed since they were last looked at."""

from __future__ import annotations

from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.registry import Collector

Kind = TypeVar("Kind", Counter, Histogram)
Other = TypeVar("Other", bound=Collector)
Values = tuple[str, ...]


class Family(Generic[Kind]):
    """A metric with labels. `names`: of the labels; `children`: by their values.

    Whoever asks for a child changes it: that is how a look at all of them, which takes seconds where there are
    thousands of tenants, is spared.
    """

    def __init__(self, metric: Kind, names: Values) -> None:
        self.names = names
        self.children: dict[Values, Kind] = {}
        self._metric: Kind = metric
        self._touched: set[Values] = set()

    def labels(self, *values: str) -> Kind:
        """The child of these values, which is about to change."""
        self._touched.add(values)
        child = self.children.get(values)
        if child is None:
            child = self.children[values] = self._metric.labels(*values)
        return child

    def touch(self, values: Values) -> None:
        """A child that is already known is about to change."""
        self._touched.add(values)

    def take_touched(self) -> set[Values]:
        """The values of all children that were touched since the last call. Call it in the event loop."""
        touched, self._touched = self._touched, set()
        return touched


AnyFamily = Family[Counter] | Family[Histogram]


class Families:
    """`registry`: all, for the page. `labelled`: those whose changes are known; `others`: those that are always few."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.labelled: list[AnyFamily] = []
        self.others = CollectorRegistry()

    def counter(self, name: str, text: str, labels: Values) -> Family[Counter]:
        family = Family(Counter(_full(name), text, labels, registry=self.registry), labels)
        self.labelled.append(family)
        return family

    def histogram(self, name: str, text: str, labels: Values, buckets: tuple[float, ...]) -> Family[Histogram]:
        family = Family(Histogram(_full(name), text, labels, buckets=buckets, registry=self.registry), labels)
        self.labelled.append(family)
        return family

    def total(self, name: str, text: str) -> Counter:
        """A counter without labels."""
        return self._other(Counter(_full(name), text, registry=self.registry))

    def gauge(self, name: str, text: str, labels: Values = ()) -> Gauge:
        return self._other(Gauge(_full(name), text, labels, registry=self.registry))

    def _other(self, metric: Other) -> Other:
        self.others.register(metric)
        return metric


def _full(name: str) -> str:
    return f"headworks_gateway_{name}"
