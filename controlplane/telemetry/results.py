"""Values of the embedded engine in the form of Prometheus' JSON, and back from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import compress
from typing import Any, NamedTuple

import msgspec
import numpy as np

from controlplane.telemetry.promql.errors import TooMuch, Unavailable
from controlplane.telemetry.promql.values import Labels, Scalar, Value, Vector, Windows, identity
from controlplane.telemetry.store.columns import Floats, Ints

# Between them Prometheus writes all digits, and Python some powers of ten.
_PLAIN_FROM, _PLAIN_BELOW = 1e-6, 1e21
_NOT_FINITE = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}
# An answer lies in memory some times over until its caller has read it; a page's are 10 MB at most.
_ANSWER_MAX_BYTES = 64 << 20


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


def series_of(value: Scalar | Vector | Windows, times_ms: Ints) -> Iterator[Series]:
    """Rows with at least one value, in order of their labels; each is made when its turn comes, as all may be large."""
    match value:
        case Scalar():
            yield Series({}, times_ms.tolist(), value.values.tolist())
        case Windows():
            for row in _in_order(value.labels, np.flatnonzero(value.hi[:, 0] > value.lo[:, 0])):
                here = slice(value.lo[row, 0], value.hi[row, 0])
                yield Series(value.labels[row], value.times_ms[here].tolist(), value.values[here].tolist())
        case Vector():
            for row in _in_order(value.labels, np.flatnonzero(value.present.any(axis=1))):
                present = value.present[row]
                yield Series(value.labels[row], times_ms[present].tolist(), value.values[row][present].tolist())


def _in_order(labels: Sequence[Labels], rows: Ints) -> list[int]:
    """As the series of a matrix stand: by their labels."""
    return sorted(rows.tolist(), key=lambda row: identity(labels[row]))


def limited(value: Value, limit: int, *, ordered: bool) -> tuple[Value, bool]:
    """The first `limit` series of a result (0: all), and whether there were more.

    `ordered`: first by their labels, as the series of a matrix stand; an instant vector has an order of its own.
    """
    match value:
        case Vector():
            rows = np.flatnonzero(value.present.any(axis=1))
        case Windows():
            rows = np.flatnonzero(value.hi[:, 0] > value.lo[:, 0])
        case _:
            return value, False
    if not 0 < limit < len(rows):
        return value, False
    first = (_in_order(value.labels, rows) if ordered else rows.tolist())[:limit]
    if isinstance(value, Vector):
        return value.rows(np.array(first)), True
    labels = [value.labels[row] for row in first]
    return value._replace(labels=labels, lo=value.lo[first], hi=value.hi[first]), True


def instant_json(value: Value, at_ms: int) -> bytes:
    """`data` of an answer to `query`, as JSON. Raises TooMuch."""
    at = _seconds(at_ms)
    match value:
        case str():
            return b'{"resultType":"string","result":[%s,%s]}' % (at, msgspec.json.encode(value))
        case Scalar():
            return b'{"resultType":"scalar","result":[%s,"%s"]}' % (at, number(float(value.values[0])).encode())
        case Windows():
            rows = (
                _row(one.labels, [_POINT % _seconds(time_ms) for time_ms in one.times_ms], np.array(one.values))
                for one in series_of(value, np.array([at_ms]))
            )
            return b'{"resultType":"matrix","result":[%s]}' % _listed(rows)
    form = b'{"metric":%s,"value":[%s,"%s"]}'
    samples = samples_of(value, at_ms)
    points = (form % (msgspec.json.encode(one.labels), at, number(one.value).encode()) for one in samples)
    return b'{"resultType":"vector","result":[%s]}' % _listed(points)


def range_json(value: Scalar | Vector, times_ms: Ints) -> bytes:
    """`data` of an answer to `query_range`, as JSON. Raises TooMuch.

    Joined from pieces: a page asks for some 100,000 values.
    """
    times = [_POINT % _seconds(time_ms) for time_ms in times_ms.tolist()]
    if isinstance(value, Scalar):
        return b'{"resultType":"matrix","result":[%s]}' % _row({}, times, value.values)
    rows = (
        _row(value.labels[row], list(compress(times, here.tolist())), value.values[row][here])
        for row in _in_order(value.labels, np.flatnonzero(value.present.any(axis=1)))
        for here in (value.present[row],)
    )
    return b'{"resultType":"matrix","result":[%s]}' % _listed(rows)


def _listed(rows: Iterable[bytes]) -> bytes:
    """Elements of a list. Raises TooMuch as soon as they are more than an answer may hold."""
    taken, size = [], 0
    for row in rows:
        taken.append(row)
        size += len(row)
        if size > _ANSWER_MAX_BYTES:
            raise TooMuch(
                f"the answer would have more than {_ANSWER_MAX_BYTES} bytes; choose fewer series, a shorter range or a "
                "longer step"
            )
    return b",".join(taken)


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
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
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
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise Unavailable(f"the metrics server answered with something that is no result: {error!r}") from error
