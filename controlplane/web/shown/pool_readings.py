"""What the metrics store knows of all pools now, in a few queries that everybody shares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from controlplane.diagnosis.detectors.refusals import FAILED, FOR_CAPACITY, REQUESTS
from controlplane.web.measured import Board, Numbers, Question
from controlplane.web.shown.pool_words import PROMISES, WINDOW_SECONDS, Reading

_KV = "headworks_engine_kv_cache_usage_ratio"
_QUEUE, _E2E = "headworks_engine_queue_seconds", "headworks_engine_e2e_seconds"
_GATEWAY_QUEUE = "headworks_gateway_queue_seconds"
_SLO, _PROMISES = "headworks_gateway_slo_requests_total", "headworks_gateway_slo_promises_total"


def _rate(series: str, by: str = "pool") -> str:
    return f"sum by ({by}) (rate({series}[{WINDOW_SECONDS}s]))"


def _mean(histogram: str) -> str:
    return f"{_rate(f'{histogram}_sum')} / ({_rate(f'{histogram}_count')} > 0)"


_BY_POOL = {
    "requests": _rate(REQUESTS),
    "failed": _rate(FAILED),
    "refused": _rate(FOR_CAPACITY),
    "met": _rate(f'{_SLO}{{outcome="met"}}'),
    "judged": _rate(_SLO),
    "gateway_queue": _mean(_GATEWAY_QUEUE),
    # Means: the smallest bucket of vLLM's histogram is 0.3 s, and a quantile below it is invented.
    "engine_queue": _mean(_QUEUE),
    "engine": f"({_rate(f'{_E2E}_sum')} - {_rate(f'{_QUEUE}_sum')}) / ({_rate(f'{_E2E}_count')} > 0)",
}
QUESTIONS = {
    **{name: Question(promql, ("pool",)) for name, promql in _BY_POOL.items()},
    "kept": Question(_rate(f'{_PROMISES}{{outcome="met"}}', "pool, slo"), ("pool", "slo")),
    "promised": Question(_rate(_PROMISES, "pool, slo"), ("pool", "slo")),
    "kv_use": Question(f"max by (engine) ({_KV})", ("engine",)),
    "kv_measured_at": Question(f"max by (engine) (timestamp({_KV}))", ("engine",)),
}
board = Board("pools", QUESTIONS)


@dataclass(frozen=True)
class WorkingEngine:
    """One that takes requests. `kv_capacity_tokens` is None where it has not told."""

    name: str
    kv_capacity_tokens: int | None


def readings(numbers: Numbers, engines: Mapping[str, Iterable[WorkingEngine]], now: float) -> dict[str, Reading]:
    """By pool, for those that `engines` names, with the engines of each that take requests. `now` in Unix seconds."""
    return {pool: _reading(numbers, pool, list(working), now) for pool, working in engines.items()}


def _reading(numbers: Numbers, pool: str, working: list[WorkingEngine], now: float) -> Reading:
    queues = [numbers.of(name, pool) for name in ("gateway_queue", "engine_queue")]
    waited = [seconds for seconds in queues if seconds is not None]
    requests = numbers.of("requests", pool)
    left_ratio, left_tokens = _kv_left(numbers, working)
    kept = {promise: _share(numbers, "kept", "promised", pool, promise) for promise in PROMISES}
    measured_at = [at for engine in working if (at := numbers.of("kv_measured_at", engine.name)) is not None]
    return Reading(
        kv_left_ratio=left_ratio,
        kv_left_tokens=left_tokens,
        queue_seconds=sum(waited) if waited else None,
        engine_seconds=numbers.of("engine", pool),
        requests_per_second=requests,
        goodput_ratio=_share(numbers, "met", "judged", pool),
        kept_ratios={promise: ratio for promise, ratio in kept.items() if ratio is not None},
        failed_ratio=_share(numbers, "failed", "requests", pool),
        refused_ratio=_share(numbers, "refused", "requests", pool),
        age_seconds=max(0.0, now - max(measured_at)) if measured_at else None,
    )


def _share(numbers: Numbers, part: str, whole: str, *owner: str) -> float | None:
    """None where there is no whole. A part without a series has not happened: who counts the whole counts it too."""
    all_of_it = numbers.of(whole, *owner)
    return (numbers.of(part, *owner) or 0.0) / all_of_it if all_of_it else None


def _kv_left(numbers: Numbers, working: list[WorkingEngine]) -> tuple[float | None, int | None]:
    """Of those engines that are measured: the part, by their sizes where all are known, and if so the tokens."""
    measured = [(use, engine) for engine in working if (use := numbers.of("kv_use", engine.name)) is not None]
    if not measured:
        return None, None
    sizes = [engine.kv_capacity_tokens for _use, engine in measured]
    known = [size for size in sizes if size]
    if len(known) < len(sizes):
        return _within(1 - sum(use for use, _engine in measured) / len(measured)), None
    left = sum(size * _within(1 - use) for size, (use, _engine) in zip(known, measured, strict=True))
    # A sum over some of the engines would pass for that over all.
    return left / sum(known), round(left) if len(measured) == len(working) else None


def _within(ratio: float) -> float:
    """An engine's own estimate may go a hair beyond."""
    return min(1.0, max(0.0, ratio))
