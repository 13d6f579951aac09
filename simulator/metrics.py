"""The metrics of a simulated engine under vLLM 0.32's names, labels, types and buckets.

Numbers are kept in plain attributes and turned into families only when the page is read, since a step of the
engine touches many of them. Absent is what vLLM exports of features that are not modelled, such as LoRA or
multi-modal caches.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Literal

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from simulator.scheduler import BLOCK_TOKENS, Scheduler, Sequence, Token

TTFT_SECONDS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0,
    640.0, 2560.0,
)  # fmt: skip
TOKEN_GAP_SECONDS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
REQUEST_SECONDS = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
)  # fmt: skip
ITERATION_TOKENS = tuple(float(x) for x in (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384))
CHOICES = (1.0, 2.0, 5.0, 10.0, 20.0)
PREEMPTIONS = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)
SleepState = Literal["awake", "weights_offloaded", "discard_all"]
SLEEP_STATES: tuple[SleepState, ...] = ("awake", "weights_offloaded", "discard_all")
# vLLM tries every finish reason at start, so a page shows them before they happen.
FINISH_REASONS = ("stop", "length", "abort", "error", "repetition")


def token_buckets(max_model_len_tokens: int) -> tuple[float, ...]:
    """1, 2, 5, 10 … up to the model's length, as vLLM builds them."""
    steps = (float(mantissa * 10**exponent) for exponent in range(10) for mantissa in (1, 2, 5))
    return tuple(step for step in steps if step <= max_model_len_tokens)


class Histogram:
    """Counts by upper bound, and a sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def cumulative(self) -> Iterator[tuple[str, float]]:
        total = 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            total += count
            yield bound, total


class EngineMetrics(Collector):
    """All numbers of one engine. The label `engine` is "0", as without data parallelism."""

    def __init__(self, model_name: str, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self._labels = {"model_name": model_name, "engine": "0"}
        limits = scheduler.limits
        tokens = token_buckets(limits.max_model_len_tokens)
        # Sequences that the core is done with, and whose answer the API process has not passed on. vLLM's tells what a
        # step left running once it has passed on what the step made.
        self.leaving = 0
        self.preemptions = self.prompt_tokens = self.generation_tokens = 0
        self.sleep_state: SleepState = "awake"
        # What the page says of the KV cache's size, beside what it is.
        self.told_capacity_factor = 1.0
        self.finished = dict.fromkeys(FINISH_REASONS, 0)
        self.ttft = Histogram(TTFT_SECONDS)
        self.inter_token_latency = Histogram(TOKEN_GAP_SECONDS)
        self.time_per_output_token = Histogram(TOKEN_GAP_SECONDS)
        self.e2e = Histogram(REQUEST_SECONDS)
        self.queue_time = Histogram(REQUEST_SECONDS)
        self.inference_time = Histogram(REQUEST_SECONDS)
        self.prefill_time = Histogram(REQUEST_SECONDS)
        self.decode_time = Histogram(REQUEST_SECONDS)
        self.request_prompt_tokens = Histogram(tokens)
        self.request_generation_tokens = Histogram(tokens)
        self.request_computed_tokens = Histogram(tokens)
        self.request_max_generation_tokens = Histogram(tokens)
        self.params_max_tokens = Histogram(tokens)
        self.params_n = Histogram(CHOICES)
        self.request_preemptions = Histogram(PREEMPTIONS)
        self.iteration_tokens = Histogram(ITERATION_TOKENS)
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def page(self) -> bytes:
        """The page in Prometheus text format 0.0.4."""
        return generate_latest(self._registry)

    def step(self, scheduled_tokens: int, preemptions: int) -> None:
        self.iteration_tokens.observe(scheduled_tokens)
        self.preemptions += preemptions

    def token(self, token: Token) -> None:
        sequence, gap_seconds = token
        self.generation_tokens += not sequence.pooled
        if gap_seconds is None:
            self.prompt_tokens += sequence.prompt_tokens
            self.ttft.observe(sequence.first_token_at - sequence.arrived_at)
        else:
            self.inter_token_latency.observe(gap_seconds)

    def sequence_finished(self, sequence: Sequence, reason: str, max_tokens: int) -> None:
        """A sequence reached its end. An aborted one is not counted anywhere, as in vLLM."""
        self.finished[reason] += 1
        generated, end = sequence.generated_tokens, sequence.last_token_at
        decode_seconds = end - sequence.first_token_at
        self.e2e.observe(end - sequence.arrived_at)
        self.queue_time.observe(sequence.scheduled_at - sequence.arrived_at)
        self.inference_time.observe(end - sequence.scheduled_at)
        self.prefill_time.observe(sequence.first_token_at - sequence.scheduled_at)
        self.decode_time.observe(decode_seconds)
        # One-token answers count as 0, as in vLLM.
        self.time_per_output_token.observe(decode_seconds / (generated - 1) if generated > 1 else 0.0)
        self.request_prompt_tokens.observe(sequence.prompt_tokens)
        self.request_computed_tokens.observe(sequence.prompt_tokens)
        self.request_generation_tokens.observe(generated)
        self.params_max_tokens.observe(max_tokens)
        self.request_preemptions.observe(sequence.preemptions)

    def request_finished(self, generated_tokens: list[int]) -> None:
        """All n sequences of a request reached their ends, after so many tokens each."""
        self.params_n.observe(len(generated_tokens))
        self.request_max_generation_tokens.observe(max(generated_tokens))

    def instant_prompts(self, prompt_tokens: list[int]) -> None:
        """A request for embeddings or a ranking, answered without scheduling: the tokens of each input."""
        for tokens in prompt_tokens:
            self.prompt_tokens += tokens
            self.finished["stop"] += 1
            self.request_prompt_tokens.observe(tokens)

    def instant_request(self, generated: list[tuple[int, int, str]], max_tokens: int) -> None:
        """A request answered without scheduling: (prompt tokens, output tokens, finish reason) of each choice."""
        for prompt_tokens, tokens, reason in generated:
            self.prompt_tokens += prompt_tokens
            self.generation_tokens += tokens
            self.finished[reason] += 1
            self.ttft.observe(0.0)
            self.e2e.observe(0.0)
            self.request_prompt_tokens.observe(prompt_tokens)
            self.request_generation_tokens.observe(tokens)
            self.params_max_tokens.observe(max_tokens)
        self.request_finished([tokens for _, tokens, _ in generated])

    def collect(self) -> Iterable[Metric]:
        scheduler = self.scheduler
        waiting = len(scheduler.waiting)
        yield self._gauge(
            "num_requests_running",
            "Number of requests in model execution batches.",
            len(scheduler.running) + self.leaving,
        )
        yield self._gauge("num_requests_waiting", "Number of requests waiting to be processed.", waiting)
        yield self._gauges(
            "num_requests_waiting_by_reason",
            "Number of waiting requests by reason.",
            "reason",
            {"capacity": waiting, "deferred": 0},
        )
        yield self._gauges(
            "engine_sleep_state",
            "Engine sleep state.",
            "sleep_state",
            {state: int(state == self.sleep_state) for state in SLEEP_STATES},
        )
        yield self._gauge("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", scheduler.kv_usage_ratio)
        # Prefix caching is off in the simulated engine (see cache_config_info), so both stay 0, as in vLLM then.
        yield self._counter("prefix_cache_queries", "Prefix cache queries, in terms of number of queried tokens.", 0)
        yield self._counter("prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.", 0)
        yield self._counter("num_preemptions", "Cumulative number of preemption from the engine.", self.preemptions)
        yield self._counter("prompt_tokens", "Number of prefill tokens processed.", self.prompt_tokens)
        yield self._counters(
            "prompt_tokens_by_source",
            "Number of prompt tokens by source.",
            "source",
            {"local_compute": self.prompt_tokens, "local_cache_hit": 0, "external_kv_transfer": 0},
        )
        yield self._counter("generation_tokens", "Number of generation tokens processed.", self.generation_tokens)
        yield self._counters(
            "request_success", "Count of successfully processed requests.", "finished_reason", self.finished
        )
        yield from self._histograms()
        yield self._cache_config()

    def _histograms(self) -> Iterator[Metric]:
        rows = {
            "request_prompt_tokens": ("Number of prefill tokens processed.", self.request_prompt_tokens),
            "request_generation_tokens": ("Number of generation tokens processed.", self.request_generation_tokens),
            "iteration_tokens_total": ("Histogram of number of tokens per engine_step.", self.iteration_tokens),
            "request_max_num_generation_tokens": (
                "Histogram of maximum number of requested generation tokens.",
                self.request_max_generation_tokens,
            ),
            "request_params_n": ("Histogram of the n request parameter.", self.params_n),
            "request_params_max_tokens": ("Histogram of the max_tokens request parameter.", self.params_max_tokens),
            "time_to_first_token_seconds": ("Histogram of time to first token in seconds.", self.ttft),
            "inter_token_latency_seconds": ("Histogram of inter-token latency in seconds.", self.inter_token_latency),
            "request_time_per_output_token_seconds": (
                "Histogram of time_per_output_token_seconds per request.",
                self.time_per_output_token,
            ),
            "e2e_request_latency_seconds": ("Histogram of e2e request latency in seconds.", self.e2e),
            "request_queue_time_seconds": ("Histogram of time spent in WAITING phase for request.", self.queue_time),
            "request_inference_time_seconds": (
                "Histogram of time spent in RUNNING phase for request.",
                self.inference_time,
            ),
            "request_prefill_time_seconds": (
                "Histogram of time spent in PREFILL phase for request.",
                self.prefill_time,
            ),
            "request_decode_time_seconds": ("Histogram of time spent in DECODE phase for request.", self.decode_time),
            "request_num_preemptions": (
                "Histogram of the number of times a request was preempted.",
                self.request_preemptions,
            ),
            "request_prefill_kv_computed_tokens": (
                "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
                self.request_computed_tokens,
            ),
        }
        for name, (text, histogram) in rows.items():
            family = HistogramMetricFamily(f"vllm:{name}", text, labels=list(self._labels))
            family.add_metric(list(self._labels.values()), list(histogram.cumulative()), histogram.sum)
            yield family

    def _cache_config(self) -> Metric:
        limits = self.scheduler.limits
        blocks = round(limits.capacity_blocks * self.told_capacity_factor)
        capacity_tokens = blocks * BLOCK_TOKENS
        # As in vLLM, the only series without model_name.
        labels = {
            "block_size": str(BLOCK_TOKENS),
            "cache_dtype": "auto",
            "enable_prefix_caching": "False",
            "engine": self._labels["engine"],
            "kv_cache_max_concurrency": str(round(capacity_tokens / limits.max_model_len_tokens, 2)),
            "kv_cache_size_tokens": str(capacity_tokens),
            "num_gpu_blocks": str(blocks),
        }
        text = "Information of the LLMEngine CacheConfig"
        family = GaugeMetricFamily("vllm:cache_config_info", text, labels=list(labels))
        family.add_metric(list(labels.values()), 1)
        return family

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(f"vllm:{name}", text, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), value)
        return family

    def _gauges(self, name: str, text: str, label: str, values: dict[str, int]) -> Metric:
        family = GaugeMetricFamily(f"vllm:{name}", text, labels=[*self._labels, label])
        for key, value in values.items():
            family.add_metric([*self._labels.values(), key], value)
        return family

    def _counter(self, name: str, text: str, value: int) -> Metric:
        family = CounterMetricFamily(f"vllm:{name}", text, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), value)
        return family

    def _counters(self, name: str, text: str, label: str, values: dict[str, int]) -> Metric:
        family = CounterMetricFamily(f"vllm:{name}", text, labels=[*self._labels, label])
        for key, value in values.items():
            family.add_metric([*self._labels.values(), key], value)
        return family
