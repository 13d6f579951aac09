"""`expr[range:step]`: an expression's values at steps of its own, as the samples of a range."""

from __future__ import annotations

import numpy as np

from controlplane.telemetry.promql.values import Vector, Windows
from controlplane.telemetry.store.columns import Ints


def grid(after_ms: int, until_ms: int, step_ms: int) -> range:
    """The multiples of `step_ms` that are later than `after_ms` and not later than `until_ms`.

    Absolute, so that a panel that moves on sees the same moments again.
    """
    return range((after_ms // step_ms + 1) * step_ms, until_ms + 1, step_ms)


def windows_of(vector: Vector, times_ms: Ints, ends_ms: Ints, range_ms: int) -> Windows:
    """What `vector` gave at `times_ms`, ascending, as samples of the windows that end at `ends_ms`."""
    rows, places = np.nonzero(vector.present)
    # For each row and time: where its sample is, or the next one.
    before = np.zeros((len(vector.labels), len(times_ms) + 1), np.int64)
    np.cumsum(vector.present, axis=1, out=before[:, 1:])
    before += np.searchsorted(rows, np.arange(len(vector.labels)))[:, None]
    lo, hi = (before[:, np.searchsorted(times_ms, at, side="right")] for at in (ends_ms - range_ms, ends_ms))
    return Windows(vector.labels, times_ms[places], vector.values[vector.present], lo, hi, ends_ms, range_ms)
