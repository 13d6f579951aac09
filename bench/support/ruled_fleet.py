"""10,000 series of 100 nodes with 8 GPUs, and 200 alerting rules on them, some of which fire."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from bench.support.fleet_metrics import BOUNDS, COUNTERS, GAUGES, TTFT, Slice
from controlplane.telemetry.store.columns import Floats

NODES, GPUS, RULES = 100, 8, 200
STEP_MS, SPAN_MS = 15_000, 600_000
# A quarter of what a GPU's page has, so that all come to 10,000.
_BOUNDS = BOUNDS[::2]
# Values are uniform between 0 and 1, a node's share of its pool; so many of them are above a bound.
_HOT_NODES = 5
_EVERYTHING = '{__name__=~".+"}'


def samples(now_ms: int, seed: int = 5) -> Iterator[Slice]:
    """The ten minutes before `now_ms`, of each node in turn."""
    dice = np.random.default_rng(seed)
    times = list(range(now_ms - SPAN_MS, now_ms, STEP_MS))
    for node in range(NODES):
        labels = _labels(node)
        yield Slice(f"node-{node}", labels, times, _values(dice, node, labels, len(times)))


def later(slices: list[Slice], at_ms: int) -> Iterator[Slice]:
    """One more sample of each series: gauges change, counters go on."""
    dice = np.random.default_rng(at_ms)
    for part in slices:
        counts = np.array([_counts(labels) for labels in part.labels])
        last = part.values[:, -1]
        noise = last + dice.normal(0, 0.001, len(last))
        yield part._replace(times_ms=[at_ms], values=np.where(counts, last + 5.0, noise)[:, None])


def rule_file() -> dict[str, Any]:
    """One group, as a rule file has it: thresholds, aggregations, rates, quantiles, joins, and all series at once."""
    exprs = [expr for number in range(RULES) for expr in [_expr(number)]]
    rules = [
        {
            "alert": f"Rule{number:03}",
            "expr": expr,
            **({"for": "30s"} if number % 3 == 0 else {}),
            "labels": {"severity": "warning"},
            "annotations": {"summary": "{{ $labels.node }} {{ $labels.gpu }}: {{ $value | humanize }}"},
        }
        for number, expr in enumerate(exprs)
    ]
    return {"groups": [{"name": "bench", "rules": rules}]}


def _expr(number: int) -> str:
    gauge, other = GAUGES[number % len(GAUGES)], GAUGES[(number + 3) % len(GAUGES)]
    counter, bound = COUNTERS[number % len(COUNTERS)], 1 + number / RULES
    forms = (
        f"{gauge} > {bound}",
        f"avg by (node) ({gauge}) > {bound}",
        f"rate({counter}[5m]) > {bound}",
        f"sum by (node) (rate({counter}[1m])) == {-bound}",
        f"max_over_time({gauge}[5m]) > {bound}",
        f"{gauge} > 0.99 and on (node, gpu) {other} > {bound}",
        f"histogram_quantile(0.95, sum by (node, le) (rate({TTFT}[5m]))) > {10 * bound}",
        f"count by (node) ({gauge} > 0.5) > {GPUS + bound}",
        f"count({_EVERYTHING}) < {bound}",
        # The hot nodes' GPUs fire.
        f'{gauge}{{node=~"node-[0-{_HOT_NODES - 1}]"}} > {0.9 - bound / 100:.4f}',
    )
    return forms[number % len(forms)]


def _labels(node: int) -> list[dict[str, str]]:
    name = f"node-{node}"
    of_gpus = [
        {"__name__": metric, "node": name, "gpu": str(gpu), "UUID": f"GPU-{node:08x}-{gpu}"}
        for gpu in range(GPUS)
        for metric in (*GAUGES, *COUNTERS)
    ]
    return of_gpus + [{"__name__": TTFT, "node": name, "engine": f"e-{node}", "le": bound} for bound in _BOUNDS]


def _values(dice: np.random.Generator, node: int, labels: list[dict[str, str]], steps: int) -> Floats:
    counts = np.array([_counts(each) for each in labels])
    base = dice.uniform(0.93 if node < _HOT_NODES else 0.2, 0.95 if node < _HOT_NODES else 0.6, len(labels))
    gauges = base[:, None] + dice.normal(0, 0.001, (len(labels), steps))
    return np.where(counts[:, None], 5.0 * np.arange(steps), gauges)


def _counts(labels: dict[str, str]) -> bool:
    return labels["__name__"] == TTFT or labels["__name__"] in COUNTERS
