from __future__ import annotations

import struct

import pytest
from cramjam import snappy
from hypothesis import given
from hypothesis import strategies as st

from wire.remote_write import Bounds, decode, decode_series, labels_of
from wire.remote_write_pb2 import Label, WriteRequest
from wire.write_body import STALE, STALE_BITS, Series, encode, halves, key_of

BOUNDS = Bounds()
NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,10}", fullmatch=True)
TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
LABELS = st.builds(lambda labels, name: {**labels, "__name__": name}, st.dictionaries(NAMES, TEXT, max_size=5), NAMES)
TIMES_MS = st.integers(-(2**63), 2**63 - 1)
SAMPLES = st.lists(st.tuples(TIMES_MS, st.floats(allow_nan=False)), max_size=4)
SERIES = st.lists(st.builds(Series, LABELS, SAMPLES), max_size=5)


@given(series=SERIES)
def test_a_body_is_what_protobuf_makes_of_it(series):
    request = WriteRequest()
    for each in series:
        labels = [Label(name=name, value=value).SerializeToString() for name, value in sorted(each.labels.items())]
        assert key_of(each.labels) == tuple(labels)
        row = request.timeseries.add(labels=labels)
        for time_ms, value in each.samples:
            row.samples.add(timestamp=time_ms, value=value)
    assert snappy.decompress_raw(encode(series)).read() == request.SerializeToString()


@given(series=SERIES)
def test_what_is_encoded_is_decoded(series):
    assert decode_series(encode(series), BOUNDS) == series


@given(labels=LABELS)
def test_encoded_labels_break_no_rule(labels):
    assert labels_of(key_of(labels), BOUNDS) == (labels, [])


def test_the_marker_of_a_stale_series_keeps_its_bits():
    (value,) = decode(encode([Series({"__name__": "a"}, [(1, STALE)])]), BOUNDS).values
    assert struct.pack("<d", value) == struct.pack("<Q", STALE_BITS)


@pytest.mark.parametrize("damaged", [b"", b"\xff" * 9, bytes(snappy.compress_raw(b"\x12\x00\x12\x00"))])
def test_a_body_that_cannot_be_read_has_no_halves(damaged):
    assert halves(damaged) is None


@given(damaged=st.binary(max_size=300))
def test_halves_of_whatever_a_spool_gives_are_series_whole_or_none(damaged):
    parts = halves(bytes(snappy.compress_raw(damaged)))
    assert parts is None or b"".join(snappy.decompress_raw(part).read() for part in parts) == damaged


@pytest.mark.parametrize("missing", range(1, 300, 7))
def test_a_body_that_ends_early_has_no_halves(missing):
    series = [Series({"__name__": "a", "b": "x" * 200}, [(1, 1.0)]) for _ in range(2)]
    raw = snappy.decompress_raw(encode(series)).read()
    assert halves(bytes(snappy.compress_raw(raw[:-missing]))) is None


@given(series=SERIES)
def test_halves_hold_together_what_the_body_holds(series):
    parts = halves(encode(series))
    assert (parts is None) == (len(series) < 2)
    if parts is not None:
        first, second = (decode_series(part, BOUNDS) for part in parts)
        assert first + second == series
        assert abs(len(first) - len(second)) <= 1
