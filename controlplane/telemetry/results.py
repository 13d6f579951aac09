"""Values of the embedded engine in the form of Prometheus' JSON, and back from it."""

from __future__ import annotations

from decimal import Decimal
from itertools import compress
from typing import Any, NamedTuple

import msgspec
import numpy as np

from controlplane.telemetry.promql.errors import Unavailable
from controlplane.telemetry.promql.values import Labels, Scalar, Value, Vector, Windows, identity
from controlplane.telemetry.store.columns import Floats, Ints

# Between them Prometheus writes all digits, and Python some powers of ten.
_PLAIN_FROM, _PLAIN_BELOW = 1e-6, 1e21
_NOT_FINITE = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}


class Sample(NamedTuple):
    """One value of one series; `labels` with `__name__` where it has one."""

    labels: dict[str, str]
    time_ms: int
    value: float


class Series(NamedTuple):
    """Values of one series over time, at the steps where it has one."""

    labels: dict[str, str]
    times_ms: list[int]
    values: list[float]


def number(value: float) -> str:
    """A value as Prometheus writes it into JSON."""
    text = repr(value).removesuffix(".0")
    if "e" in text and _PLAIN_FROM <= abs(value) < _PLAIN_BELOW:
        text = format(Decimal(text), "f")
    return _NOT_FINITE.get(text, text)


def samples_of(value: Scalar | Vector, at_ms: int) -> list[Sample]:
    """The only step of an instant query; a scalar is a sample without labels."""
    if isinstance(value, Scalar):
        return [Sample({}, at_ms, float(value.values[0]))]
    rows = np.flatnonzero(value.present[:, 0]).tolist()
    return [Sample(value.labels[row], at_ms, float(value.values[row, 0])) for row in rows]


def series_of(value: Scalar | Vector | Windows, times_ms: Ints) -> list[Series]:
    """Rows with at least one value, in order of their labels."""
    match value:
        case Scalar():
            return [Series({}, times_ms.tolist(), value.values.tolist())]
        case Windows():
            bounds = zip(value.labels, value.lo[:, 0].tolist(), value.hi[:, 0].tolist(), strict=True)
            found = [
                Series(labels, value.times_ms[lo:hi].tolist(), value.values[lo:hi].tolist())
                for labels, lo, hi in bounds
                if hi > lo
            ]
        case Vector():
            found = [
                Series(labels, times_ms[here].tolist(), values[here].tolist())
                for labels, values, here in zip(value.labels, value.values, value.present, strict=True)
                if here.any()
            ]
    return sorted(found, key=lambda series: identity(series.labels))


def limited(value: Value, limit: int, *, ordered: bool) -> tuple[Value, bool]:
    """The first `limit` series of a result (0: all), and whether there were more.

    `ordered`: first by their labels, as the series of a matrix stand; an instant vector has an order of its own.
    """
    match value:
        case Vector():
            rows = np.flatnonzero(value.present.any(axis=1)).tolist()
        case Windows():
            rows = np.flatnonzero(value.hi[:, 0] > value.lo[:, 0]).tolist()
        case _:
            return value, False
    if not 0 < limit < len(rows):
        return value, False
    if ordered:
        rows.sort(key=lambda row: identity(value.labels[row]))
    first = np.array(rows[:limit])
    if isinstance(value, Vector):
        return value.rows(first), True
    labels = [value.labels[row] for row in rows[:limit]]
    return value._replace(labels=labels, lo=value.lo[first], hi=value.hi[first]), True


def instant_json(value: Value, at_ms: int) -> bytes:
    """`data` of an answer to `query`, as JSON."""
    at = _seconds(at_ms)
    match value:
        case str():
            return b'{"resultType":"string","result":[%s,%s]}' % (at, msgspec.json.encode(value))
        case Scalar():
            return b'{"resultType":"scalar","result":[%s,"%s"]}' % (at, number(float(value.values[0])).encode())
        case Windows():
            found = series_of(value, np.array([at_ms]))
            rows = [
                _row(one.labels, [_POINT % _seconds(time_ms) for time_ms in one.times_ms], np.array(one.values))
                for one in found
            ]
            return b'{"resultType":"matrix","result":[%s]}' % b",".join(rows)
    form = b'{"metric":%s,"value":[%s,"%s"]}'
    samples = samples_of(value, at_ms)
    points = [form % (msgspec.json.encode(one.labels), at, number(one.value).encode()) for one in samples]
    return b'{"resultType":"vector","result":[%s]}' % b",".join(points)


def range_json(value: Scalar | Vector, times_ms: Ints) -> bytes:
    """`data` of an answer to `query_range`, as JSON. Joined from pieces: a page asks for some 100,000 values."""
    times = [_POINT % _seconds(time_ms) for time_ms in times_ms.tolist()]
    if isinstance(value, Scalar):
        rows = [_row({}, times, value.values)]
    else:
        order = sorted(np.flatnonzero(value.present.any(axis=1)).tolist(), key=lambda row: identity(value.labels[row]))
        rows = []
        for row in order:
            here = value.present[row]
            rows.append(_row(value.labels[row], list(compress(times, here.tolist())), value.values[row][here]))
    return b'{"resultType":"matrix","result":[%s]}' % b",".join(rows)


# Ends the point before, begins the next one.
_POINT = b'"],[%s,"'


def _row(labels: Labels, times: list[bytes], values: Floats) -> bytes:
    """`times` are _POINTs."""
    pieces = [b""] * (2 * len(times))
    pieces[0::2], pieces[1::2] = times, _texts(values)
    points = b"".join(pieces).removeprefix(b'"],')
    return b'{"metric":%s,"values":[%s"]]}' % (msgspec.json.encode(labels), points)


def _texts(values: Floats) -> list[bytes]:
    text: bytes = msgspec.json.encode(values.tolist())[1:-1]
    # A power of ten, or null where a value is not finite.
    if b"e" in text or b"n" in text:
        return [number(value).encode() for value in values.tolist()]
    return text.replace(b".0,", b",").removesuffix(b".0").split(b",")


def _seconds(time_ms: int) -> bytes:
    return repr(time_ms / 1000).removesuffix(".0").encode()


def samples_from(data: Any) -> list[Sample]:
    """The samples of another server's answer to `query`. Raises Unavailable for an answer of another form."""
    try:
        if data["resultType"] == "scalar":
            at, text = data["result"]
            return [Sample({}, round(at * 1000), float(text))]
        if data["resultType"] == "vector":
            return [
                Sample(dict(each["metric"]), round(each["value"][0] * 1000), float(each["value"][1]))
                for each in data["result"]
            ]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise Unavailable(f"the metrics server answered with something that is no result: {error!r}") from error
    raise Unavailable("the metrics server answered with neither a scalar nor a vector")


def series_from(data: Any) -> list[Series]:
    """The series of another server's answer to `query_range`. Raises Unavailable for an answer of another form."""
    try:
        return [
            Series(
                dict(each["metric"]),
                [round(at * 1000) for at, _ in each["values"]],
                [float(text) for _, text in each["values"]],
            )
            for each in data["result"]
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise Unavailable(f"the metrics server answered with something that is no result: {error!r}") from error
