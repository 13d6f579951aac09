"""Engines' metrics and the canonical names they become: the one table of both.

Sources: vLLM 0.32's own page, the public sources of the other engines. What an engine has no name for is absent.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

PREFIX = "headworks_engine_"
# `gauge`, `counter` and `histogram` add up over the data-parallel ranks of a server. `usage` is a share of the KV
# cache, `capacity` its size: a value, or of an info metric the label CAPACITY_LABEL. `finished`: a counter by reason.
# `awake`: 1 while no rank sleeps; of vLLM's states of sleep the one that AWAKE_STATE names. `factor`: no signal itself.
Shape = Literal["gauge", "counter", "histogram", "usage", "capacity", "finished", "awake", "factor"]
CANONICAL: dict[str, Shape] = {
    "requests_running": "gauge",
    "requests_waiting": "gauge",
    "kv_cache_usage_ratio": "usage",
    "kv_cache_capacity_tokens": "capacity",
    "preemptions_total": "counter",
    "iterations_total": "counter",
    "prompt_tokens_total": "counter",
    "generation_tokens_total": "counter",
    "prefix_cache_queries_tokens_total": "counter",
    "prefix_cache_hits_tokens_total": "counter",
    "requests_finished_total": "finished",
    "ttft_seconds": "histogram",
    "inter_token_latency_seconds": "histogram",
    # A request's mean, known when it has ended: of engines that do not tell each token's.
    "tpot_seconds": "histogram",
    "e2e_seconds": "histogram",
    "queue_seconds": "histogram",
    "awake": "awake",
    "process_start_time_seconds": "gauge",
    # Of an engine that counts times without buckets. A histogram of the same page holds.
    "e2e_seconds_sum": "counter",
    "e2e_seconds_count": "counter",
    "queue_seconds_sum": "counter",
    "queue_seconds_count": "counter",
}


class Metric(NamedTuple):
    """One metric of an engine's page. What it says counts `scale` times, and times the metric `times` of that page.

    A counter of requests that ended says why in `reason_label`; `reason` holds where that says nothing known.
    """

    name: str
    scale: float = 1.0
    times: str = ""
    reason_label: str = "finished_reason"
    reason: str = "other"


# The newest name first: versions in between give the same numbers under two names. Those in a tuple of their own add
# up. A counter is found with `_total` and without, as OpenMetrics, the text format and single engines differ in it.
Alternative = str | Metric | tuple[str | Metric, ...]
Table = dict[str, tuple[Alternative, ...]]
_MICROSECONDS = 1e-6

_VLLM: Table = {
    "requests_running": ("vllm:num_requests_running",),
    "requests_waiting": ("vllm:num_requests_waiting",),
    "kv_cache_usage_ratio": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    "kv_cache_capacity_tokens": ("vllm:cache_config_info",),
    "preemptions_total": ("vllm:num_preemptions",),
    # A histogram of tokens; what counts is how many iterations it has seen.
    "iterations_total": ("vllm:iteration_tokens_total_count",),
    "prompt_tokens_total": ("vllm:prompt_tokens",),
    "generation_tokens_total": ("vllm:generation_tokens",),
    "prefix_cache_queries_tokens_total": ("vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries"),
    "prefix_cache_hits_tokens_total": ("vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits"),
    "requests_finished_total": ("vllm:request_success",),
    "ttft_seconds": ("vllm:time_to_first_token_seconds",),
    "inter_token_latency_seconds": ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
    "e2e_seconds": ("vllm:e2e_request_latency_seconds",),
    "queue_seconds": ("vllm:request_queue_time_seconds", "vllm:time_in_queue_requests"),
    "awake": ("vllm:engine_sleep_state",),
    # Of the API server. Several of them share a page that has no such series.
    "process_start_time_seconds": ("process_start_time_seconds",),
}
NAMES: dict[str, Table] = {
    "vllm": _VLLM,
    # Counters of tokens and of requests rise when a request ends.
    # Source: sglang/srt/observability/metrics_collector.py
    "sglang": {
        "requests_running": ("sglang:num_running_reqs",),
        "requests_waiting": ("sglang:num_queue_reqs",),
        "kv_cache_usage_ratio": ("sglang:token_usage",),
        "kv_cache_capacity_tokens": ("sglang:max_total_num_tokens",),
        "preemptions_total": ("sglang:num_retracted_requests",),
        "prompt_tokens_total": ("sglang:prompt_tokens",),
        "generation_tokens_total": ("sglang:generation_tokens",),
        "prefix_cache_queries_tokens_total": ("sglang:prompt_tokens",),
        "prefix_cache_hits_tokens_total": ("sglang:cached_tokens",),
        "requests_finished_total": (
            (Metric("sglang:num_requests"), Metric("sglang:num_aborted_requests", reason="abort")),
        ),
        "ttft_seconds": ("sglang:time_to_first_token_seconds",),
        "inter_token_latency_seconds": ("sglang:inter_token_latency_seconds",),
        "e2e_seconds": ("sglang:e2e_request_latency_seconds",),
        "queue_seconds": ("sglang:queue_time_seconds", "sglang:queue_time_s"),
        "process_start_time_seconds": ("process_start_time_seconds",),
    },
    # Source: text-generation-inference/router/src
    "tgi": {
        "requests_running": ("tgi_batch_current_size",),
        "requests_waiting": ("tgi_queue_size",),
        # One of each prefill and decode of a batch.
        "iterations_total": ("tgi_batch_inference_duration_count",),
        "prompt_tokens_total": ("tgi_request_input_length_sum",),
        "generation_tokens_total": ("tgi_request_generated_tokens_sum",),
        "requests_finished_total": (
            ("tgi_request_success", Metric("tgi_request_failure", reason_label="err", reason="error")),
        ),
        "tpot_seconds": ("tgi_request_mean_time_per_token_duration",),
        "e2e_seconds": ("tgi_request_duration",),
        "queue_seconds": ("tgi_request_queue_duration",),
    },
    # Prompt tokens leave out what came from the cache. Source: llama.cpp/tools/server/server-context.cpp
    "llamacpp": {
        "requests_running": ("llamacpp:requests_processing",),
        "requests_waiting": ("llamacpp:requests_deferred",),
        "iterations_total": ("llamacpp:n_decode",),
        "kv_cache_usage_ratio": ("llamacpp:kv_cache_usage_ratio",),
        "prompt_tokens_total": (("llamacpp:prompt_tokens", "llamacpp:prompt_tokens_cached"),),
        "generation_tokens_total": ("llamacpp:tokens_predicted",),
        "prefix_cache_queries_tokens_total": (("llamacpp:prompt_tokens", "llamacpp:prompt_tokens_cached"),),
        "prefix_cache_hits_tokens_total": ("llamacpp:prompt_tokens_cached",),
    },
    # It counts blocks, and says how many tokens one has. Of preemptions it says only how many requests are paused now:
    # no counter, so that is among its own series. Source: tensorrt_llm/metrics/collector.py
    "trtllm": {
        "requests_running": ("trtllm_num_requests_running",),
        "requests_waiting": ("trtllm_num_requests_waiting",),
        "kv_cache_usage_ratio": ("trtllm_kv_cache_utilization",),
        "kv_cache_capacity_tokens": (Metric("trtllm_kv_cache_max_blocks", times="trtllm_kv_cache_tokens_per_block"),),
        "prompt_tokens_total": ("trtllm_prompt_tokens",),
        "generation_tokens_total": ("trtllm_generation_tokens",),
        "prefix_cache_queries_tokens_total": (
            (
                Metric("trtllm_kv_cache_reused_blocks", times="trtllm_kv_cache_tokens_per_block"),
                Metric("trtllm_kv_cache_missed_blocks", times="trtllm_kv_cache_tokens_per_block"),
            ),
        ),
        "prefix_cache_hits_tokens_total": (
            Metric("trtllm_kv_cache_reused_blocks", times="trtllm_kv_cache_tokens_per_block"),
        ),
        "requests_finished_total": (("trtllm_request_success", Metric("trtllm_request_error", reason="error")),),
        "ttft_seconds": ("trtllm_time_to_first_token_seconds",),
        "tpot_seconds": ("trtllm_time_per_output_token_seconds",),
        "e2e_seconds": ("trtllm_e2e_request_latency_seconds",),
        "queue_seconds": ("trtllm_request_queue_time_seconds",),
        "process_start_time_seconds": ("process_start_time_seconds",),
    },
    # vLLM inside Triton gives its own numbers on the same page, or on one that was merged; they hold, for they see
    # tokens. Source: triton-inference-server/server/docs/user_guide/metrics.md
    "triton": {
        **_VLLM,
        "requests_waiting": ("vllm:num_requests_waiting", "nv_inference_pending_request_count"),
        "requests_finished_total": (
            "vllm:request_success",
            (
                "nv_inference_request_success",
                Metric("nv_inference_request_failure", reason_label="reason", reason="error"),
            ),
        ),
        "e2e_seconds_sum": (Metric("nv_inference_request_duration_us", _MICROSECONDS),),
        "e2e_seconds_count": ("nv_inference_request_success",),
        "queue_seconds_sum": (Metric("nv_inference_queue_duration_us", _MICROSECONDS),),
        "queue_seconds_count": ("nv_inference_request_success",),
    },
}
# Where each kind has its page. TensorRT-LLM's /metrics is JSON about iterations.
METRICS_PATHS = {**dict.fromkeys(NAMES, "/metrics"), "trtllm": "/prometheus/metrics"}
CAPACITY_LABEL = "kv_cache_size_tokens"
AWAKE_STATE = ("sleep_state", "awake")
# Which data-parallel rank of a server a sample is of. vLLM before 0.10 has no such label, and one rank.
RANK_LABELS = {"vllm": "engine", "sglang": "dp_rank", "triton": "engine"}
# Series of each rank, and with them what shows whether it works.
RANK_SERIES = frozenset(
    {"requests_running", "requests_waiting", "kv_cache_usage_ratio", "iterations_total", "preemptions_total"}
)
RANK_METRICS = RANK_SERIES | {"prompt_tokens_total", "generation_tokens_total", "inter_token_latency_seconds"}
# Which model a sample is of. Triton has one, vLLM inside it the other.
MODEL_LABELS = ("model_name", "model")
# Samples that differ in these alone say the same once more: all stages of a pipeline run the same requests.
# Source: sglang/srt/managers/scheduler_metrics_mixin.py
COPY_LABELS = {"sglang": frozenset({"tp_rank", "pp_rank", "moe_ep_rank"})}
# A sample with a value in this label is part of another that has none in it: SGLang counts by priority beside the sum.
PART_LABELS = {"sglang": "priority"}
# Reasons are labels of ours: what is not known is counted as other.
FINISH_REASONS = {
    **{reason: reason for reason in ("stop", "length", "abort", "error", "repetition")},
    "cancelled": "abort",
    "canceled": "abort",
    # A client of TGI's that went away.
    "dropped": "abort",
}

# What passes of an engine's own series where no setting says: what a cause is found by, that has no canonical name.
OWN_SERIES: dict[str, tuple[str, ...]] = {
    "vllm": (
        "vllm:num_requests_waiting_by_reason",
        "vllm:prompt_tokens_by_source",
        "vllm:request_prefill_time_seconds",
        "vllm:request_decode_time_seconds",
        "vllm:iteration_tokens_total",
        "vllm:admission_rejections",
        "vllm:lora_requests_info",
    ),
    "sglang": (
        "sglang:gen_throughput",
        "sglang:cache_hit_rate",
        "sglang:realtime_tokens",
        "sglang:num_grammar_queue_reqs",
        "sglang:grammar_compilation_time_seconds",
        "sglang:spec_accept_length",
    ),
    "tgi": ("tgi_batch_current_max_tokens", "tgi_batch_inference_duration", "tgi_request_validation_duration"),
    "llamacpp": (
        "llamacpp:n_decode",
        "llamacpp:n_busy_slots_per_decode",
        "llamacpp:prompt_seconds",
        "llamacpp:tokens_predicted_seconds",
    ),
    "trtllm": (
        "trtllm_num_paused_requests",
        "trtllm_iteration_latency_seconds",
        "trtllm_request_prefill_time_seconds",
        "trtllm_request_decode_time_seconds",
    ),
    "triton": ("nv_inference_count", "nv_inference_exec_count", "nv_inference_compute_infer_duration_us"),
}
