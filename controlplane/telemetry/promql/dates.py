"""Parts of a date, in UTC, from Unix times in seconds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from controlplane.telemetry.promql.errors import Unanswerable
from controlplane.telemetry.promql.values import Vector
from controlplane.telemetry.store.columns import Floats, Ints

Moments = NDArray[np.datetime64]

# 1 January of year 1, and the end of year 9999. Beyond, what Go makes of a float depends on the processor.
_OLDEST_SECONDS, _NEWEST_SECONDS = -62_135_596_800, 253_402_300_799


def _since(unit: str, whole: str) -> Callable[[Moments], Ints]:
    """Whole `unit`s since the `whole` began: a numpy code each."""

    def count(moments: Moments) -> Ints:
        units = moments.astype(f"datetime64[{unit}]")
        counts: Ints = (units - moments.astype(f"datetime64[{whole}]").astype(units.dtype)).astype(np.int64)
        return counts

    return count


def _days_in_month(moments: Moments) -> Ints:
    months = moments.astype("datetime64[M]")
    days: Ints = ((months + 1).astype("datetime64[D]") - months.astype("datetime64[D]")).astype(np.int64)
    return days


# The first day of Unix time was a Thursday; Sunday is 0.
DATE_PARTS: dict[str, Callable[[Moments], Ints]] = {
    "year": lambda moments: moments.astype("datetime64[Y]").astype(np.int64) + 1970,
    "month": lambda moments: _since("M", "Y")(moments) + 1,
    "day_of_month": lambda moments: _since("D", "M")(moments) + 1,
    "day_of_year": lambda moments: _since("D", "Y")(moments) + 1,
    "day_of_week": lambda moments: (moments.astype("datetime64[D]").astype(np.int64) + 4) % 7,
    "days_in_month": _days_in_month,
    "hour": _since("h", "D"),
    "minute": _since("m", "h"),
}


def date_part(name: str, times: Vector) -> Vector:
    """`name` is one of DATE_PARTS; fractions of a second are cut off. Raises Unanswerable."""
    seconds = np.where(times.present, times.values, 0.0)
    if not np.all((seconds >= _OLDEST_SECONDS) & (seconds <= _NEWEST_SECONDS)):
        raise Unanswerable(f"{name}() takes Unix times in seconds of the years 1 to 9999")
    return times.with_values(_part(name, seconds)).without_name()


def _part(name: str, seconds: Floats) -> Floats:
    # Towards zero, as Go converts.
    return DATE_PARTS[name](seconds.astype(np.int64).astype("datetime64[s]")).astype(np.float64)
