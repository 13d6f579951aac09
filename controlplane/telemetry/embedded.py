"""Queries on the embedded store, within the limits that the settings give."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from typing import NamedTuple

import numpy as np

from controlplane.telemetry import settings_rows as rows
from controlplane.telemetry.promql.budget import Budget
from controlplane.telemetry.promql.errors import BadQuery, TimedOut, Unavailable
from controlplane.telemetry.promql.evaluation import LOOK_BACK_MS, Evaluation
from controlplane.telemetry.promql.grammar import parse
from controlplane.telemetry.promql.values import Scalar, Value, Vector
from controlplane.telemetry.receiver import store_path
from controlplane.telemetry.shared_reads import SharedReads
from controlplane.telemetry.store.columns import Ints
from controlplane.telemetry.store.database import StoreUnavailable
from controlplane.telemetry.store.reader import Reader, reader_of

# Prometheus' own limit of points a series.
MAX_STEPS = 11_000


class Turn(NamedTuple):
    """What one query may use until its answer is made."""

    reader: Reader
    budget: Budget


@contextmanager
def turn(*, own: bool = False, seconds: float | None = None) -> Iterator[Turn]:
    """For one query, which gets no more than `seconds` where they are given. Large ones have theirs one at a time.

    `own` queries, of pages, rules and detectors, have turns apart: callers of the HTTP API do not use them up.
    Raises Unavailable, TimedOut (too many queries at once).
    """
    turns, limit = _turns(rows.METRICS_QUERIES_AT_ONCE.read(), own), float(rows.METRICS_QUERY_SECONDS.read())
    allowed = limit if seconds is None else min(limit, seconds)
    if not turns.acquire(timeout=allowed):
        raise TimedOut("query timed out in query queue: too many queries at once")
    try:
        with closing(Budget(rows.METRICS_QUERY_SAMPLES_MAX.read(), allowed, alone=_large)) as budget:
            yield Turn(reader_of(store_path()), budget)
    except StoreUnavailable as error:
        raise Unavailable(str(error)) from error
    finally:
        turns.release()


@cache
def _turns(number: int, own: bool) -> threading.BoundedSemaphore:
    return threading.BoundedSemaphore(number)


_large = threading.Lock()


def instant(
    turn: Turn, promql: str, at_ms: int, *, look_back_ms: int = LOOK_BACK_MS, shared: SharedReads | None = None
) -> Value:
    """The value at one moment, as one step. `shared`: what other queries of that moment read. Raises QueryError."""
    select = turn.reader.select if shared is None else shared.of(turn.reader)
    evaluation = Evaluation(np.array([at_ms], np.int64), select, turn.budget, look_back_ms)
    return evaluation.evaluate(parse(promql))


def ranged(
    turn: Turn,
    promql: str,
    times_ms: Ints,
    end_ms: int,
    *,
    look_back_ms: int = LOOK_BACK_MS,
    parts: dict[str, Vector] | None = None,
) -> Scalar | Vector:
    """The values at each of `times_ms`. `end_ms`, which `@ end()` means, may be after the last. Raises QueryError.

    `parts`: what other queries of the same times have aggregated.
    """
    bounds_ms = int(times_ms[0]), end_ms
    evaluation = Evaluation(times_ms, turn.reader.select, turn.budget, look_back_ms, bounds_ms, parts)
    return with_steps(evaluation.evaluate(parse(promql)))


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
