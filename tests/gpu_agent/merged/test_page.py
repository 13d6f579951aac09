from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from gpu_agent.merged.page import BadPage, checked, merged_page

TRITON = """\
# HELP nv_inference_count Number of inferences
# TYPE nv_inference_count counter
nv_inference_count{model="llama",version="1"} 12
# HELP vllm:generation_tokens_total Tokens
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{model="llama",version="1"} 3
# HELP vllm:time_to_first_token_seconds TTFT
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_count{model="llama",version="1"} 1
vllm:time_to_first_token_seconds_sum{model="llama",version="1"} 0.2
vllm:time_to_first_token_seconds_bucket{model="llama",version="1",le="0.25"} 1
vllm:time_to_first_token_seconds_bucket{model="llama",version="1",le="+Inf"} 1
# HELP nv_gpu_utilization GPU utilization
# TYPE nv_gpu_utilization gauge
nv_gpu_utilization{gpu_uuid="GPU-1"} 0.5
"""
UP = {"vllm": True, "triton": True}


def families():
    tokens = CounterMetricFamily("vllm:generation_tokens", "Tokens", labels=["engine"])
    tokens.add_metric(["0"], 40)
    ttft = HistogramMetricFamily("vllm:time_to_first_token_seconds", "TTFT", labels=["engine"])
    ttft.add_metric(["0"], [("0.1", 1.0), ("+Inf", 4.0)], sum_value=2.0)
    return [tokens, ttft]


def by_sample(page: bytes):
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


def test_a_name_that_both_have_is_vllms_own():
    page = merged_page(families(), checked(TRITON), sources=UP, skipped_files=0)
    found = by_sample(page)
    assert found["vllm:generation_tokens_total", ("engine", "0")] == 40
    assert not [name for name in found if name[0].startswith("vllm:") and ("model", "llama") in name]
    assert ("vllm:time_to_first_token_seconds_bucket", ("engine", "0"), ("le", "0.1")) in found


def test_what_triton_alone_has_is_passed_on_as_it_is():
    page = merged_page(families(), checked(TRITON), sources=UP, skipped_files=0).decode()
    assert '# TYPE nv_inference_count counter\nnv_inference_count{model="llama",version="1"} 12\n' in page
    assert 'nv_gpu_utilization{gpu_uuid="GPU-1"} 0.5\n' in page


def test_no_name_is_described_twice():
    page = merged_page(families(), checked(TRITON), sources=UP, skipped_files=0).decode()
    described = [line.split()[2] for line in page.splitlines() if line.startswith("# TYPE ")]
    assert len(described) == len(set(described))


def test_without_vllm_tritons_copies_stand():
    page = merged_page([], checked(TRITON), sources={"vllm": False, "triton": True}, skipped_files=0)
    found = by_sample(page)
    assert found["vllm:generation_tokens_total", ("model", "llama"), ("version", "1")] == 3
    assert found["headworks_merged_source_up", ("source", "vllm")] == 0


def test_without_triton_vllms_part_stands():
    page = merged_page(families(), "", sources={"vllm": True, "triton": False}, skipped_files=2)
    found = by_sample(page)
    assert found["vllm:generation_tokens_total", ("engine", "0")] == 40
    assert found["headworks_merged_source_up", ("source", "triton")] == 0
    assert found["headworks_merged_skipped_files",] == 2


@pytest.mark.parametrize("page", ["<html>404</html>", "", "name{", 'name{a="1} 2\n', "# only a comment\n"])
def test_what_is_no_metrics_page_is_named(page):
    with pytest.raises(BadPage, match="Triton"):
        checked(page)


_names = st.from_regex(r"[a-z_][a-z0-9_:]{0,8}", fullmatch=True)


@given(vllm=st.sets(_names, max_size=6), triton=st.sets(_names, max_size=6))
def test_every_name_of_either_stands_once(vllm, triton):
    mine = [GaugeMetricFamily(name, "") for name in sorted(vllm)]
    for family in mine:
        family.add_metric([], 1)
    page = "".join(f"# TYPE {name} gauge\n{name} 2\n" for name in sorted(triton))
    merged = merged_page(mine, page, sources={}, skipped_files=0).decode()
    samples = [line for line in merged.splitlines() if not line.startswith(("#", "headworks_merged_"))]
    assert sorted(samples) == sorted([f"{name} 1.0" for name in vllm] + [f"{name} 2" for name in triton - vllm])
