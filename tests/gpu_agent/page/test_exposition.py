from __future__ import annotations

import math
import subprocess
from array import array

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from gpu_agent.page.exposition import exposition
from gpu_agent.telemetry import LivePart
from tests.services import service_binary


def part(*rows):
    """Rows are (name, labels, value)."""
    labels = [{"__name__": name, "node": "node-1", **own} for name, own, _ in rows]
    return LivePart(labels, array("d", [value for *_, value in rows]))


def page(*parts):
    return b"".join(exposition(parts)).decode()


HISTOGRAM = [
    ("e_seconds_bucket", {"le": "0.5"}, 1),
    ("e_seconds_bucket", {"le": "+Inf"}, 2),
    ("e_seconds_sum", {}, 1.25),
    ("e_seconds_count", {}, 2),
]


def test_families_of_several_parts_stand_together_with_their_types():
    assert page(part(("up", {"e": "1"}, 1), *HISTOGRAM, ("n_total", {}, 7)), part(("up", {"e": "2"}, 0))) == (
        "# TYPE e_seconds histogram\n"
        'e_seconds_bucket{node="node-1",le="0.5"} 1.0\n'
        'e_seconds_bucket{node="node-1",le="+Inf"} 2.0\n'
        'e_seconds_sum{node="node-1"} 1.25\n'
        'e_seconds_count{node="node-1"} 2.0\n'
        "# TYPE n_total counter\n"
        'n_total{node="node-1"} 7.0\n'
        "# TYPE up gauge\n"
        'up{node="node-1",e="1"} 1.0\n'
        'up{node="node-1",e="2"} 0.0\n'
    )


def test_a_name_that_ends_like_a_histograms_without_buckets_is_none():
    assert "# TYPE work_sum gauge" in page(part(("work_sum", {}, 1), ("work_bucket", {}, 1)))


def test_a_counter_of_dcgms_is_one_though_its_name_does_not_say_so():
    said = page(part(("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", {}, 1), ("DCGM_FI_DEV_POWER_USAGE", {}, 1)))
    assert "# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter\n" in said
    assert "# TYPE DCGM_FI_DEV_POWER_USAGE gauge\n" in said


def test_nothing_known_is_an_empty_page():
    assert page() == ""


@given(
    st.dictionaries(st.sampled_from(["a", "b", "_c9"]), st.text(st.characters(exclude_categories=["Cs"])), max_size=3),
    st.floats(),
)
def test_any_labels_and_value_come_back_as_they_were(own, value):
    (family,) = text_string_to_metric_families(page(part(("vllm:use_ratio", own, value))))
    (sample,) = family.samples
    assert sample.labels == {"node": "node-1", **own}
    assert (sample.name, family.type) == ("vllm:use_ratio", "gauge")
    assert sample.value == value or (math.isnan(sample.value) and math.isnan(value))


def test_text_that_is_no_utf8_spoils_no_page():
    assert page(part(("a", {"x": "\ud800"}, 1))) == '# TYPE a gauge\na{node="node-1",x="?"} 1.0\n'


def test_ten_thousand_series_come_in_pieces_between_which_others_have_their_turn():
    rows = [(f"m{number % 50}", {"engine": f"e{number}", "pool": "short"}, number / 7) for number in range(10_000)]
    lines = [piece.count(b"\n") for piece in exposition([part(*rows)])]
    assert sum(lines) == 10_050
    assert max(lines) <= 10_050 / 20


def test_prometheus_own_tool_reads_it():
    rows = [("odd", {"text": 'a"b\\c\nd'}, 1), ("bad", {}, math.nan), ("most", {}, math.inf), *HISTOGRAM]
    checked = subprocess.run(
        [service_binary("promtool"), "check", "metrics"],
        input=page(part(*rows)).encode(),
        capture_output=True,
        timeout=30,
        check=False,
    )
    said = checked.stderr.decode().splitlines()
    # 1: it cannot be parsed. 3: it can, and has no help texts.
    assert checked.returncode == 3
    assert {line.partition(" ")[2] for line in said} == {"no help text"}
