"""Bodies of Prometheus remote write 1.0, as agents and gateways make them: series, protobuf, snappy's block format.

Written without protobuf's library, which would cost every node's agent 2 MB of memory; messages and numbers are those
of remote_write.proto. The control plane reads them with wire/remote_write.py.
Sources: https://prometheus.io/docs/specs/prw/remote_write_spec/ and
https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from cramjam import DecompressionError, snappy

CONTENT_TYPE = "application/x-protobuf"
CONTENT_ENCODING = "snappy"
VERSION_HEADER = "X-Prometheus-Remote-Write-Version"
VERSION = "0.1.0"
METRIC_NAME = "__name__"
# A value that says "this series ended here": a NaN that no arithmetic makes. Source: prometheus/model/value.
STALE_BITS = 0x7FF0000000000002
STALE: float = struct.unpack("<d", struct.pack("<Q", STALE_BITS))[0]

# Labels of a series, each encoded.
Key = tuple[bytes, ...]

# Tags: a field's number and the type of what follows it. First and second field of a message, with a length each.
_FIRST, _SECOND = b"\x0a", b"\x12"
# Of a sample: a double, a varint.
_VALUE, _TIMESTAMP = b"\x09", b"\x10"
_double = struct.Struct("<d").pack
_NO_VALUE = _double(0.0)


@dataclass(frozen=True, slots=True)
class Series:
    """One series: its labels with `__name__`, and (Unix time in ms, value) each."""

    labels: Mapping[str, str]
    samples: Sequence[tuple[int, float]]


def key_of(labels: Mapping[str, str]) -> Key:
    """Labels in the order and form that the protocol asks for."""
    return tuple(_label(name, labels[name]) for name in sorted(labels))


def encode(series: Iterable[Series]) -> bytes:
    """The body of a write."""
    return body_of(map(row, series))


def row(series: Series) -> bytes:
    """One series as a part of a body."""
    return _field(_FIRST, _labels(series.labels) + _samples(series.samples))


def body_of(rows: Iterable[bytes]) -> bytes:
    """The body of a write, of what `row` made."""
    return bytes(snappy.compress_raw(b"".join(rows)))


def halves(body: bytes) -> tuple[bytes, bytes] | None:
    """The body of a write as two, for a receiver that finds it too large; None for what is no two series."""
    try:
        rows = list(_rows(bytes(snappy.decompress_raw(body))))
    except (DecompressionError, ValueError):
        return None
    if len(rows) < 2:
        return None
    middle = len(rows) // 2
    return body_of(rows[:middle]), body_of(rows[middle:])


def _labels(labels: Mapping[str, str]) -> bytes:
    return b"".join([_label_field(name, labels[name]) for name in sorted(labels)])


# A writer's series share most of their labels, and come again and again.
@lru_cache(maxsize=4096)
def _label_field(name: str, value: str) -> bytes:
    return _field(_FIRST, _label(name, value))


def _label(name: str, value: str) -> bytes:
    return _field(_FIRST, name.encode()) + _field(_SECOND, value.encode())


def _samples(samples: Iterable[tuple[int, float]]) -> bytes:
    return b"".join([_field(_SECOND, _sample(*sample)) for sample in samples])


def _sample(time_ms: int, value: float) -> bytes:
    # A field that holds nothing but zeros is left out; a minus zero does not.
    packed = _double(value)
    said = b"" if packed == _NO_VALUE else _VALUE + packed
    return said + (_TIMESTAMP + _varint(time_ms % 2**64) if time_ms else b"")


def _field(tag: bytes, content: bytes) -> bytes:
    return tag + _varint(len(content)) + content


# A body has few times and lengths.
@lru_cache(maxsize=256)
def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _rows(message: bytes) -> Iterator[bytes]:
    """The series of an encoded message that `encode` made, each a whole field. Raises: ValueError for any other."""
    begin = 0
    while begin < len(message):
        end = begin + 1
        size = shift = 0
        while message[end : end + 1] >= b"\x80":
            size |= (message[end] & 0x7F) << shift
            shift += 7
            end += 1
        # A length that is cut off makes an end beyond the message's as well.
        size |= int.from_bytes(message[end : end + 1], "little") << shift
        end += 1 + size
        if message[begin : begin + 1] != _FIRST or end > len(message):
            raise ValueError("not a message of series alone")
        yield message[begin:end]
        begin = end
