"""Watching the stage that runs: it goes on, is promoted or is taken back."""

from __future__ import annotations

import logging
import math
from datetime import datetime, timedelta

from controlplane import settings_rows as rows
from controlplane.configs import staged, stages
from controlplane.configs.convergence import State, convergence
from controlplane.configs.history import Damaged
from controlplane.configs.models import Stage
from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.core.errors import Conflict, Refused
from controlplane.core.fields import epoch_ms
from controlplane.core.idle import give_back_connection
from controlplane.core.nouns import some_of
from controlplane.core.reported import reported_text
from controlplane.telemetry import query
from controlplane.telemetry.expressions import keeps_what_holds
from controlplane.telemetry.settings_rows import METRICS_QUERY_SECONDS, METRICS_UPSTREAM_SECONDS

log = logging.getLogger(__name__)

UNANSWERED_LOOKS_MAX = 3


def look(now: datetime) -> bool:
    """Look at the stage that runs, if that is due; whether it was. No other worker does meanwhile."""
    every = timedelta(seconds=rows.STAGE_LOOK_SECONDS.read())
    query_lasts = timedelta(seconds=max(METRICS_QUERY_SECONDS.read(), METRICS_UPSTREAM_SECONDS.read()))
    stage = stages.claim(now, every + query_lasts)
    if stage is None:
        return False
    if now - stage.look_at > every + query_lasts:
        # For so long nobody looked, and nobody knows whether it was healthy.
        stage.healthy_since = None
    try:
        _judge(stage, now)
    except Conflict as error:
        # Somebody ended it meanwhile.
        log.info("%s", error)
    finally:
        stages.looked(stage, look_at=now + every)
    return True


def _judge(stage: Stage, now: datetime) -> None:
    if now >= stage.expires_at:
        _take_back(stage, "it expired")
        return
    try:
        standing = _standing(stage)
    except Damaged:
        return
    refusing = [name for name, state in standing.items() if state == State.REFUSED]
    waited_for = [name for name, state in standing.items() if state != State.APPLIED]
    if not standing:
        _take_back(stage, "all its targets were revoked")
    elif refusing:
        _take_back(stage, f"refused by {some_of(refusing)}")
    elif waited_for:
        stages.looked(stage, said=f"waits for {some_of(waited_for)}", healthy_since=None)
    elif not stage.expression:
        stages.looked(stage, said="its targets run it")
    else:
        _ask(stage, now)


def _standing(stage: Stage) -> dict[str, State]:
    """Where each of its targets stands with it. Those that were revoked meanwhile do not count."""
    stands = convergence()
    published = stands["stage"] == stage.pk
    found = {f"{target['kind']}/{target['name']}": State(target["state"]) for target in stands["targets"]}
    return {name: found[name] if published else State.PENDING for name in stage.targets if name in found}


def _ask(stage: Stage, now: datetime) -> None:
    give_back_connection()
    try:
        healthy = is_healthy(stage.expression, query.instant(stage.expression, epoch_ms(now)))
    except query.QueryError as error:
        unanswered = stage.unanswered_looks + 1
        says = f"the query has no answer: {reported_text(str(error))}"
        if unanswered >= UNANSWERED_LOOKS_MAX:
            _take_back(stage, f"{unanswered} times in a row {says}")
        else:
            stages.looked(stage, said=says, unanswered_looks=unanswered)
        return
    if not healthy:
        _take_back(stage, f"not healthy: {stage.expression}")
        return
    since = stage.healthy_since or now
    if stage.promotes and now - since >= timedelta(seconds=stage.for_seconds):
        _promote(stage)
    else:
        stages.looked(stage, said="healthy", healthy_since=since, unanswered_looks=0)


def is_healthy(expression: str, samples: list[query.Sample]) -> bool:
    """A result, and no NaN in it; nor 0, unless it is what a comparison let through, as `errors < 1` lets 0."""
    zero_is_well = keeps_what_holds(expression)
    return bool(samples) and all(
        not math.isnan(sample.value) and (zero_is_well or sample.value != 0) for sample in samples
    )


def _promote(stage: Stage) -> None:
    why = f"healthy for {stage.for_seconds} s"
    try:
        with unit_of_work(SYSTEM, f"stage {stage.pk} was {why}") as unit:
            staged.promote(unit, stage.pk, why)
    except Conflict:
        raise
    except Refused as refused:
        # What the program itself did meanwhile, such as forgetting what expired, is in its way.
        _take_back(stage, f"it cannot be applied any more: {reported_text(refused.detail)}")


def _take_back(stage: Stage, why: str) -> None:
    log.warning("stage %d is taken back: %s", stage.pk, why)
    with unit_of_work(SYSTEM, f"stage {stage.pk} was taken back") as unit:
        staged.take_back(unit, stage.pk, why)
