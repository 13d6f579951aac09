"""Samples of a small fleet, as its gateway and its nodes' agents would push them. The same moment, the same values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import cycle

from wire.write_body import Series

POOLS = ("chat", "summaries")
# Tenant → its pool.
TENANTS = {"search": "chat", "support-bot": "chat", "nightly": "summaries"}
GPUS = 8
_BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, math.inf)
# Mean seconds by histogram: gateway's TTFT and queue, engine's whole request and queue.
_TTFT, _QUEUE, _E2E, _ENGINE_QUEUE = 0.35, 0.04, 2.4, 0.12
# Of the gateway, and of the engine between two tokens.
_TPOT, _GATEWAY_E2E, _BETWEEN = 0.03, 2.6, 0.025
_BEGINNING_MS = 1_700_000_000_000


# Of what is drawn to be known to fire: by name, level and swing.
_POOL_GAUGES = {
    "queue_length": (4, 4),
    "queue_tokens": (9_000, 6_000),
    "pool_requests": (22, 9),
    "concurrency_limit": (32, 0),
    "kv_reserved_tokens": (310_000, 60_000),
    "kv_others_tokens": (40_000, 9_000),
}
_SLOWING = ("sw_power_cap", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")


def gateway_series(gateway: str, times_ms: Sequence[int]) -> list[Series]:
    """What one gateway measures of all tenants."""
    found: list[Series] = []
    for tenant, pool in TENANTS.items():
        labels = {"gateway": gateway, "pool": pool, "tenant": tenant, "priority_class": "interactive"}
        per_second = 3.0 + 2.0 * len(tenant) / 11
        slow = 1.0 if pool == "chat" else 2.5
        for name, mean in (("ttft", _TTFT), ("queue", _QUEUE), ("tpot", _TPOT), ("e2e", _GATEWAY_E2E)):
            found += _histogram(f"headworks_gateway_{name}_seconds", labels, times_ms, per_second, mean * slow)
        for kind, tokens in (("prompt", 420), ("generation", 96)):
            name = f"headworks_gateway_{kind}_tokens_total"
            found.append(_counter(name, labels, times_ms, tokens * per_second))
        for outcome, reason, share in (
            ("ok", "none", 0.93),
            ("refused", "tpm_limit", 0.03),
            ("refused", "queue_full", 0.02),
            ("refused", "queue_timeout", 0.005),
            ("failed", "engine_lost", 0.01),
            ("cancelled", "client_left", 0.02),
        ):
            result = {**labels, "outcome": outcome, "reason": reason}
            found.append(_counter("headworks_gateway_requests_total", result, times_ms, share * per_second))
        for outcome, share in (("met", 0.9), ("missed", 0.04)):
            result = {**labels, "outcome": outcome}
            found.append(_counter("headworks_gateway_slo_requests_total", result, times_ms, share * per_second))
        used = {"gateway": gateway, "tenant": tenant}
        found.append(_gauge("headworks_gateway_daily_budget_used_ratio", used, times_ms, 0.5, 0.2, len(tenant)))
    for number, pool in enumerate(POOLS):
        found += _pool_series({"gateway": gateway, "pool": pool}, times_ms, number)
    return found


def _pool_series(labels: dict[str, str], times_ms: Sequence[int], phase: int) -> Iterator[Series]:
    """What a gateway says of a pool and of its one engine."""
    for name, (level, swing) in _POOL_GAUGES.items():
        yield _gauge(f"headworks_gateway_{name}", labels, times_ms, level, swing, phase)
    engine = {**labels, "engine": f"{labels['pool']}-vllm"}
    yield _counter("headworks_gateway_streams_cut_total", {**engine, "reason": "engine_error"}, times_ms, 0.01)
    for state, value in (("closed", 1 - phase), ("half_open", 0), ("open", phase)):
        yield _gauge("headworks_gateway_breaker_state", {**engine, "state": state}, times_ms, value, 0, 0)


def node_series(node: str, pool: str, times_ms: Sequence[int]) -> list[Series]:
    """What one node's agent measures: eight GPUs, and one engine of `pool`."""
    found: list[Series] = []
    warm = sum(map(ord, node)) % 7
    for gpu in range(GPUS):
        labels = {"node": node, "gpu": str(gpu), "UUID": f"GPU-{node}-{gpu}"}
        for name, level, swing in (
            ("DEV_GPU_UTIL", 68.0, 22.0),
            ("DEV_GPU_TEMP", 58 + warm, 6),
            ("DEV_POWER_USAGE", 480, 110),
            ("DEV_SM_CLOCK", 1700, 80),
            ("DEV_FB_USED", 125_000, 900),
            ("DEV_FB_TOTAL", 143_771, 0),
            ("DEV_ECC_DBE_VOL_TOTAL", 0, 0),
            ("DEV_ECC_SBE_VOL_TOTAL", gpu, 0),
            ("PROF_PCIE_TX_BYTES", 3e8, 1e8),
            ("PROF_PCIE_RX_BYTES", 5e8, 2e8),
        ):
            found.append(_gauge(f"DCGM_FI_{name}", labels, times_ms, level, swing, gpu + warm))
        found.append(_counter("headworks_gpu_xid_errors_total", labels, times_ms, 0.001 if gpu == warm else 0))
        for direction, rate in (("tx", 4e9), ("rx", 3e9)):
            way = {**labels, "direction": direction}
            found.append(_counter("headworks_gpu_nvlink_bytes_total", way, times_ms, rate))
        for number, reason in enumerate(_SLOWING):
            why = {**labels, "reason": reason}
            found.append(_gauge("headworks_gpu_clock_event_active", why, times_ms, 0.3, 0.3, 3 * number + gpu))
    labels = {"node": node, "engine": f"{node}-vllm", "kind": "vllm", "model": "llama", "pool": pool}
    for name, level, swing in (
        ("requests_running", 14, 8),
        ("requests_waiting", 3, 3),
        ("kv_cache_usage_ratio", 0.7, 0.2),
    ):
        found.append(_gauge(f"headworks_engine_{name}", labels, times_ms, level, swing, warm))
    for name, mean in (("e2e", _E2E), ("queue", _ENGINE_QUEUE), ("inter_token_latency", _BETWEEN)):
        found += _histogram(
            f"headworks_engine_{name}_seconds", labels, times_ms, 4.0, mean if pool == "chat" else 1.7 * mean
        )
    for name, rate in (
        ("prompt_tokens", 2_100),
        ("generation_tokens", 480),
        ("preemptions", 0.05),
        ("prefix_cache_queries_tokens", 2_100),
        ("prefix_cache_hits_tokens", 1_300),
    ):
        found.append(_counter(f"headworks_engine_{name}_total", labels, times_ms, rate))
    finished = {**labels, "reason": "stop"}
    found.append(_counter("headworks_engine_requests_finished_total", finished, times_ms, 4.0))
    for name, mean in (("iteration_tokens_total", 420), ("request_prefill_time_seconds", 0.2)):
        found += _sum_and_count(f"vllm:{name}", labels, times_ms, 4.0, mean)
    return [
        *found,
        *_sum_and_count("vllm:request_decode_time_seconds", labels, times_ms, 4.0, 1.8),
        *_triton_series(node, times_ms),
    ]


def _triton_series(node: str, times_ms: Sequence[int]) -> Iterator[Series]:
    """A small model beside the large one."""
    labels = {"node": node, "engine": f"{node}-triton", "kind": "triton", "model": "rerank", "pool": "rerank"}
    for name, rate in (("count", 60), ("exec_count", 15), ("compute_infer_duration_us", 15 * 8_000)):
        yield _counter(f"nv_inference_{name}", labels, times_ms, rate)
    yield from _sum_and_count("headworks_engine_queue_seconds", labels, times_ms, 60, 0.004)
    finished = {**labels, "reason": "other"}
    yield _counter("headworks_engine_requests_finished_total", finished, times_ms, 60)


def _sum_and_count(
    name: str, labels: dict[str, str], times_ms: Sequence[int], rate: float, mean: float
) -> Iterator[Series]:
    yield _counter(f"{name}_sum", labels, times_ms, rate * mean)
    yield _counter(f"{name}_count", labels, times_ms, rate)


def recorded_series(nodes: Sequence[str], times_ms: Sequence[int]) -> list[Series]:
    """What recording rules make of gateways and nodes, as waves around the level of each."""
    found: list[Series] = []

    def add(name: str, labels: dict[str, str], level: float) -> None:
        phase = sum(map(ord, "".join(labels.values()))) % 7
        days = [at_ms / 86_400_000 for at_ms in times_ms]
        waves = [0.3 * math.sin(2 * math.pi * day + phase) + 0.1 * math.sin(37 * day + phase) for day in days]
        found.append(_series(name, labels, times_ms, [level * (1 + wave) for wave in waves]))

    for pool in POOLS:
        for stat, share in (("p50", 0.5), ("p95", 1.6), ("p99", 2.2)):
            for name, mean in (("ttft", _TTFT), ("tpot", _TPOT), ("e2e", _GATEWAY_E2E), ("queue", _QUEUE)):
                add(f"pool:headworks_gateway_{name}_seconds:{stat}_rate5m", {"pool": pool}, mean * share)
        for outcome, level in (("met", 8.5), ("missed", 0.5)):
            labels = {"pool": pool, "slo": "goodput", "outcome": outcome}
            add("pool:headworks_gateway_slo:rate1m", labels, level)
        for name, level in (("length", 4), ("tokens", 9_000)):
            add(f"pool:headworks_gateway_queue_{name}:sum", {"pool": pool}, level)
        for name, level in (
            ("prompt_tokens", 2_100.0),
            ("generation_tokens", 480.0),
            ("preemptions", 0.05),
            ("prefix_cache_queries_tokens", 2_100.0),
            ("prefix_cache_hits_tokens", 1_300.0),
        ):
            add(f"pool:headworks_engine_{name}:rate1m", {"pool": pool}, level)
        for outcome, reason, level in (
            ("ok", "none", 9.0),
            ("refused", "tpm_limit", 0.4),
            ("refused", "queue_full", 0.2),
            ("refused", "queue_timeout", 0.1),
            ("cancelled", "client_left", 0.2),
        ):
            labels = {"pool": pool, "outcome": outcome, "reason": reason}
            add("pool:headworks_gateway_requests:rate1m", labels, level)
        for name, seconds in (("queue", _ENGINE_QUEUE), ("e2e", _E2E)):
            add(f"pool:headworks_engine_{name}_seconds_sum:rate1m", {"pool": pool}, 4 * seconds)
            add(f"pool:headworks_engine_{name}_seconds_count:rate1m", {"pool": pool}, 4.0)
        for name, level in (("waiting", 3.0), ("running", 14.0)):
            add(f"pool:headworks_engine_requests_{name}:sum", {"pool": pool}, level)
    for tenant, pool in TENANTS.items():
        add("tenant_pool:headworks_gateway_tokens:rate1m", {"tenant": tenant, "pool": pool}, 1900.0)
        add("tenant:headworks_gateway_queue_seconds:p95_rate5m", {"tenant": tenant}, 3 * _QUEUE)
    for node, pool in zip(nodes, cycle(POOLS), strict=False):
        engine = {"node": node, "pool": pool, "engine": f"{node}-vllm"}
        add("engine:headworks_engine_kv_cache_usage_ratio:max", engine, 0.66)
        for name, level in (
            ("DCGM_FI_DEV_GPU_UTIL:avg", 68),
            ("DCGM_FI_DEV_GPU_TEMP:max", 61),
            ("DCGM_FI_DEV_POWER_USAGE:sum", 3_900),
            ("DCGM_FI_DEV_SM_CLOCK:avg", 1_700),
            ("DCGM_FI_DEV_FB_USED:sum", 900_000),
            ("DCGM_FI_DEV_FB_TOTAL:sum", 1_150_168),
            ("headworks_gpu_xid_errors:sum", 2),
        ):
            add(f"node:{name}", {"node": node}, level)
    return found


def _histogram(
    name: str, labels: dict[str, str], times_ms: Sequence[int], rate: float, mean: float
) -> Iterator[Series]:
    """Around `mean` seconds, spread as waiting times are; now and then every sixth request takes four times as long."""
    rare = rate / 6

    def both(share: float, slow_share: float) -> list[float]:
        usual, slow = _total(times_ms, share * rate, 67), _total(times_ms, slow_share * rare, 290)
        return [each + other for each, other in zip(usual, slow, strict=True)]

    for bound in _BOUNDS:
        le = {**labels, "le": "+Inf" if bound == math.inf else f"{bound:g}"}
        shares = (1 - math.exp(-bound / mean), 1 - math.exp(-bound / (4 * mean)))
        yield _series(f"{name}_bucket", le, times_ms, both(*shares))
    yield _series(f"{name}_sum", labels, times_ms, both(mean, 4 * mean))
    yield _series(f"{name}_count", labels, times_ms, both(1, 1))


def _counter(name: str, labels: dict[str, str], times_ms: Sequence[int], per_second: float) -> Series:
    return _series(name, labels, times_ms, _total(times_ms, per_second, 67 + 7 * len(labels.get("tenant", ""))))


def _total(times_ms: Sequence[int], per_second: float, period_seconds: float) -> list[float]:
    """A counter whose rate swings between nothing and double."""
    seconds = [(at_ms - _BEGINNING_MS) / 1000 for at_ms in times_ms]
    return [per_second * (each + 0.8 * period_seconds * math.sin(each / period_seconds)) for each in seconds]


def _series(name: str, labels: dict[str, str], times_ms: Sequence[int], values: Sequence[float]) -> Series:
    return Series({"__name__": name, **labels}, list(zip(times_ms, values, strict=True)))


def _gauge(
    name: str, labels: dict[str, str], times_ms: Sequence[int], level: float, swing: float, phase: float
) -> Series:
    """Never the same twice in a minute, and never below zero."""
    seconds = [at_ms / 1000 for at_ms in times_ms]
    waves = [0.7 * math.sin(each / 190 + phase) + 0.3 * math.sin(each / 23 + 2 * phase) for each in seconds]
    return _series(name, labels, times_ms, [max(0.0, level + swing * wave) for wave in waves])
