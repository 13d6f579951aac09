"""Prometheus remote write 1.0, read within bounds; wire/write_body.py writes it.

A series' labels stay encoded (`Key`) until someone asks `labels_of`, so that a receiver recognises what it knows by
comparing bytes.
Source: https://prometheus.io/docs/specs/prw/remote_write_spec/
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from cramjam import CompressionError, DecompressionError, snappy
from google.protobuf.message import DecodeError

from wire.problems import Problem
from wire.remote_write_pb2 import Envelope, Label, WriteRequest
from wire.remote_write_pb2 import Metadata as EncodedMetadata
from wire.write_body import METRIC_NAME, Key, Series

_METRIC_NAME_PATTERN = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL_NAME_PATTERN = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
# By the number that MetricMetadata has for it.
METRIC_TYPES = ("unknown", "counter", "gauge", "histogram", "gaugehistogram", "summary", "info", "stateset")
# What Python keeps for one decoded series or sample is some hundred bytes; this bounds it.
_MAX_SAMPLES = 1_000_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one body may hold. Lengths in characters."""

    body_bytes: int = 16 << 20
    series: int = 100_000
    metadata: int = 10_000
    labels: int = 40
    name_length: int = 200
    value_length: int = 1024


class Metadata(NamedTuple):
    """What the metrics of one family are; `kind` is one of METRIC_TYPES."""

    family: str
    kind: str
    help: str
    unit: str


@dataclass(frozen=True, slots=True)
class Body:
    """A decoded body, as columns: `keys` and `counts` (samples) per series, `times_ms` and `values` per sample."""

    keys: list[Key]
    counts: list[int]
    times_ms: list[int]
    values: list[float]
    metadata: list[Metadata] = field(default_factory=list)


class BadBody(ValueError):
    """A body that cannot be taken: `reason` names why, the message says what would be right."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class BodyTooLarge(BadBody):
    """Send less at once."""


def decode(body: bytes, bounds: Bounds) -> Body:
    """The series of a write, labels still encoded, and its metadata. Exemplars are passed over.

    An empty sample takes two bytes of the body and some fifty in memory: a hostile body can take that multiple of
    `bounds.body_bytes` while it is decoded.

    Raises: BodyTooLarge; BadBody (`not_snappy`, `not_protobuf`, `native_histogram`, `metadata_type`, `metadata_name`,
    `metadata_too_long`).
    """
    raw = _decompressed(body, bounds.body_bytes)
    try:
        _check_counts(Envelope.FromString(raw), bounds)
        request = WriteRequest.FromString(raw)
    except DecodeError as error:
        raise BadBody("not_protobuf", "the body is no prometheus.WriteRequest of remote write 1.0") from error
    taken = Body([], [], [], [], [_metadata(each, bounds) for each in request.metadata])
    for row in request.timeseries:
        if row.histograms:
            raise BadBody("native_histogram", "native histograms are not stored; send classic histograms")
        if len(taken.values) + len(row.samples) > _MAX_SAMPLES:
            raise BodyTooLarge("too_many_samples", f"send at most {_MAX_SAMPLES} samples in one body")
        taken.keys.append(tuple(row.labels))
        taken.counts.append(len(row.samples))
        for sample in row.samples:
            taken.times_ms.append(sample.timestamp)
            taken.values.append(sample.value)
    return taken


def _check_counts(envelope: Envelope, bounds: Bounds) -> None:
    series, families = len(envelope.timeseries), len(envelope.metadata)
    if series > bounds.series:
        raise BodyTooLarge("too_many_series", f"{series} series in one body; send at most {bounds.series}")
    if families > bounds.metadata:
        message = f"metadata of {families} families in one body; send at most {bounds.metadata}"
        raise BodyTooLarge("too_much_metadata", message)


def _metadata(encoded: EncodedMetadata, bounds: Bounds) -> Metadata:
    family, number = encoded.metric_family_name, encoded.type
    for text in (family, encoded.help, encoded.unit):
        if len(text) > bounds.value_length:
            message = f"metadata of {family[: bounds.name_length]!r}: give at most {bounds.value_length} characters"
            raise BadBody("metadata_too_long", message)
    if not _METRIC_NAME_PATTERN.fullmatch(family):
        raise BadBody("metadata_name", f"a metric family's name matches {_METRIC_NAME_PATTERN.pattern}, not {family!r}")
    if not 0 <= number < len(METRIC_TYPES):
        message = f"metadata of {family!r} has the type {number}; give 0 to {len(METRIC_TYPES) - 1}"
        raise BadBody("metadata_type", message)
    return Metadata(family, METRIC_TYPES[number], encoded.help, encoded.unit)


def decode_series(body: bytes, bounds: Bounds) -> list[Series]:
    """As `decode`, with labels and samples put together; for readers that look at every series."""
    taken = decode(body, bounds)
    samples = iter(zip(taken.times_ms, taken.values, strict=True))
    return [
        Series(labels_of(key, bounds)[0], [next(samples) for _ in range(count)])
        for key, count in zip(taken.keys, taken.counts, strict=True)
    ]


def labels_of(key: Key, bounds: Bounds) -> tuple[dict[str, str], list[Problem]]:
    """The labels of an encoded series, and every rule that they break, each at the label's name."""
    labels: dict[str, str] = {}
    if len(key) > bounds.labels:
        return labels, [Problem("/labels", "too_many_labels", f"{len(key)} labels; give at most {bounds.labels}")]
    problems: list[Problem] = []
    before = ""
    for encoded in key:
        try:
            label = Label.FromString(encoded)
        except DecodeError:
            return {}, [Problem("/labels", "label_encoding", "a label is no protobuf of two UTF-8 strings")]
        name, value = label.name, label.value
        if name in labels:
            problems.append(_problem(name, bounds, "label_twice", "give every label once"))
        elif name < before:
            problems.append(_problem(name, bounds, "label_order", "sort labels by name"))
        problems += _label_problems(name, value, bounds)
        labels[name] = value
        before = name
    if METRIC_NAME not in labels:
        problems.append(Problem(f"/{METRIC_NAME}", "metric_name", "the series has no name: give the label __name__"))
    return labels, problems


def _label_problems(name: str, value: str, bounds: Bounds) -> list[Problem]:
    problems = []
    if len(name) > bounds.name_length:
        problems.append(_problem(name, bounds, "name_too_long", f"give at most {bounds.name_length} characters"))
    elif not _LABEL_NAME_PATTERN.fullmatch(name):
        problems.append(_problem(name, bounds, "label_name", f"a name matches {_LABEL_NAME_PATTERN.pattern}"))
    if len(value) > bounds.value_length:
        message = f"{len(value)} characters; give at most {bounds.value_length}"
        problems.append(_problem(name, bounds, "value_too_long", message))
    elif not value:
        problems.append(_problem(name, bounds, "label_empty", "leave out a label that has no value"))
    elif name == METRIC_NAME and not _METRIC_NAME_PATTERN.fullmatch(value):
        message = f"a metric's name matches {_METRIC_NAME_PATTERN.pattern}, not {value!r}"
        problems.append(_problem(name, bounds, "metric_name", message))
    return problems


def _problem(name: str, bounds: Bounds, rule: str, message: str) -> Problem:
    return Problem(f"/{name[: bounds.name_length]}", rule, message)


def _decompressed(body: bytes, limit_bytes: int) -> bytes:
    """Snappy's header says the size, so a bomb is refused before it is unpacked."""
    try:
        size = snappy.decompress_raw_len(body)
        if size > limit_bytes:
            raise BodyTooLarge("body_too_large", f"{size} bytes when unpacked; send at most {limit_bytes} at once")
        return bytes(snappy.decompress_raw(body))
    except (DecompressionError, CompressionError, ValueError) as error:
        if isinstance(error, BadBody):
            raise
        raise BadBody("not_snappy", "the body is not in snappy's block format (Content-Encoding: snappy)") from error
