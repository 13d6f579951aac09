"""Every function that is supported, by name, with what it is given. What is not here is refused by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from controlplane.telemetry.promql import windows
from controlplane.telemetry.promql.errors import Unanswerable
from controlplane.telemetry.promql.histograms import histogram_quantile
from controlplane.telemetry.promql.values import Scalar, Value, Vector, Windows
from controlplane.telemetry.store.columns import Floats, Ints

# Prometheus: a change within the window that the samples only span in part is extended to its edges.
_RANGE_FUNCTIONS: dict[str, Callable[[Windows], Vector]] = {
    "rate": partial(windows.extrapolated, counter=True, per_second=True),
    "increase": partial(windows.extrapolated, counter=True, per_second=False),
    "delta": partial(windows.extrapolated, counter=False, per_second=False),
    "irate": windows.instant_rate,
    "sum_over_time": windows.sum_over_time,
    "avg_over_time": windows.avg_over_time,
    "min_over_time": windows.min_over_time,
    "max_over_time": windows.max_over_time,
    "count_over_time": windows.count_over_time,
    "present_over_time": windows.present_over_time,
    "last_over_time": windows.last_over_time,
}
_KEEPS_NAME = frozenset({"last_over_time"})
# The ones that look at every sample of every window, however much these overlap.
READS_WHOLE_WINDOWS = frozenset(
    {"sum_over_time", "avg_over_time", "min_over_time", "max_over_time", "quantile_over_time"}
)

_ELEMENTWISE: dict[str, Callable[[Floats], Floats]] = {
    "abs": np.abs,
    "ceil": np.ceil,
    "floor": np.floor,
    "exp": np.exp,
    "ln": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "sqrt": np.sqrt,
    "sgn": np.sign,
}


@dataclass(frozen=True)
class Context:
    """The steps of a query, and labels that the equality matchers of an argument give (for `absent`)."""

    times_ms: Ints
    selector_labels: Mapping[str, str]


def _time(context: Context) -> Value:
    return Scalar(context.times_ms / 1000)


def _vector(context: Context, scalar: Scalar) -> Value:
    values = scalar.values[None, :]
    return Vector([{}], values, np.ones(values.shape, np.bool_))


def _scalar(context: Context, vector: Vector) -> Value:
    alone = vector.present.sum(axis=0) == 1
    summed = np.where(vector.present, vector.values, 0.0).sum(axis=0)
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
    inverse = 1.0 / (nearest.values if nearest else np.ones(len(context.times_ms)))
    with np.errstate(all="ignore"):
        return vector.with_values(np.floor(vector.values * inverse + 0.5) / inverse).without_name()


def _histogram_quantile(context: Context, quantile: Scalar, buckets: Vector) -> Value:
    return histogram_quantile(quantile, buckets)


def _quantile_over_time(context: Context, quantile: Scalar, samples: Windows) -> Value:
    return windows.quantile_over_time(quantile, samples).without_name()


def _over_range(name: str, context: Context, samples: Windows) -> Value:
    result = _RANGE_FUNCTIONS[name](samples)
    return result if name in _KEEPS_NAME else result.without_name()


def _each(name: str, context: Context, vector: Vector) -> Value:
    with np.errstate(all="ignore"):
        return vector.with_values(_ELEMENTWISE[name](vector.values)).without_name()


# The parser has checked the number and types of arguments.
CALLS: dict[str, Callable[..., Value]] = {
    **{name: partial(_over_range, name) for name in _RANGE_FUNCTIONS},
    **{name: partial(_each, name) for name in _ELEMENTWISE},
    "quantile_over_time": _quantile_over_time,
    "histogram_quantile": _histogram_quantile,
    "clamp": _clamp,
    "clamp_min": _clamp_min,
    "clamp_max": _clamp_max,
    "round": _round,
    "absent": _absent,
    "scalar": _scalar,
    "vector": _vector,
    "time": _time,
}


def call(name: str, context: Context, arguments: list[Value]) -> Value:
    """`name` is one of CALLS."""
    if any(isinstance(argument, str) for argument in arguments):
        raise Unanswerable(f"{name}() takes no text")
    return CALLS[name](context, *arguments)
