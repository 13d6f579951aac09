from __future__ import annotations

import math

from django.utils.translation import gettext_lazy as _
from hypothesis import given
from hypothesis import strategies as st

from controlplane.telemetry.query import Series
from dashboards import units
from dashboards.charts import Chart, Fold, Query
from dashboards.lines import folded, lines_of

TIMES_MS = [0, 5_000, 10_000, 15_000]
QUERY = Query("up", "")
BY_POOL = Chart("a", _("A"), _("A."), units.SECONDS, ("pool",), (QUERY,), ("pool",), _("None."))
BY_NODE = Chart(
    "b", _("B"), _("B."), units.CELSIUS, ("node",), (QUERY,), ("node",), _("None."), fold=Fold("gpu", max)
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(TIMES_MS), st.floats()))
def test_a_line_has_a_value_where_one_was_measured_and_none_elsewhere(measured: dict[int, float]) -> None:
    series = Series({"pool": "chat"}, list(measured), list(measured.values()))
    [line] = lines_of(BY_POOL, QUERY, [series], TIMES_MS)
    expected = [measured[at] if at in measured and math.isfinite(measured[at]) else None for at in TIMES_MS]
    assert list(line.values) == expected


def test_a_line_is_named_by_the_labels_of_its_chart() -> None:
    named = Series({"pool": "chat", "node": "n-1"}, TIMES_MS, [1, 1, 1, 1])
    nameless = Series({}, TIMES_MS, [1, 1, 1, 1])
    assert [line.name for line in lines_of(BY_POOL, QUERY, [named, nameless], TIMES_MS)] == ["chat", "–"]


def test_the_gpus_of_a_node_are_one_line_their_highest_and_named_on_hover() -> None:
    gpus = {"10": [61.0, 61.0], "2": [58.0, 70.0], "0": [55.0]}
    series = [Series({"node": "n-1", "gpu": gpu}, TIMES_MS[: len(values)], values) for gpu, values in gpus.items()]
    [line] = folded(BY_NODE, lines_of(BY_NODE, QUERY, series, TIMES_MS))
    assert list(line.values) == [61.0, 70.0, None, None]
    # In the order of the GPUs' numbers.
    assert list(line.notes) == ["55 58 61", "– 70 61", "– – –", "– – –"]
    assert dict(line.labels) == {"node": "n-1"}


def test_a_node_whose_gpus_are_folded_already_names_none_on_hover() -> None:
    recorded = [Series({"node": "n-1"}, TIMES_MS, [61, 62, 63, 64])]
    [line] = folded(BY_NODE, lines_of(BY_NODE, QUERY, recorded, TIMES_MS))
    assert (list(line.values), list(line.notes)) == ([61, 62, 63, 64], [])
