"""What a what-if takes from a pool: requests' lengths and arrivals, its SLO, its engines' settings and latencies."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from controlplane.core.fields import epoch_ms, refused
from controlplane.fleet.models import Engine, Pool
from controlplane.fleet.services import POOLS, facts_of
from controlplane.telemetry import query
from controlplane.telemetry.decisions.sketches import Span, arrivals_of, lengths_of
from wire.canonical import Document
from wire.problems import Problem
from wire.sketches import MINUTE_MS
from wire.what_if import SETTING_MAX

log = logging.getLogger(__name__)

DAY_MS, HOUR_MS = 86_400_000, 3_600_000
# What vLLM's API server starts with on a GPU of 70 GiB and more. Source: vllm/engine/arg_utils.py, usage contexts.
VLLM_MAX_NUM_SEQS, VLLM_MAX_NUM_BATCHED_TOKENS = 1024, 8192
KV_CAPACITY_TOKENS = 400_000
# Of what the engines have now.
STEPS = (0.25, 0.5, 1, 2, 4)
# A busy pool's hour has many tokens.
LIMIT_SECONDS = 3600
_LATENCIES = {"p50": 0.5, "p95": 0.95}


class Measured(NamedTuple):
    """`assumed`: which field of the ask was taken for granted, and how, in words."""

    ask: Document
    calibration: Document | None
    assumed: list[tuple[str, str]]


class _Engines(NamedTuple):
    """What the pool's engines have now; replicas are those in service."""

    replicas: int
    max_num_seqs: int
    max_num_batched_tokens: int
    kv_capacity_tokens: int
    max_model_len_tokens: int


def measured_of(name: str, days: int, now: datetime) -> Measured:
    """What is known of a pool. Raises NotFound, or Refused where none of its requests was counted in that time."""
    pool = POOLS.get(name)
    until_ms = epoch_ms(now) // MINUTE_MS * MINUTE_MS
    span = Span(until_ms - days * DAY_MS, until_ms)
    lengths = _lengths(span, name)
    if lengths is None:
        message = f"no request of pool {name!r} was counted in the last {days} days; give more days, or the whole ask"
        raise refused([Problem("/pool", "not_measured", message)])
    assumed: list[tuple[str, str]] = []
    engines = _engines(pool, assumed)
    minutes = busiest_hour(arrivals_of(span, name))
    ask = {
        **lengths,
        "arrivals": {"minutes": minutes},
        "slo": _slo(pool, assumed),
        "max_num_seqs": around(engines.max_num_seqs),
        "max_num_batched_tokens": around(engines.max_num_batched_tokens),
        "replicas": [engines.replicas],
        "kv_capacity_tokens": [engines.kv_capacity_tokens],
        "max_model_len_tokens": engines.max_model_len_tokens,
        "limit_seconds": LIMIT_SECONDS,
    }
    return Measured(ask, _calibration(name, engines, now), assumed)


def busiest_hour(arrivals: Mapping[int, int]) -> list[int]:
    """Arrivals in each minute of the clock hour that had the most: settings are chosen for when it counts."""
    hours: dict[int, int] = {}
    for minute_ms, count in arrivals.items():
        hours[minute_ms // HOUR_MS] = hours.get(minute_ms // HOUR_MS, 0) + count
    busiest = max(hours, key=lambda hour: (hours[hour], hour), default=0)
    return [arrivals.get(busiest * HOUR_MS + minute * MINUTE_MS, 0) for minute in range(60)]


def around(value: int) -> list[int]:
    """Values to try around what is set now."""
    return sorted({min(max(1, int(value * step)), SETTING_MAX) for step in STEPS})


def _lengths(span: Span, pool: str) -> Document | None:
    lengths = lengths_of(span, [pool])
    found = {name: sorted(lengths[name].items()) for name in ("prompt_tokens", "output_tokens")}
    return found if all(found.values()) else None


def _slo(pool: Pool, assumed: list[tuple[str, str]]) -> Document:
    slo = {"ttft_ms": pool.ttft_slo_ms, "tpot_ms": pool.tpot_slo_ms, "e2e_ms": pool.e2e_slo_ms}
    if any(slo.values()):
        return slo
    assumed.append(("slo", "slo: TTFT 2 s and TPOT 100 ms, as the pool has none"))
    return {"ttft_ms": 2000, "tpot_ms": 100}


def _engines(pool: Pool, assumed: list[tuple[str, str]]) -> _Engines:
    """What is reported, or else desired, or else assumed; of engines that differ, the least."""
    engines = list(Engine.objects.filter(pool=pool).select_related("node"))

    def set_now(name: str, default: int, why: str) -> int:
        reported = [_whole(facts_of(engine)["arguments"].get(name)) for engine in engines]
        desired = [_whole(pool.engine_arguments.get(key)) for key in (name, name.replace("_", "-"))]
        known = [value for value in reported if value] or [value for value in desired if value]
        if not known:
            assumed.append((name, f"{name}: around {default:,}, {why}"))
        return min(known, default=default)

    kv = [engine.kv_capacity_tokens for engine in engines if engine.kv_capacity_tokens]
    if not kv:
        assumed.append(("kv_capacity_tokens", f"kv_capacity_tokens: {KV_CAPACITY_TOKENS:,}, as no engine reports it"))
    capacity = min(kv, default=KV_CAPACITY_TOKENS)
    told = [facts_of(engine)["max_length_tokens"] for engine in engines]
    longest = min([length for length in told if length], default=pool.model.max_context_tokens)
    vllm = "vLLM's default, as no engine reports it"
    return _Engines(
        replicas=max(1, sum(not engine.takes_no_work for engine in engines)),
        max_num_seqs=set_now("max_num_seqs", VLLM_MAX_NUM_SEQS, vllm),
        max_num_batched_tokens=set_now("max_num_batched_tokens", VLLM_MAX_NUM_BATCHED_TOKENS, vllm),
        kv_capacity_tokens=capacity,
        max_model_len_tokens=max(2, min(longest, capacity // 16 * 16)),
    )


def _whole(value: object) -> int | None:
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else None


def _calibration(pool: str, engines: _Engines, now: datetime) -> Document | None:
    """What was measured in the last hour, to find the engines' speed by; None where that is nothing."""
    until_ms = epoch_ms(now) // MINUTE_MS * MINUTE_MS
    span = Span(until_ms - HOUR_MS, until_ms)
    lengths = _lengths(span, pool)
    if lengths is None:
        return None
    counted = arrivals_of(span, pool)
    minutes = [counted.get(span.since_ms + minute * MINUTE_MS, 0) for minute in range(60)]
    try:
        ttft = _latency(f'headworks_engine_ttft_seconds{{pool="{pool}"}}', now)
        tpot = _latency(f'headworks_gateway_tpot_seconds{{pool="{pool}"}}', now)
    except query.QueryError as error:
        log.warning("what-if: latencies of pool %s could not be asked: %s", pool, error)
        return None
    if not ttft or not tpot or not any(minutes):
        return None
    settings = engines._asdict() | {"max_num_batched_tokens": max(engines.max_num_batched_tokens, engines.max_num_seqs)}
    observed = {
        **lengths, **settings, "arrivals": {"minutes": minutes}, "ttft_ms": ttft, "tpot_ms": tpot,
        "measured_seconds": 180.0, "name": f"pool {pool}, the last hour",
    }  # fmt: skip
    return {"observations": [observed]}


def _latency(series: str, now: datetime) -> dict[str, float]:
    """Mean and quantiles of a histogram over the last hour, in ms; those that are known."""
    name, labels = series.split("{", 1)
    asked = {
        "mean": f"sum(increase({name}_sum{{{labels}[1h])) / sum(increase({name}_count{{{labels}[1h]))",
        **{
            statistic: f"histogram_quantile({share}, sum by (le) (increase({name}_bucket{{{labels}[1h])))"
            for statistic, share in _LATENCIES.items()
        },
    }
    found = {statistic: _value(query.instant(promql, epoch_ms(now))) for statistic, promql in asked.items()}
    return {statistic: value * 1000 for statistic, value in found.items() if value}


def _value(samples: Sequence[query.Sample]) -> float | None:
    values = [sample.value for sample in samples if math.isfinite(sample.value) and sample.value > 0]
    return values[0] if values else None
