"""From what is asked for to a rollout that can begin: checked against what there is, planned, and its pools made."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction
from django.utils import timezone

from controlplane.configs import stages
from controlplane.configs.step import compile_touched
from controlplane.core import fields as f
from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import Conflict, Refused
from controlplane.core.nouns import some_of
from controlplane.fleet.models import Engine, Pool
from controlplane.fleet.services import ENGINES, MODELS, POOLS
from controlplane.rollouts import asked, candidates, conditions, plans, standing
from controlplane.rollouts.facts import engine_facts, gpus_of, routes_naming
from controlplane.rollouts.models import OPEN_STATES, Rollout, State
from controlplane.rollouts.sides import WHOLE, Pair, base_of, left_as, moved
from controlplane.rollouts.versions import publish
from controlplane.routing.services import ROUTES
from wire.acts import ActRefused, read_act
from wire.canonical import Document
from wire.problems import Problem, pointer
from wire.snapshot import Act

# Kinds whose agents always tell how many tokens an engine holds.
_TELL_CAPACITY = ("vllm", "sglang")
_SPARES_HOLDER = "rollout "


@dataclass
class Prepared:
    """The columns of the row, its steps, and the engines that it holds out from the beginning."""

    columns: Document
    steps: list[plans.Planned]
    held_out: list[str] = field(default_factory=list)


class _Undone(Exception):
    """Leaves a savepoint."""


def prepare(unit: UnitOfWork, fields: Mapping[str, Any]) -> Prepared:
    """Raises Refused with every problem, Conflict."""
    given = asked.read(fields)
    return _PREPARED[given.kind](unit, given)


def _red_black(unit: UnitOfWork, given: asked.RedBlackFields) -> Prepared:
    if given.new_pool == given.pool:
        f.refuse_if([Problem("/new_pool", "same_pool", "give another pool than the old one")])
    _alone(given.pool, given.new_pool)
    problems: list[Problem] = []
    old_pool = POOLS.referenced("/pool", given.pool, problems)
    if old_pool is None:
        raise f.refused(problems)
    new_pool = _side(unit, given.new_pool, given.engines, old_pool, given.model, "/new_pool")
    # A spare of the old pool sleeps on.
    old = [engine for engine in _engines_of(old_pool) if not engine.held_out_by]
    new = _engines_of(new_pool)
    pair = Pair(given.pool, given.new_pool)
    routes = routes_naming(*pair.names)
    problems += _red_black_problems(pair, old, new, routes)
    if new_pool.model_id != old_pool.model_id:
        problems += _of_any_model(pair, routes)
    f.refuse_if(problems)
    _refuse_stage(routes)
    _refuse_what_stops(new_pool, new, "/new_pool")
    base = {name: role for name, route in routes.items() if (role := base_of(route, pair.old)) is not None}
    _try(unit, lambda probe: _move(probe, routes, base, pair))
    spec = given.model_dump()
    if given.conditions is None:
        promises = any((new_pool.ttft_slo_ms, new_pool.tpot_slo_ms, new_pool.e2e_slo_ms))
        spec["conditions"] = conditions.generated(pair.old, pair.new, spec["watch"], promises=promises)
    steps = plans.red_black(spec, _names(new), _telling(new), max(1, math.ceil(old_pool.queue_ttl_ms / 1000)))
    columns = {
        **_columns(given.kind, spec, pair.old, plans.cost(steps, _gpus(old), _gpus(new))),
        "new_pool": pair.new, "engines": _names(old), "new_engines": _names(new), "base": base,
        "left": {name: left_as(routes[name], pair) for name in base},
    }  # fmt: skip
    return Prepared(columns, steps, _names(new))


def _of_any_model(pair: Pair, routes: Mapping[str, Document]) -> list[Problem]:
    """A rule for any model leads requests to pools of the model that they ask for, and so to the old one for ever."""
    loose = [name for name, route in routes.items() if base_of(route, pair.old) and not route["match"]["models"]]
    if not loose:
        return []
    message = (
        f"pool {pair.new!r} serves another model than {pair.old!r}, and {some_of(loose)} takes requests for any model; "
        "name in it the models that it is for"
    )
    return [Problem("/new_pool", "any_model", message)]


def _red_black_problems(
    pair: Pair, old: Sequence[Engine], new: Sequence[Engine], routes: Mapping[str, Document]
) -> list[Problem]:
    problems = [*_unfit("/pool", pair.old, old), *_unfit("/new_pool", pair.new, new, takes_over=True)]
    taking = [name for name in routes if base_of(routes[name], pair.new) is not None]
    if taking:
        message = f"{some_of(taking)} leads to pool {pair.new!r} already; the new side must have no traffic yet"
        problems.append(Problem("/new_pool", "has_traffic", message))
    if not any(base_of(route, pair.old) for route in routes.values()):
        problems.append(Problem("/pool", "no_traffic", f"no route leads to pool {pair.old!r}; there is none to move"))
    return problems


def _versioned(unit: UnitOfWork, given: asked.VersionedFields) -> Prepared:
    _alone(given.pool)
    problems: list[Problem] = []
    model = MODELS.referenced("/model", given.model, problems)
    like = POOLS.referenced("/like", given.like, problems) if given.like else None
    f.refuse_if(problems)
    pool = _side(unit, given.pool, given.engines, like, given.model, "/pool")
    new = _engines_of(pool)
    if model is not None and pool.model_id != model.pk:
        message = f"pool {pool.name!r} serves {pool.model.name!r}; give a pool of {given.model!r}"
        problems.append(Problem("/pool", "model", message))
    f.refuse_if(problems + _unfit("/pool", pool.name, new, takes_over=True))
    _refuse_what_stops(pool, new, "/pool")
    spec = given.model_dump()
    _try(unit, lambda probe: publish(probe, pool.name, spec))
    steps = plans.versioned(spec, _names(new), _telling(new))
    columns = {
        **_columns(given.kind, spec, pool.name, plans.cost(steps, 0, _gpus(new))),
        "new_engines": _names(new),
    }
    return Prepared(columns, steps, _names(new))


def _rolling_restart(unit: UnitOfWork, given: asked.RollingRestartFields) -> Prepared:
    _alone(given.pool)
    problems: list[Problem] = []
    pool = POOLS.referenced("/pool", given.pool, problems)
    if pool is None:
        raise f.refused(problems)
    everybody = _engines_of(pool)
    wanted = set(given.engines or (engine.name for engine in everybody if not engine.held_out_by))
    problems += [
        Problem(pointer("/engines", name), "reference", f"pool {pool.name!r} has no engine {name!r}")
        for name in sorted(wanted - set(_names(everybody)))
    ]
    engines = [engine for engine in everybody if engine.name in wanted]
    arguments = pool.engine_arguments if given.arguments is None else given.arguments
    problems += _unfit("/pool", pool.name, engines) + _unable(engines, "drain", "restart")
    problems += _bad_arguments(engines, arguments)
    working = [engine for engine in everybody if not engine.takes_no_work]
    if routes_naming(pool.name) and given.max_unavailable >= len(working):
        message = (
            f"{len(working)} engines of pool {pool.name!r} take work and routes lead there; give less than that, so "
            "that one is always left"
        )
        problems.append(Problem("/max_unavailable", "range", message))
    f.refuse_if(problems)
    spec = {**given.model_dump(), "arguments": dict(arguments)}
    now = timezone.now()
    # Those that cannot serve first: that takes nothing away.
    steps = plans.rolling_restart(
        spec, _names(sorted(engines, key=lambda engine: not engine_facts(engine, now).trouble))
    )
    columns = _columns(given.kind, spec, pool.name, plans.cost(steps, _gpus(everybody), 0))
    return Prepared({**columns, "engines": _names(engines)}, steps)


def _to_spare(unit: UnitOfWork, given: asked.ToSpareFields) -> Prepared:
    engines, pool = _of_one_pool(given.engines)
    f.refuse_if(_unfit("/engines", pool.name, engines) + _unable(engines, "drain", "sleep"))
    left = [engine for engine in _engines_of(pool) if not engine.takes_no_work and engine.name not in given.engines]
    if routes_naming(pool.name) and not left:
        message = f"routes lead to pool {pool.name!r}, and no other engine of it takes work; leave one of these"
        f.refuse_if([Problem("/engines", "last_engine", message)])
    spec = given.model_dump()
    steps = plans.to_spare(spec, given.engines)
    columns = _columns(given.kind, spec, pool.name, plans.cost(steps, _gpus(engines), 0))
    return Prepared({**columns, "engines": given.engines}, steps)


def _from_spare(unit: UnitOfWork, given: asked.FromSpareFields) -> Prepared:
    engines, pool = _of_one_pool(given.engines)
    problems = [
        Problem("/engines", "no_spare", f"no rollout that has ended holds engine {engine.name!r} out of service")
        for engine in engines
        if not _is_spare(engine)
    ]
    f.refuse_if(problems + _unable([engine for engine in engines if engine.condition == "sleeping"], "wake"))
    spec = given.model_dump()
    steps = plans.from_spare(spec, given.engines, {engine.name: engine.held_out_by for engine in engines})
    columns = _columns(given.kind, spec, pool.name, plans.cost(steps, 0, _gpus(engines)))
    return Prepared({**columns, "engines": given.engines}, steps)


def _is_spare(engine: Engine) -> bool:
    """Held out by a rollout that does nothing with it any more."""
    number = engine.held_out_by.removeprefix(_SPARES_HOLDER)
    if number == engine.held_out_by or not number.isdigit():
        return False
    return not Rollout.objects.filter(pk=int(number), state__in=OPEN_STATES).exists()


def _of_one_pool(names: Sequence[str]) -> tuple[list[Engine], Pool]:
    problems: list[Problem] = []
    found = [ENGINES.referenced("/engines", name, problems) for name in names]
    f.refuse_if(problems)
    engines = [engine for engine in found if engine is not None]
    pools = {engine.pool.name for engine in engines}
    if len(pools) > 1:
        f.refuse_if([Problem("/engines", "one_pool", f"give engines of one pool, not of {', '.join(sorted(pools))}")])
    _alone(*pools)
    return engines, engines[0].pool


def _alone(*pools: str) -> None:
    other = standing.opened_on(set(pools))
    if other is not None:
        raise Conflict(f"{other} ({other.state}) is about pool {other.pool!r}; end it first", code="rollout")


def _refuse_stage(routes: Mapping[str, Document]) -> None:
    stage = stages.running()
    if stage is not None and (common := sorted(stage.patch.get("routes", {}).keys() & routes.keys())):
        raise Conflict(
            f"stage {stage.pk} changes route {some_of(common)}; promote it or take it back first", code="staged"
        )


def _refuse_what_stops(pool: Pool, engines: Sequence[Engine], path: str) -> None:
    f.refuse_if([Problem(path, "gate", message) for message in candidates.in_the_way(pool, engines)])


def _side(
    unit: UnitOfWork,
    name: str,
    engines: Mapping[str, asked.NewEngineFields] | None,
    like: Pool | None,
    model: str | None,
    path: str,
) -> Pool:
    """The pool of the new side, as it is or made for these engines with the settings of another."""
    existing = POOLS.find(name, lock=True)
    if engines is None:
        if existing is None:
            message = f"pool {name!r} does not exist; give `engines` to make it, or name another"
            raise f.refused([Problem(path, "reference", message)])
        if model is not None and existing.model.name != model:
            message = f"pool {name!r} serves {existing.model.name!r}; leave `model` out, or name another pool"
            raise f.refused([Problem("/model", "model", message)])
        return existing
    if existing is not None:
        message = f"pool {name!r} exists; leave `engines` out to use those that it has, or choose another name"
        raise f.refused([Problem(path, "unique", message)])
    copied = {} if like is None else {field: POOLS.describe(like)[field] for field in POOLS.fields.model_fields}
    pool = POOLS.create(unit, name, {**copied, **({"model": model} if model else {})})
    problems: list[Problem] = []
    for engine, described in engines.items():
        try:
            ENGINES.create(unit, engine, {**described.model_dump(), "pool": name})
        except Refused as refused:
            found = refused.problems or [Problem("/", refused.code, refused.detail)]
            problems += [Problem(pointer("/engines", engine) + one.path.rstrip("/"), one.rule, one.message)
                         for one in found]  # fmt: skip
    f.refuse_if(problems)
    return pool


def _unfit(path: str, pool: str, engines: Sequence[Engine], *, takes_over: bool = False) -> list[Problem]:
    """What keeps a rollout from having these engines. `takes_over`: what an ended one holds out it may have."""
    if not engines:
        return [Problem(path, "no_engine", f"pool {pool!r} has no engine")]
    return [
        Problem(path, "held_out", f"engine {engine.name!r} is held out of service by {engine.held_out_by}")
        for engine in engines
        if engine.held_out_by and not (takes_over and _is_spare(engine))
    ]


def _unable(engines: Sequence[Engine], *actions: str) -> list[Problem]:
    """Engines whose node's policy does not let these acts be done."""
    problems = []
    for engine in engines:
        if engine.node is None:
            message = f"engine {engine.name!r} has no node whose agent could act on it"
            problems.append(Problem("/engines", "no_node", message))
        elif missing := sorted(set(actions) - set(engine.node.allowed_acts.get(engine.name, ()))):
            message = f"the policy of node {engine.node.name!r} does not allow {', '.join(missing)} on {engine.name!r}"
            problems.append(Problem("/engines", "not_allowed", message))
    return problems


def _bad_arguments(engines: Sequence[Engine], arguments: Mapping[str, Any]) -> list[Problem]:
    problems: list[Problem] = []
    for kind in sorted({engine.kind for engine in engines}):
        if arguments and kind != "vllm":
            problems.append(Problem("/arguments", "wrong_kind", f"arguments are for vllm; an engine is {kind}"))
            continue
        act = Act(action="restart", order=0, issued_at_ms=0, expires_at_ms=1, engine="engine",
                  arguments={"arguments": dict(arguments)})  # fmt: skip
        try:
            read_act(act, kind)
        except ActRefused as refused:
            problems += [Problem(one.path.removeprefix("/arguments") or "/arguments", one.rule, one.message)
                         for one in refused.problems]  # fmt: skip
    return problems


def _move(unit: UnitOfWork, routes: Mapping[str, Document], base: Mapping[str, Document], pair: Pair) -> None:
    for name, role in base.items():
        ROUTES.update(unit, name, moved(routes[name], role, pair, WHOLE, joined=False))


def _try(unit: UnitOfWork, write: Callable[[UnitOfWork], None]) -> None:
    """Whether what the rollout leads to can be written; nothing is kept. Raises Refused as that write does."""
    probe = UnitOfWork(unit.actor, unit.reason, dry_run=True, touched=dict(unit.touched))
    try:
        with transaction.atomic():
            write(probe)
            compile_touched(probe)
            raise _Undone
    except _Undone:
        return


def _columns(kind: str, spec: Document, pool: str, cost: Document) -> Document:
    return {"kind": kind, "state": State.RUNNING, "spec": spec, "pool": pool, "cost": cost, "said": "begins"}


def _engines_of(pool: Pool) -> list[Engine]:
    return list(Engine.objects.select_related("node", "pool__model").filter(pool=pool).order_by("name"))


def _names(engines: Sequence[Engine]) -> list[str]:
    return [engine.name for engine in engines]


def _telling(engines: Sequence[Engine]) -> list[str]:
    return [engine.name for engine in engines if engine.node is not None and engine.kind in _TELL_CAPACITY]


def _gpus(engines: Sequence[Engine]) -> int:
    return sum(gpus_of(engine) for engine in engines)


_PREPARED: dict[str, Callable[[UnitOfWork, Any], Prepared]] = {
    "red_black": _red_black,
    "versioned": _versioned,
    "rolling_restart": _rolling_restart,
    "to_spare": _to_spare,
    "from_spare": _from_spare,
}
