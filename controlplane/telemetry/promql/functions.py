"""Every function that is supported, by name, with what it is given. What is not here is refused by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from controlplane.telemetry.promql import regression, variance, windows
from controlplane.telemetry.promql.dates import DATE_PARTS, date_part
from controlplane.telemetry.promql.errors import Unanswerable
from controlplane.telemetry.promql.histograms import histogram_quantile
from controlplane.telemetry.promql.mathematics import ELEMENTWISE
from controlplane.telemetry.promql.relabelling import label_join, label_replace
from controlplane.telemetry.promql.values import Scalar, Value, Vector, Windows
from controlplane.telemetry.store.columns import Floats, Ints

# Prometheus: a change within the window that the samples only span in part is extended to its edges.
_RANGE_FUNCTIONS: dict[str, Callable[[Windows], Vector]] = {
    "rate": partial(windows.extrapolated, counter=True, per_second=True),
    "increase": partial(windows.extrapolated, counter=True, per_second=False),
    "delta": partial(windows.extrapolated, counter=False, per_second=False),
    "irate": windows.instant_rate,
    "idelta": windows.instant_delta,
    "changes": windows.changes,
    "resets": windows.resets,
    "deriv": regression.deriv,
    "min_over_time": windows.min_over_time,
    "max_over_time": windows.max_over_time,
    "count_over_time": windows.count_over_time,
    "present_over_time": windows.present_over_time,
    "first_over_time": windows.first_over_time,
    "last_over_time": windows.last_over_time,
}
# Those that go through the samples one by one, with an eye on the time.
_STEPWISE: dict[str, Callable[[Windows, Callable[[int], None]], Vector]] = {
    "sum_over_time": windows.sum_over_time,
    "avg_over_time": windows.avg_over_time,
    "stdvar_over_time": variance.stdvar_over_time,
    "stddev_over_time": variance.stddev_over_time,
}
_KEEPS_NAME = frozenset({"first_over_time", "last_over_time"})
# The ones that look at every sample of every window, however much these overlap.
READS_WHOLE_WINDOWS = frozenset(
    {
        *_STEPWISE,
        "min_over_time",
        "max_over_time",
        "quantile_over_time",
        "deriv",
        "predict_linear",
    }
)


@dataclass(frozen=True)
class Context:
    """The steps of a query, labels that the equality matchers of an argument give (for `absent`), and the budget."""

    times_ms: Ints
    selector_labels: Mapping[str, str]
    touch: Callable[[int], None]


def _time(context: Context) -> Value:
    return Scalar(context.times_ms / 1000)


def _timestamp(context: Context, vector: Vector) -> Value:
    # What is no selector has its values at the steps; the evaluation answers for selectors itself.
    return vector.with_values(np.broadcast_to(context.times_ms / 1000, vector.values.shape)).without_name()


def _pi(context: Context) -> Value:
    return Scalar(np.full(len(context.times_ms), np.pi))


def _vector(context: Context, scalar: Scalar) -> Vector:
    values = scalar.values[None, :]
    return Vector([{}], values, np.ones(values.shape, np.bool_))


def _scalar(context: Context, vector: Vector) -> Value:
    alone = vector.present.sum(axis=0) == 1
    # With -0 nothing changes, not even -0.
    summed = np.where(vector.present, vector.values, -0.0).sum(axis=0, initial=-0.0)
    return Scalar(np.where(alone, summed, np.nan))


def _absent(context: Context, vector: Vector) -> Value:
    nothing = ~np.any(vector.present, axis=0, keepdims=True)
    return Vector([dict(context.selector_labels)], np.ones(nothing.shape), nothing)


def _clamp(context: Context, vector: Vector, low: Scalar, high: Scalar) -> Value:
    bounded = vector.with_values(_larger(low.values, _smaller(high.values, vector.values)))
    possible = ~(high.values < low.values)
    return Vector(bounded.labels, bounded.values, bounded.present & possible).without_name()


def _clamp_min(context: Context, vector: Vector, low: Scalar) -> Value:
    return vector.with_values(_larger(low.values, vector.values)).without_name()


def _clamp_max(context: Context, vector: Vector, high: Scalar) -> Value:
    return vector.with_values(_smaller(high.values, vector.values)).without_name()


def _larger(first: Floats, second: Floats) -> Floats:
    # As in Go: NaN with anything is NaN, but for infinity, which nothing exceeds.
    return np.where((first == np.inf) | (second == np.inf), np.inf, np.maximum(first, second))


def _smaller(first: Floats, second: Floats) -> Floats:
    return np.where((first == -np.inf) | (second == -np.inf), -np.inf, np.minimum(first, second))


def _round(context: Context, vector: Vector, nearest: Scalar | None = None) -> Value:
    # Halves go up, as in Prometheus; the division is inverted there too, to keep precision.
    with np.errstate(all="ignore"):
        inverse = 1.0 / (nearest.values if nearest else np.ones(len(context.times_ms)))
        return vector.with_values(np.floor(vector.values * inverse + 0.5) / inverse).without_name()


def _date_part(name: str, context: Context, vector: Vector | None = None) -> Value:
    # Of the step where no vector is given.
    return date_part(name, vector if vector is not None else _vector(context, Scalar(context.times_ms / 1000)))


def _label_replace(context: Context, vector: Vector, target: str, template: str, source: str, regex: str) -> Value:
    return label_replace(vector, target, template, source, regex, context.touch)


def _label_join(context: Context, vector: Vector, target: str, separator: str, *sources: str) -> Value:
    return label_join(vector, target, separator, sources, context.touch)


def _sort(context: Context, vector: Vector) -> Value:
    return _sorted(vector, vector.values)


def _sort_desc(context: Context, vector: Vector) -> Value:
    return _sorted(vector, -vector.values)


def _sorted(vector: Vector, keys: Floats) -> Vector:
    """Rows by their keys, NaN last. A range query's rows are in order of their labels whatever is done here."""
    return vector.rows(np.argsort(keys[:, 0], kind="stable"))


def _histogram_quantile(context: Context, quantile: Scalar, buckets: Vector) -> Value:
    return histogram_quantile(quantile, buckets)


def _quantile_over_time(context: Context, quantile: Scalar, samples: Windows) -> Value:
    return _unnamed(windows.quantile_over_time(quantile, samples))


def _predict_linear(context: Context, samples: Windows, seconds: Scalar) -> Value:
    return _unnamed(regression.predict_linear(samples, seconds, context.times_ms))


def _absent_over_time(context: Context, samples: Windows) -> Value:
    return windows.absent_over_time(context.selector_labels, samples)


def _over_range(name: str, context: Context, samples: Windows) -> Value:
    result = _RANGE_FUNCTIONS[name](samples)
    return result if name in _KEEPS_NAME else _unnamed(result)


def _stepwise(name: str, context: Context, samples: Windows) -> Value:
    return _unnamed(_STEPWISE[name](samples, context.touch))


def _unnamed(vector: Vector) -> Vector:
    """As Prometheus does after functions over ranges: rows that become the same never join, however their steps lie."""
    unnamed = vector.without_name()
    if len(unnamed.labels) < len(vector.labels):
        alive = vector.rows(np.flatnonzero(vector.present.any(axis=1)))
        if len(alive.without_name().labels) < len(alive.labels):
            raise Unanswerable("vector cannot contain metrics with the same labelset")
    return unnamed


def _each(name: str, context: Context, vector: Vector) -> Value:
    with np.errstate(all="ignore"):
        return vector.with_values(ELEMENTWISE[name](vector.values)).without_name()


# The parser has checked the number and types of arguments.
CALLS: dict[str, Callable[..., Value]] = {
    **{name: partial(_over_range, name) for name in _RANGE_FUNCTIONS},
    **{name: partial(_stepwise, name) for name in _STEPWISE},
    **{name: partial(_each, name) for name in ELEMENTWISE},
    **{name: partial(_date_part, name) for name in DATE_PARTS},
    "quantile_over_time": _quantile_over_time,
    "predict_linear": _predict_linear,
    "absent_over_time": _absent_over_time,
    "histogram_quantile": _histogram_quantile,
    "clamp": _clamp,
    "clamp_min": _clamp_min,
    "clamp_max": _clamp_max,
    "round": _round,
    "sort": _sort,
    "sort_desc": _sort_desc,
    "label_replace": _label_replace,
    "label_join": _label_join,
    "absent": _absent,
    "scalar": _scalar,
    "vector": _vector,
    "timestamp": _timestamp,
    "time": _time,
    "pi": _pi,
}


def call(name: str, context: Context, arguments: list[Value]) -> Value:
    """`name` is one of CALLS."""
    return CALLS[name](context, *arguments)
