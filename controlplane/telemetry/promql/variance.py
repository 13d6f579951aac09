"""stdvar_over_time and stddev_over_time, step by step as Prometheus: of large numbers that differ little it is the
rounding of each step that makes the result. Source: prometheus/promql/functions.go, version 3.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from controlplane.telemetry.promql.summation import add_compensated
from controlplane.telemetry.promql.values import Vector, Windows
from controlplane.telemetry.promql.windows import in_turn, longest_first, spread
from controlplane.telemetry.store.columns import Floats, Ints


def stdvar_over_time(windows: Windows, touch: Callable[[int], None]) -> Vector:
    """Of the population. `touch` raises where the query has taken too long."""
    present = windows.hi > windows.lo
    return spread(windows, present, _variances(windows.values, windows.lo[present], windows.hi[present], touch))


def stddev_over_time(windows: Windows, touch: Callable[[int], None]) -> Vector:
    variances = stdvar_over_time(windows, touch)
    with np.errstate(invalid="ignore"):
        return variances.with_values(np.sqrt(variances.values))


def _variances(values: Floats, lo: Ints, hi: Ints, touch: Callable[[int], None]) -> Floats:
    """Welford's method, its two sums compensated."""
    mean, mean_rest, squares, squares_rest = np.zeros((4, len(lo)))
    order = longest_first(lo, hi)
    with np.errstate(all="ignore"):
        for place, at in enumerate(in_turn(lo[order], hi[order], touch)):
            here, samples = slice(len(at)), values[at]
            off = samples - (mean[here] + mean_rest[here])
            add_compensated(off / (place + 1), mean[here], mean_rest[here])
            add_compensated(off * (samples - (mean[here] + mean_rest[here])), squares[here], squares_rest[here])
        result = np.empty(len(lo))
        result[order] = (squares + squares_rest) / (hi - lo)[order]
    return result
