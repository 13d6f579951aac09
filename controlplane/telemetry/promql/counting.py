"""`count_values`: how many rows of a group have a value, one result row a value."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from controlplane.telemetry.promql.errors import Unanswerable
from controlplane.telemetry.promql.grouping import Grouping, numbered
from controlplane.telemetry.promql.values import Labels, Vector, dropped, empty
from controlplane.telemetry.store.columns import Floats, Ints
from wire.write_body import METRIC_NAME


def count_values(label: str, vector: Vector, grouping: Grouping, touch: Callable[[int], None]) -> Vector:
    """`label` gets the value. `touch` is told of the result's size before it is made. Raises Unanswerable."""
    if not label:
        raise Unanswerable('invalid label name ""')
    steps = vector.values.shape[1]
    rows, at = np.nonzero(vector.present)
    if not len(rows):
        return empty(steps)
    groups, group_of = numbered([dropped(labels, (label,)) for labels in vector.labels], grouping)
    distinct, value_of = _distinct(vector.values[rows, at])
    # A label that the clause drops tells no values apart.
    shown = not grouping.without or label not in (*grouping.names, METRIC_NAME)
    keys = group_of[rows] * len(distinct) + value_of if shown else group_of[rows]
    keys, row_of = np.unique(keys, return_inverse=True)
    touch(len(keys) * steps)
    counts = np.zeros((len(keys), steps))
    np.add.at(counts, (row_of, at), 1)
    if not shown:
        return Vector([groups[key] for key in keys.tolist()], counts, counts > 0)
    texts = [_text(value) for value in distinct.tolist()]
    labels: list[Labels] = []
    for key in keys.tolist():
        group, value = divmod(key, len(texts))
        labels.append({**groups[group], label: texts[value]})
    return Vector(labels, counts, counts > 0)


def _distinct(values: Floats) -> tuple[Floats, Ints]:
    """By their bits, as 0 and -0 are written differently; all NaN are one."""
    bits = np.where(np.isnan(values), np.nan, values).view(np.int64)
    distinct, places = np.unique(bits, return_inverse=True)
    return distinct.view(np.float64), places


def _text(value: float) -> str:
    """As Go's FormatFloat(value, 'f', -1): the shortest digits that give the value, never with an exponent."""
    if not np.isfinite(value):
        return "NaN" if np.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return np.format_float_positional(value, trim="-")
