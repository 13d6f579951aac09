"""Engines' metrics and the canonical names they become: the one table of both.

Sources: vLLM 0.32's own page, the public sources of the other engines. What an engine has no name for is absent.
"""

from __future__ import annotations

from typing import Literal

PREFIX = "headworks_engine_"
# `gauge`, `counter` and `histogram` add up over the data-parallel ranks of a server. `usage` is a share of the KV
# cache, `capacity` its size: a value, or of an info metric the label CAPACITY_LABEL. `finished`: a counter by reason.
Shape = Literal["gauge", "counter", "histogram", "usage", "capacity", "finished"]
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
    "e2e_seconds": "histogram",
    "queue_seconds": "histogram",
}
# The newest name first: versions in between give the same numbers under two names. A counter is found with `_total`
# and without, as OpenMetrics, the text format and single engines differ in it.
NAMES: dict[str, dict[str, tuple[str, ...]]] = {
    "vllm": {
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
        "queue_seconds": ("vllm:request_queue_time_seconds",),
    },
    "sglang": {
        "requests_running": ("sglang:num_running_reqs",),
        "requests_waiting": ("sglang:num_queue_reqs",),
        "kv_cache_usage_ratio": ("sglang:token_usage",),
        "kv_cache_capacity_tokens": ("sglang:max_total_num_tokens",),
        "preemptions_total": ("sglang:num_retracted_requests",),
        "prompt_tokens_total": ("sglang:prompt_tokens",),
        "generation_tokens_total": ("sglang:generation_tokens",),
        "prefix_cache_hits_tokens_total": ("sglang:cached_tokens",),
        "ttft_seconds": ("sglang:time_to_first_token_seconds",),
        "inter_token_latency_seconds": ("sglang:inter_token_latency_seconds",),
        "e2e_seconds": ("sglang:e2e_request_latency_seconds",),
        "queue_seconds": ("sglang:queue_time_seconds",),
    },
    "tgi": {
        "requests_running": ("tgi_batch_current_size",),
        "requests_waiting": ("tgi_queue_size",),
        "prompt_tokens_total": ("tgi_request_input_length_sum",),
        "generation_tokens_total": ("tgi_request_generated_tokens_sum",),
        "e2e_seconds": ("tgi_request_duration",),
        "queue_seconds": ("tgi_request_queue_duration",),
    },
    "llamacpp": {
        "requests_running": ("llamacpp:requests_processing",),
        "requests_waiting": ("llamacpp:requests_deferred",),
        "prompt_tokens_total": ("llamacpp:prompt_tokens",),
        "generation_tokens_total": ("llamacpp:tokens_predicted",),
    },
    "trtllm": {
        "requests_running": ("trtllm_num_requests_running",),
        "requests_waiting": ("trtllm_num_requests_waiting",),
        "kv_cache_usage_ratio": ("trtllm_kv_cache_utilization",),
        "prompt_tokens_total": ("trtllm_prompt_tokens",),
        "generation_tokens_total": ("trtllm_generation_tokens",),
        "requests_finished_total": ("trtllm_request_success",),
        "ttft_seconds": ("trtllm_time_to_first_token_seconds",),
        "e2e_seconds": ("trtllm_e2e_request_latency_seconds",),
        "queue_seconds": ("trtllm_request_queue_time_seconds",),
    },
}
CAPACITY_LABEL = "kv_cache_size_tokens"
REASON_LABEL = "finished_reason"
# Which data-parallel rank of a server a sample is of. vLLM before 0.10 has no such label, and one rank.
RANK_LABELS = {"vllm": "engine", "sglang": "dp_rank"}
# Samples that differ in these alone say the same once more: all stages of a pipeline run the same requests.
# Source: sglang/srt/managers/scheduler_metrics_mixin.py
COPY_LABELS = {"sglang": frozenset({"tp_rank", "pp_rank"})}
# Reasons are labels of ours: what is not known is counted as other.
FINISH_REASONS = frozenset({"stop", "length", "abort", "error", "repetition"})
OTHER_REASON = "other"
