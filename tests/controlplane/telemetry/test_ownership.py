"""Who may write which series: the decision alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.telemetry.ownership import WriterSource, check_series
from controlplane.telemetry.store.writer import Owner
from wire.remote_write import Bounds
from wire.remote_write_pb2 import Label
from wire.write_body import METRIC_NAME, key_of

PROMETHEUS = Owner("writer", "prometheus-b")
NAMES = st.sampled_from(["up", "headworks_gpu_up", "DCGM_FI_DEV_GPU_UTIL", "job:up:sum", "pool:requests:rate1m"])
VALUES = st.sampled_from(["a", "b", "n-1", "n-2"])
LABELS = st.dictionaries(st.sampled_from(["node", "gateway", "cluster", "replica", "job"]), VALUES)
TARGETS = st.frozensets(st.tuples(st.sampled_from(["node", "gateway"]), VALUES))
SOURCES = st.builds(
    WriterSource,
    st.just(PROMETHEUS),
    st.dictionaries(st.sampled_from(["cluster", "replica"]), VALUES, min_size=1),
    TARGETS,
    st.frozensets(NAMES),
)
SERIES = st.builds(lambda name, labels: {METRIC_NAME: name, **labels}, NAMES, LABELS)


def problems_of(source, labels):
    return {(each.path, each.rule) for each in check_series(source, [key_of(labels)], (), Bounds())[1]}


@given(SOURCES, SERIES)
def test_a_writer_may_write_what_carries_its_labels_and_is_nobody_elses(source, labels):
    expected = {
        (f"/timeseries/0/{label}", "missing_label")
        for label, value in source.matchers.items()
        if (label, value) not in labels.items()
    }
    expected |= {
        (f"/timeseries/0/{label}", "foreign_owner")
        for label, value in labels.items()
        if label in ("node", "gateway") and (label, value) in source.targets
    }
    if labels[METRIC_NAME] in source.recorded:
        expected.add((f"/timeseries/0/{METRIC_NAME}", "recorded_name"))
    if labels[METRIC_NAME] == "headworks_gpu_up":
        expected.add((f"/timeseries/0/{METRIC_NAME}", "own_name"))
    assert problems_of(source, labels) == expected


@given(SOURCES, SOURCES, SERIES)
def test_what_was_allowed_is_refused_once_it_is_not(before, now, labels):
    """As matchers change, targets enrol and rules record other names, between two bodies with one series."""
    if problems_of(before, labels):
        return
    key = key_of(labels)
    _, problems = check_series(now, [key], {key}, Bounds())
    assert {(each.path, each.rule) for each in problems} == problems_of(now, labels)


@pytest.mark.parametrize(
    "label",
    [
        b"\x12\x03n-1\x0a\x04node",
        Label(name="node", value="n-1").SerializeToString() + b"\x18\x01",
        b"\x0a\x84\x00node\x12\x03n-1",
    ],
    ids=["the value first", "a field more", "a length that is longer than it must be"],
)
def test_another_encoding_of_a_label_is_refused(label):
    """Else a node that enrols later would not be known in it."""
    source = WriterSource(PROMETHEUS, {"cluster": "b"})
    key = (*key_of({METRIC_NAME: "up", "cluster": "b"}), label)
    _, problems = check_series(source, [key], (), Bounds())
    assert [(each.path, each.rule) for each in problems] == [("/timeseries/0/labels", "label_encoding")]
