"""The recording rules that are there until people give others: what pages over days need, by pool, tenant and node.

Names are Prometheus' level:metric:operations. Levels are the labels that are left.
"""

from __future__ import annotations

from wire.canonical import Document

_ENGINE_COUNTERS = (
    "prompt_tokens", "generation_tokens", "preemptions", "prefix_cache_queries_tokens", "prefix_cache_hits_tokens",
)  # fmt: skip
_REQUESTS = "headworks_gateway_requests_total"
_LATENCIES = ("queue_seconds", "ttft_seconds", "tpot_seconds", "e2e_seconds")
_QUANTILES = {"p50": "0.5", "p95": "0.95", "p99": "0.99"}
# By level. There may be many tenants, and of few requests the p99 is but the slowest.
_STATS = {"pool": ("p50", "p95", "p99"), "tenant": ("p50", "p95")}


def builtin() -> Document:
    """The rules, in the form of a rule file."""
    return {
        "groups": [
            {"name": "headworks-gateways", "rules": [*_traffic("pool"), *_traffic("tenant"), _tokens(), *_queues()]},
            {"name": "headworks-engines", "rules": _engines()},
            {"name": "headworks-gpus", "rules": _gpus()},
            {"name": "headworks-slo", "rules": _promises()},
        ]
    }


def _traffic(level: str) -> list[Document]:
    tokens = (f"headworks_gateway_{kind}_tokens" for kind in ("prompt", "generation"))
    return [
        _rule(
            f"{level}:headworks_gateway_requests:rate1m", f"sum by ({level}, outcome, reason) (rate({_REQUESTS}[1m]))"
        ),
        *(_rule(f"{level}:{name}:rate1m", f"sum by ({level}) (rate({name}_total[1m]))") for name in tokens),
        *(_quantile(level, f"headworks_gateway_{name}", stat) for name in _LATENCIES for stat in _STATS[level]),
    ]


def _tokens() -> Document:
    """Of both kinds, and of each tenant in each pool: one pool can be looked at alone."""
    kinds = (f"headworks_gateway_{kind}_tokens_total" for kind in ("prompt", "generation"))
    both = " + ".join(f"sum by (tenant, pool) (rate({name}[1m]))" for name in kinds)
    return _rule("tenant_pool:headworks_gateway_tokens:rate1m", both)


def _queues() -> list[Document]:
    names = ("headworks_gateway_queue_length", "headworks_gateway_queue_tokens")
    return [_rule(f"pool:{name}:sum", f"sum by (pool) ({name})") for name in names]


def _promises() -> list[Document]:
    """What was promised and whether it was kept: rules of burn rates look back over days of it."""
    record = "pool:headworks_gateway_slo:rate1m"
    whole = "sum by (pool, outcome) (rate(headworks_gateway_slo_requests_total[1m]))"
    each = "sum by (pool, slo, outcome) (rate(headworks_gateway_slo_promises_total[1m]))"
    return [{**_rule(record, whole), "labels": {"slo": "goodput"}}, _rule(record, each)]


def _quantile(level: str, name: str, stat: str) -> Document:
    rate = f"sum by ({level}, le) (rate({name}_bucket[5m]))"
    return _rule(f"{level}:{name}:{stat}_rate5m", f"histogram_quantile({_QUANTILES[stat]}, {rate})")


def _engines() -> list[Document]:
    kv = "headworks_engine_kv_cache_usage_ratio"
    sums = ("up", "requests_waiting", "requests_running")
    return [
        *(_rule(f"pool:headworks_engine_{name}:sum", f"sum by (pool) (headworks_engine_{name})") for name in sums),
        _rule(f"pool:{kv}:avg", f"avg by (pool) ({kv})"),
        _rule(f"pool:{kv}:max", f"max by (pool) ({kv})"),
        _rule(f"node:{kv}:max", f"max by (node) ({kv})"),
        _rule(f"engine:{kv}:max", f"max by (node, pool, engine) ({kv})"),
        *(_time_spent(name, part) for name in ("queue", "e2e") for part in ("sum", "count")),
        *(_engine_rate(name) for name in _ENGINE_COUNTERS),
    ]


def _engine_rate(name: str) -> Document:
    metric = f"headworks_engine_{name}"
    return _rule(f"pool:{metric}:rate1m", f"sum by (pool) (rate({metric}_total[1m]))")


def _time_spent(name: str, part: str) -> Document:
    """Seconds and requests apart: over any time, the one through the other is the mean."""
    metric = f"headworks_engine_{name}_seconds_{part}"
    return _rule(f"pool:{metric}:rate1m", f"sum by (pool) (rate({metric}[1m]))")


def _gpus() -> list[Document]:
    # Utilisation and power jump between two samples, so that one of them would not say how it was.
    use, power = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_POWER_USAGE"
    return [
        _rule(f"node:{use}:avg", f"avg by (node) (avg_over_time({use}[1m]))"),
        _rule(f"node:{power}:sum", f"sum by (node) (avg_over_time({power}[1m]))"),
        _rule("node:DCGM_FI_DEV_GPU_TEMP:max", "max by (node) (DCGM_FI_DEV_GPU_TEMP)"),
        _rule("node:DCGM_FI_DEV_FB_USED:sum", "sum by (node) (DCGM_FI_DEV_FB_USED)"),
        _rule("node:DCGM_FI_DEV_FB_TOTAL:sum", "sum by (node) (DCGM_FI_DEV_FB_TOTAL)"),
        _rule("node:DCGM_FI_DEV_SM_CLOCK:avg", "avg by (node) (avg_over_time(DCGM_FI_DEV_SM_CLOCK[1m]))"),
        # The count itself: over any time, its increase is how many there were.
        _rule("node:headworks_gpu_xid_errors:sum", "sum by (node) (headworks_gpu_xid_errors_total)"),
        _rule("node:headworks_gpu_up:sum", "sum by (node) (headworks_gpu_up)"),
    ]


def _rule(record: str, expr: str) -> Document:
    return {"record": record, "expr": expr}
