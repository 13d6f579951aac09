"""Queries on the embedded store, within the limits that the settings give."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import numpy as np

from controlplane.telemetry import settings_rows as rows
from controlplane.telemetry.promql.budget import Budget
from controlplane.telemetry.promql.errors import BadQuery, TimedOut, Unavailable
from controlplane.telemetry.promql.evaluation import LOOK_BACK_MS, Evaluation
from controlplane.telemetry.promql.grammar import parse
from controlplane.telemetry.promql.values import Scalar, Value, Vector
from controlplane.telemetry.receiver import store_path
from controlplane.telemetry.store.columns import Ints
from controlplane.telemetry.store.database import StoreUnavailable
from controlplane.telemetry.store.reader import Reader, reader_of

# Prometheus' own limit of points a series.
MAX_STEPS = 11_000


def instant(promql: str, at_ms: int, *, seconds: float | None = None, look_back_ms: int = LOOK_BACK_MS) -> Value:
    """The value at one moment, as one step. Raises QueryError."""
    return _evaluated(promql, np.array([at_ms], np.int64), seconds, look_back_ms)


def ranged(
    promql: str, times_ms: Ints, end_ms: int, *, seconds: float | None = None, look_back_ms: int = LOOK_BACK_MS
) -> Scalar | Vector:
    """The values at each of `times_ms`. `end_ms`, which `@ end()` means, may be after the last. Raises QueryError."""
    return with_steps(_evaluated(promql, times_ms, seconds, look_back_ms, end_ms))


def with_steps(value: Value) -> Scalar | Vector:
    """What a range query may end in. Raises BadQuery."""
    if not isinstance(value, Scalar | Vector):
        raise BadQuery('invalid parameter "query": a range query needs a scalar or an instant vector')
    return value


def steps(start_ms: int, end_ms: int, step_ms: int) -> Ints:
    """The moments of a range query. Raises BadQuery."""
    if end_ms < start_ms:
        raise BadQuery('invalid parameter "end": end timestamp must not be before start time')
    if step_ms <= 0:
        raise BadQuery('invalid parameter "step": zero or negative query resolution step widths are not accepted')
    if (end_ms - start_ms) // step_ms > MAX_STEPS:
        raise BadQuery(
            f"exceeded maximum resolution of {MAX_STEPS:,} points per timeseries. "
            "Try decreasing the query resolution (?step=XX)"
        )
    return start_ms + step_ms * np.arange((end_ms - start_ms) // step_ms + 1)


@contextmanager
def reading() -> Iterator[Reader]:
    """The store's reader, for one query. Raises Unavailable, TimedOut (too many queries at once)."""
    turns = _turns(rows.METRICS_QUERIES_AT_ONCE.read())
    if not turns.acquire(timeout=rows.METRICS_QUERY_SECONDS.read()):
        raise TimedOut("query timed out in query queue: too many queries at once")
    try:
        yield reader_of(store_path())
    except StoreUnavailable as error:
        raise Unavailable(str(error)) from error
    finally:
        turns.release()


def budget(seconds: float | None = None) -> Budget:
    """What one query may cost, and no longer than `seconds` where they are given."""
    limit = float(rows.METRICS_QUERY_SECONDS.read())
    return Budget(rows.METRICS_QUERY_SAMPLES_MAX.read(), limit if seconds is None else min(limit, seconds))


@cache
def _turns(number: int) -> threading.BoundedSemaphore:
    return threading.BoundedSemaphore(number)


def _evaluated(
    promql: str, times_ms: Ints, seconds: float | None, look_back_ms: int, end_ms: int | None = None
) -> Value:
    tree = parse(promql)
    bounds_ms = None if end_ms is None else (int(times_ms[0]), end_ms)
    with reading() as reader:
        return Evaluation(times_ms, reader.select, budget(seconds), look_back_ms, bounds_ms).evaluate(tree)
