"""What a pool promises, in seconds; the seed's example where it promises nothing.

Source: seed 1, "goodput": P95 TTFT below 2 s, P95 TPOT below 50 ms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

USUAL_TTFT_SECONDS, USUAL_TPOT_SECONDS = 2.0, 0.05
_MS_PER_SECOND = 1000


def ttft_seconds(pool: Mapping[str, Any]) -> float:
    return _seconds(pool, "ttft_slo_ms", USUAL_TTFT_SECONDS)


def tpot_seconds(pool: Mapping[str, Any]) -> float:
    return _seconds(pool, "tpot_slo_ms", USUAL_TPOT_SECONDS)


def may_miss(pool: Mapping[str, Any]) -> float:
    """The share of requests that may be slower than promised."""
    return 1 - int(pool["objective_permille"]) / 1000


def _seconds(pool: Mapping[str, Any], field: str, usual: float) -> float:
    told = pool.get(field)
    return told / _MS_PER_SECOND if told else usual
