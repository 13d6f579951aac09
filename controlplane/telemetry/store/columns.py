"""Samples as columns: which series, when, what. Also the form in which a batch is kept."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from cramjam import DecompressionError, zstd
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

# Fast, since a writer waits for it; packing compresses well later.
_BATCH_LEVEL = 1
_SAMPLE_BYTES = 24
# A mark that no form without a checksum begins with, and the checksum.
_SEAL = struct.Struct("<BI")
_SEAL_MARK = 0x0D


class Damaged(RuntimeError):
    """Bytes of the store that are not what was written."""


class Columns(NamedTuple):
    """`series` are ids of the store or row numbers of a selection, `times_ms` Unix times; all of one length."""

    series: Ints
    times_ms: Ints
    values: Floats

    def take(self, where: Ints | Bools) -> Columns:
        return Columns(self.series[where], self.times_ms[where], self.values[where])


def joined(parts: Sequence[Columns]) -> Columns:
    if not parts:
        return Columns(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float64))
    return Columns(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def bits_of(values: Floats) -> Ints:
    """Values as whole numbers that are equal exactly if the values are the same, NaNs and -0 included."""
    return np.ascontiguousarray(values).view(np.int64)


def sealed(blob: bytes) -> bytes:
    """With a checksum: of a byte that the disk gave back otherwise, other samples would come, and nobody would know."""
    return _SEAL.pack(_SEAL_MARK, zlib.crc32(blob)) + blob


def unsealed(blob: bytes) -> bytes:
    """What `sealed` was given; a file of an earlier version has blobs without a seal. Raises ValueError."""
    if blob[:1] != bytes((_SEAL_MARK,)):
        return blob
    content = blob[_SEAL.size :]
    if len(blob) < _SEAL.size or _SEAL.unpack_from(blob)[1] != zlib.crc32(content):
        raise ValueError("they do not fit their checksum")
    return content


def pack_batch(columns: Columns) -> bytes:
    raw = np.concatenate((columns.series, columns.times_ms, bits_of(columns.values))).tobytes()
    return sealed(bytes(zstd.compress(raw, level=_BATCH_LEVEL)))


def unpack_batch(data: bytes) -> Columns:
    """Raises Damaged."""
    try:
        raw = np.frombuffer(bytes(zstd.decompress(unsealed(data))), np.int64)
    except (DecompressionError, ValueError) as error:
        raise Damaged(f"samples that were not packed yet cannot be read: {error}") from error
    count = len(raw) * 8 // _SAMPLE_BYTES
    return Columns(raw[:count], raw[count : 2 * count], raw[2 * count :].view(np.float64))
