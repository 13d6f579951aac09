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
_BEGINNING_MS = 1_700_000_000_000


def gateway_series(gateway: str, times_ms: Sequence[int]) -> list[Series]:
    """What one gateway measures of all tenants."""
    found: list[Series] = []
    for tenant, pool in TENANTS.items():
        labels = {"gateway": gateway, "pool": pool, "tenant": tenant, "priority_class": "interactive"}
        per_second = 3.0 + 2.0 * len(tenant) / 11
        slow = 1.0 if pool == "chat" else 2.5
        for name, mean in (("ttft", _TTFT), ("queue", _QUEUE)):
            found += _histogram(f"headworks_gateway_{name}_seconds", labels, times_ms, per_second, mean * slow)
        for kind, tokens in (("prompt", 420), ("generation", 96)):
            name = f"headworks_gateway_{kind}_tokens_total"
            found.append(_counter(name, labels, times_ms, tokens * per_second))
        for outcome, reason, share in (
            ("ok", "none", 0.96),
            ("refused", "tpm_limit", 0.03),
            ("failed", "engine_lost", 0.01),
        ):
            result = {**labels, "outcome": outcome, "reason": reason}
            found.append(_counter("headworks_gateway_requests_total", result, times_ms, share * per_second))
    return found


def node_series(node: str, pool: str, times_ms: Sequence[int]) -> list[Series]:
    """What one node's agent measures: eight GPUs, and one engine of `pool`."""
    found: list[Series] = []
    warm = sum(map(ord, node)) % 7
    for gpu in range(GPUS):
        labels = {"node": node, "gpu": str(gpu), "UUID": f"GPU-{node}-{gpu}"}
        for name, level, swing in (("GPU_UTIL", 68.0, 22.0), ("GPU_TEMP", 58 + warm, 6), ("POWER_USAGE", 480, 110)):
            found.append(_gauge(f"DCGM_FI_DEV_{name}", labels, times_ms, level, swing, gpu + warm))
    labels = {"node": node, "engine": f"{node}-vllm", "kind": "vllm", "model": "llama", "pool": pool}
    for name, level, swing in (
        ("requests_running", 14, 8),
        ("requests_waiting", 3, 3),
        ("kv_cache_usage_ratio", 0.7, 0.2),
    ):
        found.append(_gauge(f"headworks_engine_{name}", labels, times_ms, level, swing, warm))
    for name, mean in (("e2e", _E2E), ("queue", _ENGINE_QUEUE)):
        found += _histogram(
            f"headworks_engine_{name}_seconds", labels, times_ms, 4.0, mean if pool == "chat" else 1.7 * mean
        )
    return found


def recorded_series(nodes: Sequence[str], times_ms: Sequence[int]) -> list[Series]:
    """What recording rules make of gateways and nodes, as waves around the level of each."""
    found: list[Series] = []

    def add(name: str, labels: dict[str, str], level: float) -> None:
        phase = sum(map(ord, "".join(labels.values()))) % 7
        days = [at_ms / 86_400_000 for at_ms in times_ms]
        waves = [0.3 * math.sin(2 * math.pi * day + phase) + 0.1 * math.sin(37 * day + phase) for day in days]
        found.append(_series(name, labels, times_ms, [level * (1 + wave) for wave in waves]))

    for pool in POOLS:
        for stat, share in (("p50", 0.5), ("p95", 1.6)):
            add(f"pool:headworks_gateway_ttft_seconds:{stat}_rate5m", {"pool": pool}, _TTFT * share)
        add("pool:headworks_gateway_queue_seconds:p95_rate5m", {"pool": pool}, 3 * _QUEUE)
        for outcome, reason, level in (("ok", "none", 9.0), ("refused", "tpm_limit", 0.4)):
            labels = {"pool": pool, "outcome": outcome, "reason": reason}
            add("pool:headworks_gateway_requests:rate1m", labels, level)
        for name, seconds in (("queue", _ENGINE_QUEUE), ("e2e", _E2E)):
            add(f"pool:headworks_engine_{name}_seconds_sum:rate1m", {"pool": pool}, 4 * seconds)
            add(f"pool:headworks_engine_{name}_seconds_count:rate1m", {"pool": pool}, 4.0)
        for name, level in (("waiting", 3.0), ("running", 14.0)):
            add(f"pool:headworks_engine_requests_{name}:sum", {"pool": pool}, level)
    for tenant, pool in TENANTS.items():
        add("tenant_pool:headworks_gateway_tokens:rate1m", {"tenant": tenant, "pool": pool}, 1900.0)
    for node, pool in zip(nodes, cycle(POOLS), strict=False):
        engine = {"node": node, "pool": pool, "engine": f"{node}-vllm"}
        add("engine:headworks_engine_kv_cache_usage_ratio:max", engine, 0.66)
        for name, level in (("GPU_UTIL:avg", 68), ("GPU_TEMP:max", 61), ("POWER_USAGE:sum", 3_900)):
            add(f"node:DCGM_FI_DEV_{name}", {"node": node}, level)
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
