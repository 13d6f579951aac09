from __future__ import annotations

import struct

import pytest
from cramjam import snappy

from wire.remote_write import BadBody, BodyTooLarge, Bounds, Metadata, decode, decode_series, labels_of
from wire.remote_write_pb2 import Label, WriteRequest
from wire.write_body import Series, encode, key_of

BOUNDS = Bounds()


def packed(*labels: tuple[str, str]) -> tuple[bytes, ...]:
    return tuple(Label(name=name, value=value).SerializeToString() for name, value in labels)


def test_a_whole_protobuf_message_of_prometheus_is_read():
    """Written out by hand from the protocol's page, so that both directions cannot be wrong alike."""
    label = b"\x0a\x08__name__\x12\x02up"
    sample = b"\x09" + struct.pack("<d", 1.5) + b"\x10\xe8\x07"
    series = b"\x0a" + bytes([len(label)]) + label + b"\x12" + bytes([len(sample)]) + sample
    metadata = b"\x1a\x06\x08\x01\x12\x02up"
    body = snappy.compress_raw(b"\x0a" + bytes([len(series)]) + series + metadata)
    assert decode_series(bytes(body), BOUNDS) == [Series({"__name__": "up"}, [(1000, 1.5)])]
    assert decode(bytes(body), BOUNDS).metadata == [Metadata("up", "counter", "", "")]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "not_snappy"),
        (b"\xff\xff\xff", "not_snappy"),
        (b'{"a": 1}', "not_snappy"),
        (encode([Series({"__name__": "a"}, [(1, 1.0)] * 90)])[:-3], "not_snappy"),
        (bytes(snappy.compress_raw(b"no protobuf at all")), "not_protobuf"),
        (bytes(snappy.compress_raw(b"\x0a\xff\x01")), "not_protobuf"),
        (bytes(snappy.compress_raw(b"\x0a\x04\x22\x02\x08\x01")), "native_histogram"),
        (bytes(snappy.compress_raw(b"\x1a\x02\x08\x01")), "metadata_name"),
        (bytes(snappy.compress_raw(b"\x1a\x05\x08\x08\x12\x01a")), "metadata_type"),
    ],
)
def test_a_body_that_cannot_be_read_is_refused_by_name(body, reason):
    with pytest.raises(BadBody) as refused:
        decode(body, BOUNDS)
    assert refused.value.reason == reason


def test_a_bomb_is_refused_before_it_is_unpacked():
    body = bytes(snappy.compress_raw(bytes(BOUNDS.body_bytes + 1)))
    assert len(body) < BOUNDS.body_bytes / 10
    with pytest.raises(BodyTooLarge) as refused:
        decode(body, BOUNDS)
    assert refused.value.reason == "body_too_large"


@pytest.mark.parametrize("count", [3, 4])
def test_series_of_one_body_are_bounded(count):
    body = encode([Series({"__name__": "a", "n": str(number)}, [(1, 1.0)]) for number in range(count)])
    bounds = Bounds(series=3)
    if count <= bounds.series:
        assert len(decode(body, bounds).keys) == count
    else:
        with pytest.raises(BodyTooLarge, match="at most 3"):
            decode(body, bounds)


def test_samples_of_one_body_are_bounded():
    request = WriteRequest()
    row = request.timeseries.add(labels=key_of({"__name__": "a"}))
    for _ in range(1_000_001):
        row.samples.add(timestamp=1)
    with pytest.raises(BodyTooLarge) as refused:
        decode(bytes(snappy.compress_raw(request.SerializeToString())), BOUNDS)
    assert refused.value.reason == "too_many_samples"


@pytest.mark.parametrize(
    ("key", "path", "rule"),
    [
        (packed(("a", "1")), "/__name__", "metric_name"),
        (packed(("__name__", "a-b")), "/__name__", "metric_name"),
        (packed(("__name__", "a"), ("b", "1"), ("b", "2")), "/b", "label_twice"),
        (packed(("__name__", "a"), ("c", "1"), ("b", "2")), "/b", "label_order"),
        (packed(("__name__", "a"), ("b-c", "1")), "/b-c", "label_name"),
        (packed(("", "1"), ("__name__", "a")), "/", "label_name"),
        (packed(("__name__", "a"), ("b", "")), "/b", "label_empty"),
        (packed(("__name__", "a"), ("b", "x" * 1025)), "/b", "value_too_long"),
        (packed(("__name__", "a"), ("b" * 201, "x")), "/" + "b" * 200, "name_too_long"),
        (packed(*((f"a{number:02}", "1") for number in range(41))), "/labels", "too_many_labels"),
        ((b"\xff\xff",), "/labels", "label_encoding"),
        ((b"\x0a\x02\xff\xfe",), "/labels", "label_encoding"),
    ],
)
def test_labels_that_break_a_rule_are_named(key, path, rule):
    _, problems = labels_of(key, BOUNDS)
    assert [(problem.path, problem.rule) for problem in problems] == [(path, rule)]


def test_every_broken_rule_of_a_series_is_named():
    _, problems = labels_of(packed(("z", ""), ("a-b", "1")), BOUNDS)
    assert {problem.rule for problem in problems} == {"label_empty", "label_order", "label_name", "metric_name"}
