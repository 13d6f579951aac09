"""The rule of each kind of step: what it does and when it is done. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from controlplane.core.fields import epoch_ms
from controlplane.core.nouns import some_of
from controlplane.rollouts.moves import held, moves_back, moves_to, routes_to
from controlplane.rollouts.observed import EngineFacts, Facts, RolloutView, StepView
from controlplane.rollouts.sides import Pair, left_as
from controlplane.rollouts.verdicts import (
    Moves,
    NewAct,
    Verdict,
    by_acts,
    done,
    engines_of,
    failed,
    gone,
    since,
    since_now,
    until,
    waits,
)

Rule = Callable[[RolloutView, StepView, Facts, datetime], Verdict]
# A step whose conditions had too few requests to be judged waits for more until so many times what it should last.
PATIENCE = 3
# How long one that is down when all goes back is waited for: its agent looks and tells several times by then.
BACK_SECONDS = 30
# What may be asked of the engines of the side that is retired.
RETIRED_BY = {"stop": "stop", "sleep": "sleep"}


def gate(rollout: RolloutView, step: StepView, facts: Facts, now: datetime) -> Verdict:
    if facts.refusing:
        return failed(f"{some_of(list(facts.refusing))} refuses its configuration; mend that first")
    return failed(some_of(list(facts.gate))) if facts.gate else done("nothing is in its way")


def start(rollout: RolloutView, step: StepView, facts: Facts, now: datetime) -> Verdict:
    """By their agents where the nodes' policies allow it; all others are waited for. One that sleeps is woken."""
    engines = engines_of(step, facts)
    if lost := gone(step.arguments["engines"], facts):
        return failed(f"{some_of(lost)} is not configured any more")
    limit_seconds = step.arguments["limit_seconds"]
    starts = [NewAct(each.name, each.name, "start", {"limit_seconds": limit_seconds}) for each in engines]
    wakes = [NewAct(f"wake/{each.name}", each.name, "wake") for each in engines]
    acts = [
        act
        for act, each in zip(starts + wakes, engines * 2, strict=True)
        if act.key in step.acts or (act.action in each.allowed and _needs(each, act.action))
    ]
    acted = by_acts(step, facts, acts, "start", now) if acts else done()
    if acted.outcome == "failed" or acted.acts:
        return acted
    down = [engine.name for engine in engines if not engine.up or engine.silent]
    return until(step, now, down, "do not answer yet") if down else done("all answer")


def _needs(engine: EngineFacts, action: str) -> bool:
    return engine.condition == "sleeping" if action == "wake" else not engine.up


def check(rollout: RolloutView, step: StepView, facts: Facts, now: datetime) -> Verdict:
    """All that can be known of an engine before a request goes there."""
    if lost := gone(step.arguments["engines"], facts):
        return failed(f"{some_of(lost)} is not configured any more")
    if facts.gate:
        return failed(some_of(list(facts.gate)))
    told = set(step.arguments["tell_capacity"])
    missing = [said for engine in engines_of(step, facts) for said in _missing(engine, engine.name in told)]
    return until(step, now, missing, "not ready") if missing else done("all are well")


def _missing(engine: EngineFacts, tells_capacity: bool) -> list[str]:
    found = [f"{engine.name}: {engine.trouble}"] if engine.trouble else []
    found += [f"{engine.name}: probe {probe} failed" for probe in engine.failed_probes]
    if tells_capacity and engine.kv_capacity_tokens is None:
        found.append(f"{engine.name}: its KV capacity is not told")
    return found


def warm_up(rollout: RolloutView, step: StepView, facts: Facts, now: datetime) -> Verdict:
    """Every prompt and schema at every engine whose agent may ask it."""
    able = [engine.name for engine in engines_of(step, facts) if "warm_up" in engine.allowed]
    given = step.arguments
    tried = [{"prompt": prompt} for prompt in given["prompts"]] + [{"schema": schema} for schema in given["schemas"]]
    shared = {"requests": given["requests"], "limit_seconds": given["limit_seconds"]}
    acts = [
        NewAct(f"{name}/{number}", name, "warm_up", {**one, **shared})
        for name in given["engines"]
        if name in able or f"{name}/0" in step.acts
        for number, one in enumerate(tried or [{}])
    ]
    if not acts:
        return done("no node's policy allows it: their first requests warm them")
    return by_acts(step, facts, acts, "warm up", now)


def hold_out(rollout: RolloutView, step: StepView, facts: Facts, now: datetime) -> Verdict:
    """Out of routing, and done once no gateway sends anything there.

    `max_unavailable`: at most so many of the rollout's engines may not serve at once, whatever the reason; one that
    cannot serve anyway takes nothing away.
    """
    if lost := gone(step.arguments["engines"], facts):
        return failed(f"{some_of(lost)} is not configured any more")
    engines = engines_of(step, facts)
    out = [engine.name for engine in engines if engine.held_out_by != rollout.holder]
    if out:
        most = step.arguments.get("max_unavailable")
        ill = [facts.engines[name] for name in rollout.engines if name in facts.engines and name not in out]
        missing = [f"{engine.name}: {engine.trouble}" for engine in ill if engine.trouble]
        taken = sum(not engine.trouble for engine in engines if engine.name in out)
        if most is not None and taken and missing and len(missing) + taken > most:
            return waits(f"at most {most} may be out of service, and now {some_of(missing)}")
        if most is not None and (alone := _last_ones(engines, facts)):
            return waits(alone)
        former = {engine.name: engine.kv_capacity_tokens for engine in engines}
        return waits(f"takes {some_of(out)} out of service", moves=Moves(hold_out=out), evidence={"former": former})
    return _applied(facts) or done(_as_heard(facts, "no gateway sends anything there"))


def _last_ones(engines: list[EngineFacts], facts: Facts) -> str:
    """Whether all others of their pool take no new work either, as people, spot notices and other rollouts have it."""
    names = {engine.name for engine in engines}
    others = [each for each in facts.engines.values() if each.name not in names]
    serve = any(each.takes_work and not each.held_out_by for each in engines)
    if not serve or not others or any(each.takes_work and not each.held_out_by for each in others):
        return ""
    return f"no other engine of the pool takes work now: {some_of([each.name for each in others])}"


def put_back(rollout: RolloutView, step: StepView, facts: Facts, now: datetime) -> Verdict:
    """`held_by`: what held the engines out, where it was an earlier rollout."""
    held_by: Mapping[str, str] = step.arguments.get("held_by", {})
    back = [
        engine.name
        for engine in engines_of(step, facts)
        if engine.held_out_by and engine.held_out_by in (rollout.holder, held_by.get(engine.name))
    ]
    if back:
        return waits(f"puts {some_of(back)} back into service", moves=Moves(put_back=back))
    return _applied(facts) or done(_as_heard(facts, "in service"))


def _as_heard(facts: Facts, said: str) -> str:
    """With the gateways that nobody hears of: they are not waited for, and may go by what was before."""
    return f"{said}; {some_of(list(facts.unheard))} is not heard of" if facts.unheard else said


def _applied(facts: Facts) -> Verdict | None:
    """Waits until no gateway goes by what was before, as one that refuses it does."""
    if facts.refusing:
        return waits(f"{some_of(list(facts.refusing))} refuses the configuration; mend that first")
    return waits(f"waits for {some_of(list(facts.pending))}") if facts.pending else None


def drain(rollout: RolloutView, step: StepView, facts: Facts, now: datetime) -> Verdict:
    """One that is down has no request left, and would not say so."""
    limit = {"limit_seconds": step.arguments["limit_seconds"]}
    acts = [NewAct(each.name, each.name, "drain", limit) for each in engines_of(step, facts)
            if each.up or each.name in step.acts]  # fmt: skip
    return by_acts(step, facts, acts, "drain", now)


def _each(action: str, what: str, *arguments: str) -> Rule:
    """The same act on every engine of the step, with these of the step's arguments."""

    def rule(rollout: RolloutView, step: StepView, facts: Facts, now: datetime) -> Verdict:
        given = {name: step.arguments[name] for name in arguments}
        acts = [NewAct(name, name, action, given) for name in step.arguments["engines"]]
        return by_acts(step, facts, acts, what, now)

    return rule


def verify(rollout: RolloutView, step: StepView, facts: Facts, now: datetime) -> Verdict:
    """Told after the restart: it is well, and holds as many tokens as before, or nearly."""
    earlier = {before.kind: before for before in rollout.steps[: step.index] if _same_engines(before, step)}
    restarted_ms = earlier["restart"].evidence.get("ended_ms", 0)
    former: Mapping[str, int | None] = earlier["hold_out"].evidence.get("former", {})
    missing = [f"{name}: it is not configured any more" for name in gone(step.arguments["engines"], facts)]
    for engine in engines_of(step, facts):
        if engine.reported_at is None or epoch_ms(engine.reported_at) <= restarted_ms:
            missing.append(f"{engine.name}: its agent has not told of it since")
        else:
            missing += _missing(engine, former.get(engine.name) is not None)
            missing += _smaller(engine, former.get(engine.name), step.arguments["capacity_may_fall_percent"])
    return until(step, now, missing, "not as it was") if missing else done("well, with its KV capacity")


def _same_engines(one: StepView, other: StepView) -> bool:
    return bool(one.arguments.get("engines") == other.arguments["engines"])


def _smaller(engine: EngineFacts, former: int | None, may_fall_percent: int) -> list[str]:
    now = engine.kv_capacity_tokens
    if former is None or now is None or 100 * now >= (100 - may_fall_percent) * former:
        return []
    return [f"{engine.name}: its KV capacity fell from {former:,} to {now:,} tokens"]


def publish(rollout: RolloutView, step: StepView, facts: Facts, now: datetime) -> Verdict:
    if not step.evidence.get("published"):
        return waits("publishes the version", publishes=True, evidence={"published": True})
    return _applied(facts) or done(_as_heard(facts, "published"))


def shift(rollout: RolloutView, step: StepView, facts: Facts, now: datetime) -> Verdict:
    """Move to the step's share, and stay there as long as it is watched. A breach is found by `machine.hazard`."""
    if changed := _changed_by_others(rollout, facts):
        return Verdict("paused", f"somebody changed {some_of(changed)} meanwhile; resume takes it as it is now")
    share_permille = step.arguments["share_permille"]
    if facts.stage and rollout.share_permille != share_permille:
        return waits(facts.stage)
    moves = moves_to(rollout, facts, share_permille, joined=True)
    if moves:
        said = f"moves {share_permille / 10:g} % to {rollout.new_pool}"
        return waits(said, moves=moves, share_permille=share_permille, evidence={"since_ms": None})
    if facts.pending:
        return waits(f"waits for {some_of(list(facts.pending))}", evidence={"since_ms": None})
    began = since(step)
    if began is not None and facts.unwatched:
        return _watched_anew(now)
    if began is None:
        said = _as_heard(facts, "every gateway runs it")
        return waits(said, evidence=since_now(now), share_permille=share_permille)
    for_seconds = step.arguments["for_seconds"]
    lasted = now - began
    if lasted < timedelta(seconds=for_seconds):
        return waits(_as_heard(facts, f"watched for {lasted.total_seconds():.0f} of {for_seconds} s"))
    if unknown := _unanswered(facts) or _untold(rollout, facts, began):
        return waits(unknown)
    too_few = [name for name, judgement in facts.judgements.items() if judgement == "too_few"]
    if too_few and lasted < timedelta(seconds=PATIENCE * for_seconds):
        return waits(f"too few requests yet to judge {some_of(too_few)}")
    if too_few and not (step.arguments.get("go_on_unjudged") or step.evidence.get("accepted")):
        says = f"too few requests to judge {some_of(too_few)}; resume goes on without"
        return Verdict("paused", says, evidence={"asked": True})
    said = f"went on without {some_of(too_few)}: too few requests" if too_few else "every condition held"
    return done(_as_heard(facts, said if share_permille else "both sides take what the other cannot"))


def _watched_anew(now: datetime) -> Verdict:
    return waits("nobody looked for a while: it is watched anew", evidence=since_now(now))


def _unanswered(facts: Facts) -> str:
    """Which conditions nobody can tell the state of now, in words: such a moment is none to go on at."""
    names = [name for name, judgement in facts.judgements.items() if judgement == "unanswered"]
    return f"no answer to {some_of(names)}" if names else ""


def _untold(rollout: RolloutView, facts: Facts, began: datetime) -> str:
    """Who serves of the new side, and whose agent has not told of it since the step holds: it may have vanished."""
    new = [facts.engines[name] for name in rollout.new_engines if name in facts.engines]
    serve = [engine for engine in new if engine.has_agent and not engine.held_out_by]
    names = [engine.name for engine in serve if engine.reported_at is None or engine.reported_at <= began]
    return f"waits for agents to tell of {some_of(names)}" if names else ""


def _changed_by_others(rollout: RolloutView, facts: Facts) -> list[str]:
    """Routes that do not say of the two pools what the rollout left, in words."""
    pair = Pair(rollout.pool, rollout.new_pool)
    return [
        f"route {name!r}"
        for name, route in facts.routes.items()
        if name not in rollout.base or (name in rollout.left and left_as(route, pair) != rollout.left[name])
    ]


def keep_warm(rollout: RolloutView, step: StepView, facts: Facts, now: datetime) -> Verdict:
    """The old side stays as it is, so that the way back is short."""
    if changed := _changed_by_others(rollout, facts):
        return Verdict("paused", f"somebody changed {some_of(changed)} meanwhile; resume takes it as it is now")
    began = since(step)
    if began is not None and facts.unwatched:
        return _watched_anew(now)
    if began is None:
        return waits("the old side is kept warm", evidence=since_now(now))
    seconds = step.arguments["seconds"]
    lasted = now - began
    if lasted < timedelta(seconds=seconds):
        return waits(f"the old side is kept warm, {lasted.total_seconds():.0f} of {seconds} s")
    if unanswered := _unanswered(facts):
        return waits(unanswered)
    return done()


def retire(rollout: RolloutView, step: StepView, facts: Facts, now: datetime) -> Verdict:
    """The routes forget the old pool; then its engines are drained and put away, as far as their nodes allow it."""
    how = step.arguments["how"]
    old = [facts.engines[name] for name in rollout.engines if name in facts.engines]
    leaves = how == "leave"
    back = [engine.name for engine in old if engine.held_out_by == rollout.holder and leaves]
    # One that something else held out until now.
    out = [engine.name for engine in old if not engine.held_out_by and not leaves]
    moves = Moves(routes_to(rollout, facts, 1000, joined=False), out, back)
    if moves:
        return waits("takes the old side out of the routes", moves=moves)
    if waiting := _applied(facts):
        return waiting
    if leaves:
        return done(_as_heard(facts, "the old side stays, and no route leads to it"))
    if ill := _new_side_fails(rollout, facts):
        return waits(
            f"the new side cannot serve ({ill}), so the old one is not put away; return gives it the traffic back"
        )
    action = RETIRED_BY[how]
    able = [engine for engine in old if {"drain", action} <= engine.allowed]
    drained = by_acts(step, facts, [_drain(engine.name) for engine in able], "drain", now)
    if drained.outcome == "wait":
        return drained
    acts = [NewAct(f"{action}/{engine.name}", engine.name, action) for engine in able]
    put_away = drained if drained.outcome == "failed" else by_acts(step, facts, acts, action, now)
    if put_away.outcome == "wait":
        return put_away
    left = [engine.name for engine in old if engine not in able]
    said = [put_away.said] if put_away.outcome == "failed" else []
    said += (
        [f"no node's policy lets {some_of(left)} be drained and {action}: they stay, out of service"] if left else []
    )
    return done(_as_heard(facts, "; ".join(said) or "the old side is put away"))


def _new_side_fails(rollout: RolloutView, facts: Facts) -> str:
    """Why none of it takes work; empty where one does."""
    new = [facts.engines[name] for name in rollout.new_engines if name in facts.engines]
    if any(engine.takes_work and not engine.held_out_by for engine in new):
        return ""
    return some_of([f"{each.name}: {each.trouble or 'it takes no new work'}" for each in new]) or "none is configured"


def take_back(rollout: RolloutView, step: StepView, facts: Facts, now: datetime) -> Verdict:
    """As before, in one revision; then the new side ends what it has begun."""
    moves = moves_back(rollout, facts)
    if moves:
        return waits("gives everything back to the old side", moves=moves, share_permille=0)
    if waiting := _applied(facts):
        return waiting
    if ending := [each for each in held(rollout, facts) if each.ending_by and not each.silent]:
        return waits(f"waits for the end of {some_of([f'{each.ending_by} of {each.name}' for each in ending])}")
    if rollout.kind == "versioned":
        return done(_as_heard(facts, "the new engines are out of service"))
    if rollout.kind != "red_black":
        if down := [f"{each.name}: {each.trouble}" for each in held(rollout, facts) if not each.up and not each.silent]:
            # A restart that has just ended is told before the look that finds the engine up.
            began = since(step)
            if began is None or now - began < timedelta(seconds=BACK_SECONDS):
                evidence = since_now(now) if began is None else {}
                return waits(f"not ready: {some_of(down)}", evidence=evidence)
        stay = [name for name in rollout.engines if name in facts.engines and facts.engines[name].held_out_by]
        said = f"{some_of(stay)} cannot serve and stays out of service" if stay else "all are in service"
        return done(_as_heard(facts, said))
    new = [facts.engines[name] for name in rollout.new_engines if name in facts.engines]
    able = [engine for engine in new if ("drain" in engine.allowed and not engine.trouble) or _is_drained(engine, step)]
    drained = by_acts(step, facts, [_drain(engine.name) for engine in able], "drain", now)
    return drained if drained.outcome == "wait" else done(_as_heard(facts, drained.said or "as it was before"))


def _is_drained(engine: EngineFacts, step: StepView) -> bool:
    return f"drain/{engine.name}" in step.acts


def _drain(name: str) -> NewAct:
    return NewAct(f"drain/{name}", name, "drain")


RULES: Mapping[str, Rule] = {
    "gate": gate,
    "start": start,
    "check": check,
    "warm_up": warm_up,
    "shift": shift,
    "keep_warm": keep_warm,
    "retire": retire,
    "hold_out": hold_out,
    "drain": drain,
    "sleep": _each("sleep", "sleep", "level"),
    "restart": _each("restart", "restart", "arguments", "limit_seconds"),
    "verify": verify,
    "put_back": put_back,
    "publish": publish,
    "take_back": take_back,
}
