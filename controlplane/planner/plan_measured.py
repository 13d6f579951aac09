"""What a plan takes from the fleet: lengths that gateways counted, rates of a pool's GPUs, engines' own numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from controlplane.core import fields as f
from controlplane.fleet.models import Engine
from controlplane.fleet.services import POOLS
from controlplane.planner.plan_fields import MeasuredAsked, RatesAsked
from controlplane.telemetry import query
from controlplane.telemetry.decisions.sketches import Span, lengths_of, whole_minutes
from policy.planning.speed import Rates
from wire.problems import Problem

_PREFILL, _DECODE = "prompt", "generation"
_COUNTED = "max_over_time(pool:headworks_gateway_{kind}_tokens:rate1m{{pool={pool}}}[{days}d])"


def measured_lengths(asked: MeasuredAsked, now: datetime) -> tuple[dict[int, int], dict[int, int]]:
    """Prompts and outputs of the last days. Raises NotFound, or Refused where none was counted."""
    if asked.pool is not None:
        POOLS.get(asked.pool)
    since = now - timedelta(days=asked.days)
    span = whole_minutes(Span(f.epoch_ms(since), f.epoch_ms(now)))
    counts = lengths_of(span, None if asked.pool is None else [asked.pool], asked.tenant or "")
    prompts, outputs = counts["prompt_tokens"], counts["output_tokens"]
    if not prompts or not outputs:
        says = (
            f"no answered request was counted in the last {asked.days} days; ask for more of them, or type the lengths"
        )
        raise f.refused([Problem("/lengths/measured", "not_measured", says)])
    return prompts, outputs


def measured_rates(asked: RatesAsked, at: str, now: datetime) -> Rates:
    """What one GPU of the pool did in its busiest minute: less than it could, where it was never full.

    It read and wrote in that minute, and rates are of doing nothing else: each is taken for half of the time, so that
    requests like those of the pool come out as many as they were. A pool that writes nothing read all of the time.
    Raises NotFound, or Refused where nothing was measured or the metrics do not answer.
    """
    pool = POOLS.get(asked.pool or "")
    gpus = sum(gpus_of(engine) for engine in Engine.objects.filter(pool=pool, cordoned=False, held_out_by=""))
    try:
        read, written = (_peak(kind, pool.name, asked.days, now) for kind in (_PREFILL, _DECODE))
    except query.QueryError as error:
        raise f.refused([Problem(at, "not_measured", f"the metrics do not answer: {error}")]) from error
    if not gpus or not read:
        says = f"pool {pool.name!r} has no engine in service, or answered nothing in the last {asked.days} days"
        raise f.refused([Problem(at, "not_measured", f"{says}; type the rates")])
    if not written:
        return Rates(read / gpus, math.inf)
    return Rates(2 * read / gpus, 2 * written / gpus)


def _peak(kind: str, pool: str, days: int, now: datetime) -> float | None:
    # A pool's name has nothing that ends a string in PromQL.
    promql = _COUNTED.format(kind=kind, pool=f'"{pool}"', days=days)
    found = [sample.value for sample in query.instant(promql, f.epoch_ms(now)) if math.isfinite(sample.value)]
    return max(found, default=None)


def gpus_of(engine: Engine) -> int:
    """Over how many GPUs it says that it is spread; 1 where it does not."""
    arguments = arguments_of(engine)
    ranks, stages = (whole(arguments, f"{name}_parallel_size") or 1 for name in ("tensor", "pipeline"))
    return ranks * stages


def arguments_of(engine: Engine) -> dict[str, str]:
    """By the names of vLLM's command line; what an engine says of itself in sections (model_config.…) counts too."""
    told: Mapping[str, Any] = engine.facts.get("arguments", {})
    by_section = {name.rpartition(".")[2]: str(value) for name, value in told.items()}
    return {**by_section, **{name: str(value) for name, value in told.items()}}


def whole(arguments: Mapping[str, str], name: str) -> int | None:
    """None where it is absent, or no whole number of some size."""
    text = arguments.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and 0 < len(text) < 10 and int(text) > 0 else None
