"""What bounds the engines: their KV cache, or their GPUs; and Triton beside vLLM."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from dashboards import units
from dashboards.charts.hardware import COMPUTE, FAULTS, GPUS
from dashboards.charts.promql import gauge, highest, mean, mean_of_histogram, rate
from dashboards.charts.queue import NO_ENGINES
from dashboards.charts.rows import Chart, Layer, Query, Section

_POOL_NODE = ("pool", "node")
_KV = "headworks_engine_kv_cache_usage_ratio"
_HITS, _QUERIES = (f"headworks_engine_prefix_cache_{what}_tokens" for what in ("hits", "queries"))
_EXECUTIONS = rate("nv_inference_exec_count", "engine")
_NO_TRITON = _("No engine of the kind triton told of it.")
_NO_VLLM = _("No engine of the kind vllm told of it.")

_ENGINES = Section(
    _("What bounds the engines"),
    (
        Chart(
            "kv",
            _("KV cache use"),
            _("Per engine. Near the line an engine preempts requests."),
            units.PERCENT,
            ("engine",),
            # One that moved to another node is still that engine.
            (
                Query(
                    f"100 * {gauge('max', _KV, 'engine')}",
                    f"100 * max by (engine) ({highest(f'engine:{_KV}:max')})",
                ),
            ),
            _POOL_NODE,
            NO_ENGINES,
            recorded_note=_("Per engine, each point its highest. Near the line an engine preempts requests."),
            highest=100,
            threshold=95,
        ),
        COMPUTE,
        Chart(
            "in_engines",
            _("Sequences in the engines"),
            _("Per pool: running drawn through, waiting dotted."),
            units.REQUESTS,
            ("pool",),
            (
                Query(
                    gauge("sum", "headworks_engine_requests_running", "pool"),
                    mean("pool:headworks_engine_requests_running:sum"),
                    _("running"),
                ),
                Query(
                    gauge("sum", "headworks_engine_requests_waiting", "pool"),
                    mean("pool:headworks_engine_requests_waiting:sum"),
                    _("waiting"),
                    "dotted",
                ),
            ),
            _POOL_NODE,
            NO_ENGINES,
            recorded_takes=("pool",),
        ),
        Chart(
            "preemptions",
            _("Preemptions"),
            _("Per pool: requests thrown out for want of KV cache, and worked on anew."),
            units.PER_SECOND,
            ("pool",),
            (
                Query(
                    rate("headworks_engine_preemptions_total", "pool"), mean("pool:headworks_engine_preemptions:rate1m")
                ),
            ),
            _POOL_NODE,
            _("vLLM and SGLang tell of it, other engines do not."),
            recorded_takes=("pool",),
        ),
        Chart(
            "prefix_hits",
            _("Prefix cache hits"),
            _("Per pool: part of the prompt tokens that were in the cache."),
            units.PERCENT,
            ("pool",),
            (
                Query(
                    f"100 * {rate(f'{_HITS}_total', 'pool')} / {rate(f'{_QUERIES}_total', 'pool')}",
                    f"100 * {mean(f'pool:{_HITS}:rate1m')} / {mean(f'pool:{_QUERIES}:rate1m')}",
                ),
            ),
            _POOL_NODE,
            _("Engines tell of it whose prefix cache is on."),
            recorded_takes=("pool",),
            highest=100,
        ),
        Chart(
            "engine_tokens",
            _("Tokens in and out"),
            _("Per pool, at the engines: prompt drawn through, output dotted."),
            units.TOKENS_PER_SECOND,
            ("pool",),
            (
                Query(
                    rate("headworks_engine_prompt_tokens_total", "pool"),
                    mean("pool:headworks_engine_prompt_tokens:rate1m"),
                    _("in"),
                ),
                Query(
                    rate("headworks_engine_generation_tokens_total", "pool"),
                    mean("pool:headworks_engine_generation_tokens:rate1m"),
                    _("out"),
                    "dotted",
                ),
            ),
            _POOL_NODE,
            NO_ENGINES,
            recorded_takes=("pool",),
        ),
    ),
)
_TRITON = Section(
    _("Triton beside vLLM"),
    (
        Chart(
            "kinds_queue",
            _("Queue within the engine"),
            _("Per kind of engine, mean."),
            units.SECONDS,
            ("kind",),
            (Query(mean_of_histogram("headworks_engine_queue_seconds", "kind")),),
            _POOL_NODE,
            NO_ENGINES,
        ),
        Chart(
            "kinds_finished",
            _("Requests finished"),
            _("Per kind of engine, with the reason."),
            units.REQUESTS_PER_SECOND,
            ("kind", "reason"),
            (Query(rate("headworks_engine_requests_finished_total", "kind, reason")),),
            _POOL_NODE,
            NO_ENGINES,
        ),
        Chart(
            "triton_batch",
            _("Triton: inferences a batch"),
            _("Per engine. Near 1 its dynamic batcher batches nothing."),
            units.PLAIN,
            ("engine",),
            (Query(f"{rate('nv_inference_count', 'engine')} / {_EXECUTIONS}"),),
            _POOL_NODE,
            _NO_TRITON,
        ),
        Chart(
            "vllm_batch",
            _("vLLM: tokens a step"),
            _("Per engine, mean. At max_num_batched_tokens a step is full."),
            units.TOKENS,
            ("engine",),
            (Query(mean_of_histogram("vllm:iteration_tokens_total", "engine")),),
            _POOL_NODE,
            _NO_VLLM,
        ),
        Chart(
            "triton_compute",
            _("Triton: compute a batch"),
            _("Per engine, mean time of the model itself."),
            units.SECONDS,
            ("engine",),
            (Query(f"{rate('nv_inference_compute_infer_duration_us', 'engine')} / 1e6 / {_EXECUTIONS}"),),
            _POOL_NODE,
            _NO_TRITON,
        ),
        Chart(
            "vllm_phases",
            _("vLLM: prefill and decode"),
            _("Per engine, mean time of a request: prefill drawn through, decode dotted."),
            units.SECONDS,
            ("engine",),
            (
                Query(mean_of_histogram("vllm:request_prefill_time_seconds", "engine"), "", _("prefill")),
                Query(mean_of_histogram("vllm:request_decode_time_seconds", "engine"), "", _("decode"), "dotted"),
            ),
            _POOL_NODE,
            _NO_VLLM,
        ),
    ),
)
ENGINES = Layer(
    "engines",
    "engines/",
    _("Engine and hardware"),
    _("KV near 95 % with idle compute: too much context at once. Busy compute with free KV: too many short requests."),
    (_ENGINES, GPUS, FAULTS, _TRITON),
)
