"""Who may write which series: the decision alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.telemetry.ownership import WriterRules, check_series, named_in
from controlplane.telemetry.store.writer import Owner
from wire.remote_write import Bounds
from wire.remote_write_pb2 import Label
from wire.write_body import METRIC_NAME, key_of

PROMETHEUS = Owner("writer", "prometheus-b")
NAMES = st.sampled_from(["up", "headworks_gpu_up", "DCGM_FI_DEV_GPU_UTIL", "job:up:sum", "pool:requests:rate1m"])
VALUES = st.sampled_from(["a", "b", "n-1", "n-2"])
LABELS = st.dictionaries(st.sampled_from(["node", "gateway", "cluster", "replica", "job"]), VALUES)
TARGETS = st.frozensets(st.tuples(st.sampled_from(["node", "gateway"]), VALUES))
RULES = st.builds(
    WriterRules,
    st.just(PROMETHEUS),
    st.dictionaries(st.sampled_from(["cluster", "replica"]), VALUES, min_size=1),
    TARGETS,
    st.frozensets(NAMES),
)
SERIES = st.builds(lambda name, labels: {METRIC_NAME: name, **labels}, NAMES, LABELS)


def problems_of(rules, labels):
    return {(each.path, each.rule) for each in check_series(rules, [key_of(labels)], (), Bounds())[1]}


@given(RULES, SERIES)
def test_a_writer_may_write_what_carries_its_labels_and_is_nobody_elses(rules, labels):
    expected = {
        (f"/timeseries/0/{label}", "missing_label")
        for label, value in rules.matchers.items()
        if (label, value) not in labels.items()
    }
    expected |= {
        (f"/timeseries/0/{label}", "foreign_owner")
        for label, value in labels.items()
        if label in ("node", "gateway") and (label, value) in rules.targets
    }
    if labels[METRIC_NAME] in rules.recorded:
        expected.add((f"/timeseries/0/{METRIC_NAME}", "recorded_name"))
    if labels[METRIC_NAME] == "headworks_gpu_up":
        expected.add((f"/timeseries/0/{METRIC_NAME}", "own_name"))
    assert problems_of(rules, labels) == expected


@given(st.lists(SERIES), st.binary())
def test_what_a_body_names_is_read_from_its_labels(series, no_label):
    named = named_in([*map(key_of, series), (no_label, b"\x0a\x04node\x12\x01\xff")])
    for name in (METRIC_NAME, "node", "gateway"):
        assert {labels[name] for labels in series if name in labels} <= named[name]
    assert named.keys() == {METRIC_NAME, "node", "gateway"}


@given(RULES, RULES, SERIES)
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
    rules = WriterRules(PROMETHEUS, {"cluster": "b"})
    key = (*key_of({METRIC_NAME: "up", "cluster": "b"}), label)
    _, problems = check_series(rules, [key], (), Bounds())
    assert [(each.path, each.rule) for each in problems] == [("/timeseries/0/labels", "label_encoding")]
