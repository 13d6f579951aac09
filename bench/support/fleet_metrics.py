"""What 50 nodes with 8 GPUs say: an hour of samples, a week of what the built-in rules record; and two pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from controlplane.telemetry.recording.builtin import builtin
from controlplane.telemetry.store.columns import Floats
from dashboards.charts.engines import ENGINES
from dashboards.spans import SPANS

NODES, GPUS = 50, 8
HOUR_MS, HOUR_STEP_MS, HOUR_SLICE_MS = 3_600_000, 15_000, 300_000
WEEK_MS, RECORDED_STEP_MS, WEEK_SLICE_MS = 7 * 24 * HOUR_MS, 60_000, 6 * HOUR_MS
# A page as wide as a screen: 1,008 steps.
WEEK_STEP_MS = 600_000

GAUGES = ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE",
          "DCGM_FI_DEV_SM_CLOCK", "headworks_engine_kv_cache_usage_ratio",
          "headworks_engine_requests_running", "headworks_engine_requests_waiting")  # fmt: skip
COUNTERS = ("headworks_engine_generation_tokens_total", "headworks_engine_prompt_tokens_total",
            "headworks_engine_preemptions_total", "headworks_engine_requests_finished_total")  # fmt: skip
TTFT = "headworks_engine_ttft_seconds_bucket"
BOUNDS = ("0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "+Inf")
HOUR_PAGE = (
    *(f"avg by (node) ({name})" for name in GAUGES),
    *(f"max({name})" for name in GAUGES[:4]),
    *(f"sum by (node) (rate({name}[1m]))" for name in COUNTERS),
    GAUGES[2],
    f"topk(5, {GAUGES[3]})",
    f"{GAUGES[2]} > 70",
    f"count({GAUGES[5]} > 0.95) or vector(0)",
    f"sum({GAUGES[7]}) / sum({GAUGES[6]})",
    f"max_over_time({GAUGES[5]}[5m])",
    f"histogram_quantile(0.95, sum by (le) (rate({TTFT}[1m])))",
    f"histogram_quantile(0.5, sum by (node, le) (rate({TTFT}[5m])))",
)

POOLS, TENANTS = 8, 20
# Whose series the built-in rules record, by the level in their names.
LEVELS: dict[str, list[dict[str, str]]] = {
    "node": [{"node": f"node-{node}"} for node in range(NODES)],
    "pool": [{"pool": f"pool-{pool}"} for pool in range(POOLS)],
    "tenant": [{"tenant": f"tenant-{tenant}"} for tenant in range(TENANTS)],
    "tenant_pool": [
        {"tenant": f"tenant-{each}", "pool": f"pool-{pool}"} for each in range(TENANTS) for pool in range(POOLS)
    ],
    "engine": [
        {"node": f"node-{node}", "pool": f"pool-{node % POOLS}", "engine": f"e-{node}"} for node in range(NODES)
    ],
}
OUTCOMES = ("admitted", "refused", "failed")
# Two rules may record one name, with labels of their own.
_RECORDED: list[str] = list(dict.fromkeys(rule["record"] for group in builtin()["groups"] for rule in group["rules"]))
_OF_NODES, _OF_POOLS, _OF_TENANTS = (
    [name for name in _RECORDED if name.startswith(f"{level}:")] for level in ("node", "pool", "tenant")
)
WEEK_PAGE = (
    *(f"avg({name})" for name in _OF_NODES[:4]),
    *_OF_NODES[:4],
    *_OF_POOLS[:10],
    f"sum by (tenant) ({_OF_TENANTS[0]})",
    f"topk(5, {_OF_TENANTS[1]})",
    f"{_OF_TENANTS[2]} > 0.75",
    _OF_TENANTS[3],
    f"max_over_time({_OF_NODES[1]}[10m])",
    f'sum by (pool) (avg_over_time({_OF_POOLS[0]}{{outcome="refused"}}[1h]))',
)
# What the page that asks most, of all nodes, asks for its week.
DASHBOARD_WEEK = tuple(query.over(SPANS["7d"]) for chart in ENGINES.charts for query in chart.queries if query.recorded)
DASHBOARD_WEEK_STEP_MS = SPANS["7d"].step_ms


class Slice(NamedTuple):
    """What one owner says in a few minutes or hours; `values` is series × times."""

    owner: str
    labels: Sequence[dict[str, str]]
    times_ms: Sequence[int]
    values: Floats


def hour(now_ms: int) -> Iterator[Slice]:
    """The hour before `now_ms`, slice after slice, each of every node in turn."""
    dice = np.random.default_rng(5)
    totals: dict[int, Floats] = {}
    for begin_ms in range(now_ms - HOUR_MS, now_ms, HOUR_SLICE_MS):
        for node in range(NODES):
            labels = _labels(node)
            steps = np.arange(begin_ms, begin_ms + HOUR_SLICE_MS, HOUR_STEP_MS)
            values = _readings(dice, labels, totals.setdefault(node, np.zeros(len(labels))), len(steps))
            yield Slice(f"node-{node}", labels, (steps + dice.integers(0, 50, len(steps))).tolist(), values)


def week(now_ms: int) -> Iterator[Slice]:
    """Recorded series of the seven days before `now_ms`, a sample a minute."""
    dice = np.random.default_rng(7)
    labels = [
        {"__name__": name, **whose, **({"outcome": outcome} if outcome else {})}
        for name in _RECORDED
        for whose in LEVELS[name.partition(":")[0]]
        for outcome in (OUTCOMES if "_requests:" in name else ("",))
    ]
    whole = np.array([each["__name__"].endswith((":sum", ":max")) for each in labels])
    for begin_ms in range(now_ms - WEEK_MS, now_ms, WEEK_SLICE_MS):
        times = range(begin_ms, begin_ms + WEEK_SLICE_MS, RECORDED_STEP_MS)
        values = dice.normal(0.7, 0.1, (len(labels), len(times)))
        # As of whole readings; means, rates and quantiles have no short form.
        values[whole] = np.rint(values[whole] * 100)
        yield Slice("headworks", labels, times, values)


def _labels(node: int) -> list[dict[str, str]]:
    name = f"node-{node}"
    of_gpus = [
        {"__name__": metric, "node": name, "gpu": str(gpu), "UUID": f"GPU-{node:08x}-{gpu}"}
        for gpu in range(GPUS)
        for metric in (*GAUGES, *COUNTERS)
    ]
    return of_gpus + [{"__name__": TTFT, "node": name, "engine": f"e-{node}", "le": bound} for bound in BOUNDS]


def _readings(dice: np.random.Generator, labels: Sequence[dict[str, str]], totals: Floats, steps: int) -> Floats:
    """Rounded gauges, growing counters, cumulative buckets. `totals` go on from call to call."""
    names = [each["__name__"] for each in labels]
    shape = (len(names), steps)
    counts = np.array([name.endswith("_total") for name in names])
    buckets = np.array([name == TTFT for name in names])
    ratios = np.array([name.endswith("_ratio") for name in names])
    values = np.rint(dice.normal(65, 6, shape))
    values[ratios] = np.round(dice.normal(0.7, 0.1, shape)[ratios], 3)
    growth = np.zeros(shape)
    growth[counts] = dice.integers(0, 3000, shape)[counts]
    growth[buckets] = np.cumsum(dice.integers(0, 2, (len(BOUNDS), steps)), axis=0)
    grown = totals[:, None] + np.cumsum(growth, axis=1)
    totals[:] = grown[:, -1]
    return np.where((counts | buckets)[:, None], grown, values)
