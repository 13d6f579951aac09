"""The metrics page against what vLLM 0.32 exports."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from simulator.metrics import EngineMetrics
from simulator.scheduler import Limits, Scheduler, Sequence, StepCost

# A real page of vLLM 0.32 with a model of 2,048 tokens, where the checkout has it beside it.
REAL_PAGE = Path(__file__).parents[3] / "shared" / "data" / "vllm-0.32.0-metrics.txt"
NEEDED = {
    "vllm:num_requests_running": "gauge",
    "vllm:num_requests_waiting": "gauge",
    "vllm:num_requests_waiting_by_reason": "gauge",
    "vllm:kv_cache_usage_perc": "gauge",
    "vllm:cache_config_info": "gauge",
    "vllm:engine_sleep_state": "gauge",
    "vllm:num_preemptions": "counter",
    "vllm:prompt_tokens": "counter",
    "vllm:prompt_tokens_by_source": "counter",
    "vllm:generation_tokens": "counter",
    "vllm:prefix_cache_queries": "counter",
    "vllm:prefix_cache_hits": "counter",
    "vllm:request_success": "counter",
    "vllm:time_to_first_token_seconds": "histogram",
    "vllm:inter_token_latency_seconds": "histogram",
    "vllm:request_time_per_output_token_seconds": "histogram",
    "vllm:e2e_request_latency_seconds": "histogram",
    "vllm:request_queue_time_seconds": "histogram",
    "vllm:request_prefill_time_seconds": "histogram",
    "vllm:request_decode_time_seconds": "histogram",
    "vllm:request_inference_time_seconds": "histogram",
    "vllm:request_prompt_tokens": "histogram",
    "vllm:request_generation_tokens": "histogram",
    "vllm:request_params_max_tokens": "histogram",
    "vllm:iteration_tokens_total": "histogram",
}


def families(page: str) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(page)}


def buckets(family: Metric) -> set[str]:
    return {sample.labels["le"] for sample in family.samples if "le" in sample.labels}


def label_names(family: Metric) -> set[frozenset[str]]:
    return {frozenset(sample.labels) for sample in family.samples}


@pytest.fixture
def metrics() -> EngineMetrics:
    return EngineMetrics("m", Scheduler(Limits(max_model_len_tokens=2048), StepCost()))


def test_the_page_has_the_names_and_types_that_readers_of_vllm_need(metrics: EngineMetrics) -> None:
    found = {name: family.type for name, family in families(metrics.page().decode()).items()}
    assert NEEDED.items() <= found.items()


def test_every_name_type_label_and_bucket_is_one_of_vllm(metrics: EngineMetrics) -> None:
    if not REAL_PAGE.exists():
        pytest.skip(f"{REAL_PAGE.name} is not beside this checkout")
    real = families(REAL_PAGE.read_text())
    for name, family in families(metrics.page().decode()).items():
        assert name in real
        assert family.type == real[name].type
        assert buckets(family) == buckets(real[name]), name
        if name == "vllm:cache_config_info":
            assert next(iter(label_names(family))) <= next(iter(label_names(real[name])))
        else:
            assert label_names(family) == label_names(real[name]), name


def test_a_finished_sequence_is_counted_once_in_each_of_its_histograms(metrics: EngineMetrics) -> None:
    sequence = Sequence("a", 10, 3, arrived_at=1.0)
    sequence.scheduled_at, sequence.first_token_at, sequence.last_token_at = 1.5, 2.0, 3.0
    sequence.generated_tokens = 3
    metrics.sequence_finished(sequence, "stop", max_tokens=8)
    samples = {
        sample.name: sample.value
        for family in families(metrics.page().decode()).values()
        for sample in family.samples
        if "le" not in sample.labels
    }
    expected = {
        "e2e_request_latency_seconds": 2.0,
        "request_queue_time_seconds": 0.5,
        "request_prefill_time_seconds": 0.5,
        "request_decode_time_seconds": 1.0,
        "request_inference_time_seconds": 1.5,
        "request_time_per_output_token_seconds": 0.5,
        "request_prompt_tokens": 10,
        "request_generation_tokens": 3,
        "request_params_max_tokens": 8,
    }
    for name, total in expected.items():
        assert samples[f"vllm:{name}_sum"] == total, name
        assert samples[f"vllm:{name}_count"] == 1, name


def test_buckets_are_cumulative_with_inclusive_bounds(metrics: EngineMetrics) -> None:
    for value in (0.3, 0.31, 9000.0):
        metrics.e2e.observe(value)
    counts = dict(metrics.e2e.cumulative())
    assert (counts["0.3"], counts["0.5"], counts["7680.0"], counts["+Inf"]) == (1, 2, 2, 3)
