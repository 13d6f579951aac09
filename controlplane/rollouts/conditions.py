"""The conditions that a red-black rollout is watched by, unless it is given its own. Pure.

Each counts what is wrong, so that it holds where nothing at all is known; how many requests there must be before it is
judged says `minimum_requests`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from wire.canonical import Document

# The metrics of gateways (docs/metrics.md).
_PREFIX = "headworks_gateway_"
# What an engine of the new side fails, the old side answers: no client sees it, and no request counts as failed.
_JUDGED_AT_ONCE = ("breaker", "retries")
# One is no sign of anything, two of the few that a first share leads there are. `increase` counts a little too many.
_RETRIES_MIN = 1.5


def requests_of(pool: str, window_seconds: int) -> str:
    """How many requests a pool ended within the window, or began to answer, which a slow one does long before."""
    ended, begun = (
        f"sum(increase({_series(name, pool)}[{window_seconds}s]))" for name in ("requests_total", "ttft_seconds_count")
    )
    return f"({begun} > {ended}) or {ended} or {begun}"


def generated(old: str, new: str, watch: Mapping[str, Any], *, promises: bool) -> list[Document]:
    """TTFT, TPOT, errors, retries, goodput and breakers of the new side beside the old. `promises`: it has an SLO.

    `watch`: `window_seconds`, `minimum_requests`, `tolerance_percent` (of times), `tolerance_permille` (of shares), and
    `floor_ms`: times below it are never too long. Where the old side has no traffic to compare with, as at the end,
    times and goodput are not judged, and errors against none at all.
    """
    window, tolerance = watch["window_seconds"], 1 + watch["tolerance_percent"] / 100
    allowed = watch["tolerance_permille"] / 1000

    def longer(metric: str) -> str:
        new_p95, old_p95 = (_p95(metric, pool, window) for pool in (new, old))
        return f"({new_p95} > {tolerance:g} * {old_p95}) > {watch['floor_ms'] / 1000:g}"

    wrong = {
        "ttft_p95": longer("ttft_seconds"),
        "tpot_p95": longer("tpot_seconds"),
        "error_ratio": f"{_errors(new, window)} > {allowed:g} + ({_errors(old, window)} >= 0 or vector(0))",
        "breaker": f'max({_PREFIX}breaker_state{{pool={json.dumps(new)},state="open"}}) > 0',
        "retries": f"({_retries(new, window)} > {allowed:g} * {_tried(new, window)}) > {_RETRIES_MIN}",
    }
    if promises:
        wrong["goodput"] = f"{_goodput(new, window)} < {_goodput(old, window)} - {allowed:g}"
    return [
        {
            "name": name,
            "expression": f"(count({violation}) or vector(0)) < 1",
            "minimum_requests": 0 if name in _JUDGED_AT_ONCE else watch["minimum_requests"],
        }
        for name, violation in wrong.items()
    ]


def _series(name: str, pool: str, more: str = "") -> str:
    return f"{_PREFIX}{name}{{pool={json.dumps(pool)}{more}}}"


def _p95(metric: str, pool: str, window: int) -> str:
    return f"histogram_quantile(0.95, sum by (le) (rate({_series(metric + '_bucket', pool)}[{window}s])))"


def _retries(pool: str, window: int) -> str:
    return f"sum(increase({_series('retries_total', pool)}[{window}s]))"


def _tried(pool: str, window: int) -> str:
    """What a pool ended, and what it failed that another pool may have ended."""
    return f"(({_requests(pool, window)} + {_retries(pool, window)}) or {_retries(pool, window)})"


def _requests(pool: str, window: int) -> str:
    return f"sum(increase({_series('requests_total', pool)}[{window}s]))"


def _errors(pool: str, window: int) -> str:
    failed = f"sum(rate({_series('requests_total', pool, ',outcome=' + json.dumps('failed'))}[{window}s]))"
    return f"(({failed} or vector(0)) / sum(rate({_series('requests_total', pool)}[{window}s])))"


def _goodput(pool: str, window: int) -> str:
    met = f"sum(rate({_series('slo_requests_total', pool, ',outcome=' + json.dumps('met'))}[{window}s]))"
    return f"(({met} or vector(0)) / sum(rate({_series('slo_requests_total', pool)}[{window}s])))"
