from __future__ import annotations

import contextlib
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from controlplane.telemetry.store.codec import decode_times, decode_values, encode_times, encode_values
from controlplane.telemetry.store.columns import Columns, Damaged, bits_of, pack_batch, unpack_batch, unsealed
from wire.write_body import STALE

ANY_FLOATS = st_numpy.arrays(np.float64, st.integers(1, 50), elements=st.floats(width=64))
DECIMALS = st.lists(st.integers(-(10**7), 10**7), min_size=1, max_size=50)
TIMES = st.lists(st.integers(-(2**60), 2**60), min_size=1, max_size=50, unique=True).map(sorted)


def values_back(values):
    return bits_of(decode_values(encode_values(values), len(values)))


@settings(deadline=None)
@given(values=ANY_FLOATS)
def test_any_values_keep_their_bits(values):
    assert np.array_equal(values_back(values), bits_of(values))


@settings(deadline=None)
@given(numbers=DECIMALS, digits=st.integers(0, 6))
def test_decimals_keep_their_bits(numbers, digits):
    values = np.array([round(number / 10**digits, digits) for number in numbers])
    assert np.array_equal(values_back(values), bits_of(values))


def test_a_stale_marker_and_a_negative_zero_keep_their_bits():
    values = np.array([1.0, STALE, -0.0, np.nan, np.inf, -np.inf])
    assert np.array_equal(values_back(values), bits_of(values))


@settings(deadline=None)
@given(times=TIMES)
def test_times_come_back(times):
    columns = np.array(times, np.int64)
    assert np.array_equal(decode_times(encode_times(columns), len(columns)), columns)


@settings(deadline=None)
@given(values=ANY_FLOATS)
def test_a_batch_comes_back(values):
    numbers = np.arange(len(values))
    columns = Columns(numbers, numbers - 10**12, values)
    series, times_ms, back = unpack_batch(pack_batch(columns))
    assert np.array_equal(series, columns.series)
    assert np.array_equal(times_ms, columns.times_ms)
    assert np.array_equal(bits_of(back), bits_of(values))


@settings(deadline=None)
@given(
    read=st.sampled_from([lambda blob: decode_times(blob, 20), lambda blob: decode_values(blob, 20), unpack_batch]),
    blob=st.binary(max_size=200),
)
def test_bytes_that_were_never_written_are_damaged_or_read_as_samples(read, blob):
    """No other error: what reads them need not know how they were packed."""
    with contextlib.suppress(Damaged):
        read(blob)


@settings(deadline=None)
@given(values=ANY_FLOATS, cut=st.integers(1, 8))
def test_a_batch_that_was_cut_short_is_damaged(values, cut):
    numbers = np.arange(len(values))
    with pytest.raises(Damaged):
        unpack_batch(pack_batch(Columns(numbers, numbers, values))[:-cut])


def test_what_gpus_report_takes_less_than_four_bytes_a_sample():
    dice = random.Random(3)
    count = 240
    times = np.array([15_000 * place + dice.randrange(40) for place in range(count)], np.int64)
    columns = [
        np.array([float(round(dice.gauss(60, 3))) for _ in range(count)]),
        np.array([round(dice.random(), 3) for _ in range(count)]),
        np.cumsum([float(dice.randrange(3000)) for _ in range(count)]),
        np.array([81559.0] * count),
    ]
    size = sum(len(encode_values(values)) + len(encode_times(times)) for values in columns)
    assert size / (count * len(columns)) < 4


RAMP = np.arange(40.0) / 10
KINDS = pytest.mark.parametrize(
    ("blob", "read"),
    [
        (encode_values(RAMP), lambda blob: decode_values(blob, 40)),
        (encode_values(np.sqrt(RAMP)), lambda blob: decode_values(blob, 40)),
        (encode_times(np.arange(40) ** 2), lambda blob: decode_times(blob, 40)),
        (pack_batch(Columns(np.arange(40), np.arange(40), RAMP)), unpack_batch),
    ],
    ids=["decimals", "any numbers", "times", "batch"],
)


@KINDS
def test_a_bit_that_came_back_otherwise_is_noticed(blob, read):
    """Without, nine in ten would give other samples and no error. The first byte says that there is a checksum."""
    for place in range(8, 8 * len(blob)):
        other = bytearray(blob)
        other[place // 8] ^= 1 << place % 8
        with pytest.raises(Damaged):
            read(bytes(other))


@KINDS
def test_what_an_earlier_version_wrote_is_read(blob, read):
    assert np.array_equal(read(unsealed(blob)), read(blob))
