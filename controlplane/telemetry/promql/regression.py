"""deriv and predict_linear: a line through the samples of a window.

Source: prometheus/promql/functions.go, version 3.
"""

from __future__ import annotations

import numpy as np

from controlplane.telemetry.promql.values import Scalar, Vector, Windows
from controlplane.telemetry.promql.windows import Block, blocks, spread
from controlplane.telemetry.store.columns import Floats, Ints


def deriv(windows: Windows) -> Vector:
    """The line's slope, per second."""
    present = windows.hi - windows.lo >= 2
    lo, hi = windows.lo[present], windows.hi[present]
    slopes, _ = _lines(windows, lo, hi, windows.times_ms[lo])
    return spread(windows, present, slopes)


def predict_linear(windows: Windows, seconds: Scalar, times_ms: Ints) -> Vector:
    """The line's value `seconds` after each of the steps' `times_ms`."""
    present = windows.hi - windows.lo >= 2
    now = np.broadcast_to(times_ms, present.shape)[present]
    ahead = np.broadcast_to(seconds.values, present.shape)[present]
    slopes, values = _lines(windows, windows.lo[present], windows.hi[present], now)
    with np.errstate(all="ignore"):
        return spread(windows, present, slopes * ahead + values)


def _lines(windows: Windows, lo: Ints, hi: Ints, origins_ms: Ints) -> tuple[Floats, Floats]:
    """Slope (per second) of each window's line, and its value at the window's origin."""
    slopes, intercepts = np.empty(len(lo)), np.empty(len(lo))
    for block in blocks(lo, hi):
        seconds = (windows.times_ms[block.places] - np.repeat(origins_ms[block.chosen], block.counts)) / 1000
        slopes[block.chosen], intercepts[block.chosen] = _line(block, seconds, windows.values[block.places])
    return slopes, intercepts


def _line(block: Block, x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """By least squares."""
    first = y[block.starts]
    count = block.counts
    with np.errstate(all="ignore"):
        sum_x, sum_y, sum_xy, sum_xx = (_sums(block, samples) for samples in (x, y, x * y, x * x))
        slope = (sum_xy - sum_x * sum_y / count) / (sum_xx - sum_x * sum_x / count)
        intercept = sum_y / count - slope * sum_x / count
    # Where all values are one, rounding shall not tilt the line. NaN is no such value, as it equals nothing.
    flat = np.logical_and.reduceat(y == block.of_each(first), block.starts)
    level = np.where(np.isinf(first), np.nan, first)
    return np.where(flat, np.where(np.isinf(first), np.nan, 0.0), slope), np.where(flat, level, intercept)


def _sums(block: Block, samples: Floats) -> Floats:
    # In long double, where Prometheus sums with a compensation.
    return np.add.reduceat(samples, block.starts, dtype=np.longdouble).astype(np.float64)
