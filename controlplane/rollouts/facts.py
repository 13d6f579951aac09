"""What is seen of a rollout and of the fleet: rows, targets and queries, read for the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Max, Q

from controlplane import settings_rows
from controlplane.configs import stages
from controlplane.configs.convergence import State as TargetStands
from controlplane.configs.convergence import convergence, standing_with
from controlplane.configs.stage_watch import is_healthy
from controlplane.core.fields import epoch_ms
from controlplane.core.idle import give_back_connection
from controlplane.core.models import AuditEntry, Target, TargetKind
from controlplane.fleet.models import Act, Engine, Pool
from controlplane.rollouts import candidates
from controlplane.rollouts.conditions import requests_of
from controlplane.rollouts.ending import ending_acts
from controlplane.rollouts.machine import WATCHED
from controlplane.rollouts.models import Kind, Rollout
from controlplane.rollouts.observed import ActFacts, EngineFacts, Facts, Judgement, RolloutView, StepView
from controlplane.routing.models import Route
from controlplane.routing.services import ROUTES
from controlplane.telemetry import query
from wire.canonical import Document

_GATED = ("gate", "check")
# What engines call the number of GPUs that one of them takes; they multiply.
_PARALLEL = ("tensor_parallel_size", "pipeline_parallel_size")


def gather(row: Rollout, view: RolloutView, now: datetime, *, unwatched: bool = False) -> Facts:
    """`unwatched`: as in Facts. Raises configs.history.Damaged while the newest revision cannot be read."""
    step = view.current
    engines = {engine.name: engine for engine in _engines(view)}
    ending = ending_acts(engines, now)
    refusing, pending, unheard = _gateways(step)
    return Facts(
        engines={
            name: engine_facts(engine, now, ending.get(name, ""), heard_since=row.deaf_at)
            for name, engine in engines.items()
        },
        routes=routes_naming(view.pool, view.new_pool) if view.new_pool else {},
        refusing=tuple(refusing),
        pending=tuple(pending),
        unheard=tuple(unheard),
        acts=_acts(step),
        gate=tuple(_gate(view, step, engines)),
        stage=_stage(view, step),
        judgements=_judged(row, view, step, now),
        unwatched=unwatched,
        deaf=is_deaf(now),
    )


def is_deaf(now: datetime) -> bool:
    """Whether nobody was heard of for half the time after which a target counts as silent."""
    heard_at = Target.objects.filter(revoked_at=None).aggregate(at=Max("last_seen_at"))["at"]
    return heard_at is not None and now - heard_at > _silent_after() / 2


def _silent_after() -> timedelta:
    return timedelta(seconds=settings_rows.TARGET_SILENT_SECONDS.read())


def _engines(view: RolloutView) -> list[Engine]:
    """Its own; of a restart the others of the pool as well, one of which must go on serving."""
    wanted = Q(name__in=[*view.engines, *view.new_engines])
    if view.kind == Kind.ROLLING_RESTART:
        wanted |= Q(pool__name=view.pool)
    return list(Engine.objects.select_related("node", "pool").filter(wanted).order_by("name"))


def engine_facts(
    row: Engine, now: datetime, ending_by: str = "", *, heard_since: datetime | None = None
) -> EngineFacts:
    """Of an engine without a node nobody tells anything: it counts as up.

    `heard_since`: before, nobody was heard of; a node has its time from then on before it counts as silent.
    """
    told = row.node is not None
    heard_at = row.node.reported_at if row.node else None
    if heard_at is not None and heard_since is not None:
        heard_at = max(heard_at, heard_since)
    return EngineFacts(
        name=row.name,
        pool=row.pool.name,
        has_agent=told,
        held_out_by=row.held_out_by,
        cordoned=row.cordoned or bool(row.node and row.node.cordoned),
        up=row.state == "up" or not told,
        silent=told and (heard_at is None or now - heard_at > _silent_after()),
        condition=row.condition,
        version=row.version,
        kv_capacity_tokens=row.kv_capacity_tokens,
        failed_probes=tuple(name for name, outcome in row.facts.get("probes", {}).items() if outcome == "failed"),
        allowed=frozenset(row.node.allowed_acts.get(row.name, ()) if row.node else ()),
        reported_at=row.reported_at,
        gpus=gpus_of(row),
        ending_by=ending_by,
    )


def gpus_of(row: Engine) -> int:
    """As it was started or, where nothing tells, as its pool wants it; 1 where that says nothing either."""
    told = {**row.pool.engine_arguments, **row.facts.get("arguments", {})}
    named = {name.replace("-", "_"): str(value) for name, value in told.items()}
    gpus = 1
    for name in _PARALLEL:
        number = named.get(name, "1")
        gpus *= int(number) if number.isascii() and number.isdigit() and len(number) < 5 else 1
    return max(gpus, 1)


def routes_naming(*pools: str) -> dict[str, Document]:
    """The public forms of all routes that lead to any of these pools."""
    described = [ROUTES.describe(row) for row in Route.objects.all()]
    wanted = set(pools)
    return {route["name"]: route for route in described if wanted & _pools_in(route)}


def _pools_in(route: Document) -> set[str]:
    cascade = route["cascade"]
    return {*(route["pools"] or ()), *(route["fallbacks"] or ()), *([cascade["pool"]] if cascade else ())}


def _gateways(step: StepView | None) -> tuple[list[str], list[str], list[str]]:
    """Who refuses, and who does not run yet, what the step wrote; where it wrote nothing, the newest configuration.

    And who is not heard of.
    """
    change = step.evidence.get("change") if step else None
    revision: int | None = None
    if change is not None:
        numbers = AuditEntry.objects.filter(change_id=change, revision__isnull=False)
        revision = numbers.order_by("-revision").values_list("revision", flat=True).first()
        if revision is None:
            return [], ["its publication"], []
    found = [target for target in convergence()["targets"] if target["kind"] == TargetKind.GATEWAY]
    stands = {str(target["name"]): standing_with(target, revision) for target in found}
    pending = (TargetStands.PENDING, TargetStands.NEVER) if change is not None else ()
    return (
        [f"gateway/{name}" for name, state in stands.items() if state is TargetStands.REFUSED],
        [f"gateway/{name}" for name, state in stands.items() if state in pending],
        [f"gateway/{name}" for name, state in stands.items() if state is TargetStands.LOST],
    )


def _acts(step: StepView | None) -> dict[str, ActFacts]:
    if step is None or not step.acts:
        return {}
    found = Act.objects.filter(act_id__in=list(step.acts.values()))
    return {
        act.act_id: ActFacts(act.state, ": ".join(filter(None, (act.result_reason, act.detail))), act.state_at)
        for act in found
    }


def _gate(view: RolloutView, step: StepView | None, engines: Mapping[str, Engine]) -> list[str]:
    """Asked at the steps that stop by it."""
    if step is None or step.kind not in _GATED or view.state != "running" or view.kind == "from_spare":
        return []
    pool = Pool.objects.select_related("model").filter(name=view.new_pool or view.pool).first()
    if pool is None:
        return [f"there is no pool {view.new_pool or view.pool!r} any more"]
    return candidates.in_the_way(pool, [engines[name] for name in view.new_engines if name in engines])


def _stage(view: RolloutView, step: StepView | None) -> str:
    """Whether a staged change has routes of this rollout, in words."""
    if step is None or step.kind not in WATCHED:
        return ""
    stage = stages.running()
    common = [] if stage is None else sorted(stage.patch.get("routes", {}).keys() & view.base.keys())
    if stage is None or not common:
        return ""
    return f"stage {stage.pk} changes route {', '.join(common)}; promote it or take it back first"


def _judged(row: Rollout, view: RolloutView, step: StepView | None, now: datetime) -> dict[str, Judgement]:
    """The conditions, once there is traffic on the new side to judge."""
    if step is None or step.kind not in WATCHED or not view.share_permille:
        return {}
    give_back_connection()
    counted: dict[str, float | None] = {}
    judged: dict[str, Judgement] = {}
    window_seconds = row.spec["watch"]["window_seconds"]
    for condition in row.spec["conditions"]:
        judged[condition["name"]] = _judgement(condition, view.new_pool, window_seconds, now, counted)
        if judged[condition["name"]] == "unanswered":
            # A server that does not answer is not waited for once for each of the others.
            break
    return judged


def _judgement(
    condition: Mapping[str, Any], pool: str, window_seconds: int, now: datetime, counted: dict[str, float | None]
) -> Judgement:
    """`counted`: how many requests there were, asked once a look."""
    try:
        if condition["minimum_requests"]:
            if pool not in counted:
                counted[pool] = _value(query.instant(requests_of(pool, window_seconds), epoch_ms(now)))
            if (counted[pool] or 0) < condition["minimum_requests"]:
                return "too_few"
        samples = query.instant(condition["expression"], epoch_ms(now))
    except query.QueryError:
        return "unanswered"
    return "holds" if is_healthy(condition["expression"], samples) else "broken"


def _value(samples: Sequence[query.Sample]) -> float | None:
    return samples[0].value if samples else None
