"""Which rows an aggregation takes together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from controlplane.telemetry.promql.values import Identity, Labels, dropped, identity, kept
from controlplane.telemetry.store.columns import Ints
from wire.write_body import METRIC_NAME


@dataclass(frozen=True)
class Grouping:
    """`by (names)`, or `without (names)`; no clause is `by ()`."""

    names: Sequence[str] = ()
    without: bool = False

    def of(self, labels: Labels) -> Labels:
        return dropped(labels, (*self.names, METRIC_NAME)) if self.without else kept(labels, self.names)


def numbered(rows: Sequence[Labels], grouping: Grouping) -> tuple[list[Labels], Ints]:
    """The labels of each group, and for each row the number of its group."""
    number_of: dict[Identity, int] = {}
    labels: list[Labels] = []
    numbers = np.empty(len(rows), np.int64)
    for row, own in enumerate(rows):
        group = grouping.of(own)
        numbers[row] = number_of.setdefault(identity(group), len(labels))
        if numbers[row] == len(labels):
            labels.append(group)
    return labels, numbers
