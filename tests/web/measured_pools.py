"""Samples of pools as gateways and agents push them: eight minutes, up to now."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from wire.write_body import Series

STEP_SECONDS, STEPS = 15, 33


def gateway_series(
    pool: str, *, per_second: float, met: float = 1.0, refused: float = 0.0, failed: float = 0.0, queue: float = 0.4
) -> list[Series]:
    """Of `per_second` requests these parts: `met` kept all promises, others were turned away, or failed."""
    labels = {"gateway": "edge-1", "pool": pool, "tenant": "acme", "priority_class": "normal"}
    kept = {"gateway": "edge-1", "pool": pool}
    ended = {"ok": (1 - refused - failed, "none"), "refused": (refused, "queue_full"), "failed": (failed, "timeout")}
    outcomes = {"met": met, "missed": 1 - met}
    return [
        *(_counter("requests_total", {**labels, "outcome": outcome, "reason": reason}, per_second * share)
          for outcome, (share, reason) in ended.items()),
        *(_counter("slo_requests_total", {**labels, "outcome": outcome}, per_second * share)
          for outcome, share in outcomes.items()),
        *(_counter("slo_promises_total", {**kept, "slo": slo, "outcome": outcome}, per_second * share)
          for outcome, share in outcomes.items() for slo in ("ttft", "tpot")),
        *_mean("headworks_gateway_queue_seconds", labels, per_second, queue),
    ]  # fmt: skip


def engine_series(
    engine: str, pool: str, node: str, *, kv_use: float, seconds: float = 1.2, age_seconds: int = 0
) -> list[Series]:
    """One engine; its newest sample is so old."""
    labels = {"engine": engine, "pool": pool, "node": node, "kind": "vllm", "model": "m"}
    return [
        Series({"__name__": "headworks_engine_kv_cache_usage_ratio", **labels}, _steps([kv_use] * STEPS, age_seconds)),
        *_mean("headworks_engine_queue_seconds", labels, 2.0, 0.0),
        *_mean("headworks_engine_e2e_seconds", labels, 2.0, seconds),
    ]


def _counter(name: str, labels: dict[str, str], per_second: float) -> Series:
    values = [1000 + per_second * STEP_SECONDS * step for step in range(STEPS)]
    return Series({"__name__": f"headworks_gateway_{name}", **labels}, _steps(values))


def _mean(histogram: str, labels: dict[str, str], per_second: float, seconds: float) -> Iterator[Series]:
    for part, growth in (("sum", per_second * seconds), ("count", per_second)):
        values = [100 + growth * STEP_SECONDS * step for step in range(STEPS)]
        yield Series({"__name__": f"{histogram}_{part}", **labels}, _steps(values))


def _steps(values: Sequence[float], age_seconds: int = 0) -> list[tuple[int, float]]:
    newest_ms = (int(time.time()) - age_seconds) * 1000
    return [(newest_ms - (STEPS - 1 - step) * STEP_SECONDS * 1000, value) for step, value in enumerate(values)]
