"""Chunks: the times and values of one series, each as a small blob.

Times: deltas of deltas. Values: decimals (as GPUs and engines report them) as differences of whole numbers, others as
XOR with the value before, bytes of one rank together. Both then deflated where that makes them smaller: at some 300
bytes it is smaller than zstd and unpacked five times as fast. Exact: what comes out has the bits that went in.
Decoding raises Damaged for bytes that are not what was encoded.
"""

from __future__ import annotations

import struct
import zlib
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from controlplane.telemetry.store.columns import Damaged, Floats, Ints, bits_of, sealed, unsealed

_WIDTHS: tuple[type[np.signedinteger], ...] = (np.int8, np.int16, np.int32, np.int64)
_LARGEST = tuple(int(np.iinfo(width).max) for width in _WIDTHS)
_LEVEL, _RAW_DEFLATE = 6, -15
_COMPRESSED = 0x80
_XOR = 0x0F
_NO_PAYLOAD = 0x70
_MAX_DECIMALS = 4
# Whole numbers up to here are exact in a float.
_MAX_WHOLE = 2.0**53
_FIRST = struct.Struct("<Bq")
_FIRST_TWO = struct.Struct("<Bqq")
_NO_CHUNK = (struct.error, zlib.error, ValueError, IndexError)


def encode_times(times_ms: Ints) -> bytes:
    """At least one time, ascending."""
    return _encoded_times(times_ms.tobytes())


# Series that are pushed together have the same times, and are packed one after the other.
@lru_cache(maxsize=64)
def _encoded_times(raw: bytes) -> bytes:
    times_ms = np.frombuffer(raw, np.int64)
    first = int(times_ms[0])
    steps = np.diff(times_ms)
    step = int(steps[0]) if len(steps) else 0
    tag, payload = _packed(np.diff(steps))
    return sealed(_FIRST_TWO.pack(tag, first, step) + payload)


# For the same reason a page of 400 series decodes 50 blobs.
@lru_cache(maxsize=4096)
def decode_times(blob: bytes, count: int) -> Ints:
    try:
        times = _decoded_times(unsealed(blob), count)
    except _NO_CHUNK as error:
        raise Damaged(f"the times of a chunk cannot be read: {error}") from error
    times.flags.writeable = False
    return times


def _decoded_times(blob: bytes, count: int) -> Ints:
    tag, first, step = _FIRST_TWO.unpack_from(blob)
    times = np.empty(count, np.int64)
    times[0] = first
    if count > 1:
        times[1:] = step
        if tag != _NO_PAYLOAD:
            times[2:] += np.cumsum(_unpacked(tag, blob[_FIRST_TWO.size :]))
        np.cumsum(times, out=times)
    return times


def encode_values(values: Floats) -> bytes:
    """At least one value."""
    for decimals in range(_MAX_DECIMALS + 1):
        whole = _as_whole(values, 10.0**decimals)
        if whole is not None:
            tag, payload = _packed(np.diff(whole))
            return sealed(_FIRST.pack(tag | decimals, int(whole[0])) + payload)
    bits = bits_of(values)
    ranks = (bits[1:] ^ bits[:-1]).view(np.uint8).reshape(-1, 8).T
    tag, payload = _smaller(0, np.ascontiguousarray(ranks).tobytes())
    return sealed(_FIRST.pack(tag | _XOR, int(bits[0])) + payload)


# A page is asked again and again; this holds an hour of 32,000 series at 15 s, or a week of 780 recorded ones. It takes
# 64 MB and the packed form, by which a chunk is found: 10 to 60 MB more.
@lru_cache(maxsize=32_768)
def decode_values(blob: bytes, count: int) -> Floats:
    try:
        values = _decoded_values(unsealed(blob), count)
    except _NO_CHUNK as error:
        raise Damaged(f"the values of a chunk cannot be read: {error}") from error
    values.flags.writeable = False
    return values


def _decoded_values(blob: bytes, count: int) -> Floats:
    tag, first = _FIRST.unpack_from(blob)
    payload = blob[_FIRST.size :]
    kind = tag & 0x0F
    if kind == _XOR:
        ranks = zlib.decompress(payload, _RAW_DEFLATE) if tag & _COMPRESSED else payload
        changes = np.frombuffer(ranks, np.uint8).reshape(8, count - 1).T
        bits = np.empty(count, np.int64)
        bits[0] = first
        bits[1:] = np.ascontiguousarray(changes).view(np.int64).ravel()
        values: Floats = np.bitwise_xor.accumulate(bits).view(np.float64)
        return values
    whole = np.empty(count, np.int64)
    whole[0] = first
    if tag & _NO_PAYLOAD == _NO_PAYLOAD:
        whole[1:] = 0
    else:
        whole[1:] = _unpacked(tag, payload)
    decimals: Floats = np.cumsum(whole) / 10.0**kind
    return decimals


def _as_whole(values: Floats, scale: float) -> Ints | None:
    """`values` × `scale` as whole numbers, if dividing them gives back the same bits."""
    with np.errstate(invalid="ignore", over="ignore"):
        scaled = np.rint(values * scale)
    if not np.all(np.abs(scaled) < _MAX_WHOLE):
        return None
    whole: Ints = scaled.astype(np.int64)
    return whole if np.array_equal(bits_of(whole / scale), bits_of(values)) else None


def _packed(numbers: Ints) -> tuple[int, bytes]:
    """A tag (width in bits 4 to 6, bit 7: compressed) and the bytes of whole numbers in the least width that does."""
    if not numbers.any():
        return _NO_PAYLOAD, b""
    largest = max(abs(int(numbers.min())), abs(int(numbers.max())))
    rank = next(rank for rank, bound in enumerate(_LARGEST) if largest <= bound)
    return _smaller(rank << 4, numbers.astype(_WIDTHS[rank]).tobytes())


def _smaller(tag: int, payload: bytes) -> tuple[int, bytes]:
    compressed = zlib.compress(payload, _LEVEL, _RAW_DEFLATE)
    return (tag | _COMPRESSED, compressed) if len(compressed) < len(payload) else (tag, payload)


def _unpacked(tag: int, payload: bytes) -> NDArray[np.signedinteger]:
    raw = zlib.decompress(payload, _RAW_DEFLATE) if tag & _COMPRESSED else payload
    return np.frombuffer(raw, _WIDTHS[tag >> 4 & 0x03])
