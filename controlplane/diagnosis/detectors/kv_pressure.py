"""Whether a pool lacks KV cache: it is full, and requests wait for it, or running ones are put back for it.

Both come of admitting more than fits, and are told apart by how much work is done twice. Source: seed 1, sections 1
and 2.
"""

from __future__ import annotations

from typing import NamedTuple

from controlplane.diagnosis.detector import Fleet, Readings
from controlplane.diagnosis.detectors import promql, refusals

_USE = "headworks_engine_kv_cache_usage_ratio"
_WAITING = "headworks_engine_requests_waiting"
_PREEMPTIONS = "headworks_engine_preemptions_total"
PRESSURE_QUERIES = {
    "kv_use": promql.typical(_USE, "pool", "engine", across="max"),
    "kv_use_peak": promql.peak(_USE, "pool", "engine"),
    "waiting": promql.typical(_WAITING, "pool", "engine"),
    "waiting_peak": promql.peak(_WAITING, "pool", "engine"),
    "queue": promql.typical("headworks_gateway_queue_length", "pool"),
    "prompt_rate": promql.per_second("headworks_gateway_prompt_tokens_total", "pool"),
    "answer_rate": promql.per_second(f'{refusals.REQUESTS}{{outcome="ok"}}', "pool"),
    "preempted": promql.per_second(_PREEMPTIONS, "pool"),
    # One burst moves the counter once. In how many of all steps from look to look it moved tells a burst from a habit.
    "preempted_looks": (
        f"max by (pool) (changes({_PREEMPTIONS}[$window]) / (count_over_time({_PREEMPTIONS}[$window]) - 1 > 0))"
    ),
    "finished": promql.per_second("headworks_engine_requests_finished_total", "pool"),
}
# The table's limit. Where a usual prompt is a larger part of the cache, it waits in the engine earlier; below the least
# there is room for somebody, and the cache is not what lacks.
FULL_RATIO, _FULL_RATIO_LEAST = 0.95, 0.8
# In the middle of the window at least one waited.
WAITING_MIN = 1.0
# Seed 1, section 2: a single burst moves the counter, too; what counts is that it goes on.
LOOKS_SHARE = 0.5
# A tenth of the requests computed twice is felt. Beside a queue in the engine it is a cache that is full, which puts
# some back as well; from half of them on most of the time goes into doing work again.
PREEMPTED_SHARE, _THRASHING_SHARE = 0.1, 0.5


class Full(NamedTuple):
    """`use`: of the fullest engine, `limit`: from which it counts as full. `waiting`: in all engines that are full.

    `queue`: at the gateways.
    """

    use: float
    waiting: float
    limit: float
    queue: float = 0.0


class Thrashing(NamedTuple):
    """`share`: preemptions for each request that ended; None where none did."""

    per_second: float
    looks: float
    share: float | None


def exhausted(readings: Readings, fleet: Fleet) -> dict[str, Full]:
    """Pools with an engine whose cache is full while requests wait in it, and that do not thrash."""
    thrash = thrashing(readings, fleet)
    return {pool: full for pool, full in _full(readings, fleet).items() if pool not in thrash}


def thrashing(readings: Readings, fleet: Fleet) -> dict[str, Thrashing]:
    """Pools that compute the same again and again."""
    waiting, looks = _full(readings, fleet), readings.by_pool("preempted_looks")
    found = {}
    for pool, seen in _preempting(readings).items():
        share = 1.0 if seen.share is None else seen.share
        least = _THRASHING_SHARE if pool in waiting else PREEMPTED_SHARE
        if looks.get(pool, 0.0) >= LOOKS_SHARE and share >= least:
            found[pool] = seen
    return found


def pressed(readings: Readings, fleet: Fleet) -> set[str]:
    """Pools of which one or the other may soon be said: there other detectors wait before they name another cause."""
    beginning = _full(readings, fleet, "_peak")
    felt = {pool for pool, seen in _preempting(readings).items() if (seen.share or 1.0) >= PREEMPTED_SHARE}
    return {*beginning, *felt}


def _full(readings: Readings, fleet: Fleet, of: str = "") -> dict[str, Full]:
    waiting, prompts = readings.by(f"waiting{of}", "pool", "engine"), _mean_prompts(readings)
    queues, found = readings.by_pool("queue"), dict[str, Full]()
    for (pool, engine), use in readings.by(f"kv_use{of}", "pool", "engine").items():
        waits, limit = waiting.get((pool, engine), 0.0), _limit(engine, prompts.get(pool), fleet)
        queue = queues.get(pool, 0.0)
        if (use > limit and waits >= WAITING_MIN) or (use > FULL_RATIO and waits + queue >= WAITING_MIN):
            known = found.get(pool, Full(0.0, 0.0, limit))
            found[pool] = Full(max(known.use, use), known.waiting + waits, min(known.limit, limit), queue)
    return found


def _limit(engine: str, prompt_tokens: float | None, fleet: Fleet) -> float:
    row = fleet.engines.get(engine)
    capacity = None if row is None else row["kv_capacity_tokens"]
    if not capacity or prompt_tokens is None:
        return FULL_RATIO
    return max(_FULL_RATIO_LEAST, min(FULL_RATIO, 1 - prompt_tokens / int(capacity)))


def _mean_prompts(readings: Readings) -> dict[str, float]:
    answers = readings.by_pool("answer_rate")
    return {pool: tokens / answers[pool] for pool, tokens in readings.by_pool("prompt_rate").items()
            if answers.get(pool, 0.0) > 0}  # fmt: skip


def _preempting(readings: Readings) -> dict[str, Thrashing]:
    finished, looks = readings.by_pool("finished"), readings.by_pool("preempted_looks")
    return {
        pool: Thrashing(rate, looks.get(pool, 0.0), rate / finished[pool] if finished.get(pool, 0.0) > 0 else None)
        for pool, rate in readings.by_pool("preempted").items()
        if rate > 0
    }
