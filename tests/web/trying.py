"""What-if runs for pages: one that waits, and one that is done, with its report."""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from controlplane.planner.models import WhatIfRun, WhatIfState
from policy.what_if import peak_of
from tests.controlplane.planner.lengths import ask


def point(seqs: int, batched: int, goodput: float, **missed: float) -> dict[str, Any]:
    """A point of a report, with one load."""
    latency = {"mean": 20.0, "p50": 18.0, "p95": 1000 / max(goodput, 0.1), "p99": 90.0}
    load = {
        "load": 1.0, "rate_per_second": 5.0, "goodput": {"mean": goodput, "min": goodput, "max": goodput},
        "good_share": goodput / 5, "missed": {"refused": 0.0, "ttft": 0.0, "tpot": 0.0, "e2e": 0.0, **missed},
        "ttft_ms": latency, "tpot_ms": latency, "e2e_ms": latency, "preemptions_per_minute": 0.0,
        "kv_use": {"mean": 0.4, "peak": 0.8},
    }  # fmt: skip
    settings = {
        "max_num_seqs": seqs, "max_num_batched_tokens": batched, "replicas": 1, "kv_capacity_tokens": 400_000,
        "max_concurrency": None,
    }  # fmt: skip
    return {"settings": settings, "cannot": None, "loads": [load]}


def report() -> dict[str, Any]:
    """Four points, one of which no engine starts with."""
    points = [point(16, 2048, 2.0, ttft=0.6), point(64, 2048, 4.0, ttft=0.2), point(64, 8192, 3.0, tpot=0.4)]
    cannot = {**point(4096, 2048, 0.0), "cannot": "max_num_batched_tokens 2048 must be at least 4096", "loads": []}
    points.append(cannot)
    error = {
        "observation": "the last hour", "held_out": False, "metric": "ttft", "statistic": "p50",
        "measured_ms": 50.0, "simulated_ms": 45.0, "error": -0.1,
    }  # fmt: skip
    calibration = {"speed": {"base_seconds": 0.006}, "errors": [error], "tried": 12}
    return {"points": points, "peak": peak_of(points), "seeds": 3, "calibration": calibration}


def waiting_run() -> WhatIfRun:
    return WhatIfRun.objects.create(owner="ada", reason="more users", ask=ask(), created_at=timezone.now())


def done_run(pool: str) -> WhatIfRun:
    return WhatIfRun.objects.create(
        owner="ada", reason="more users", ask=ask(), created_at=timezone.now(), pool=pool, state=WhatIfState.DONE,
        ended_at=timezone.now(), runs=12, runs_done=12, report=report(), assumed=["speed: a default"],
    )  # fmt: skip
