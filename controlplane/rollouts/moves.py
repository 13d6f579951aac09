"""What brings routes and engines to where a rollout wants them, from wherever they are. Pure."""

from __future__ import annotations

from controlplane.rollouts.observed import EngineFacts, Facts, RolloutView
from controlplane.rollouts.sides import NO_ROLE, Pair, in_service, moved, turned, wanted_in_service
from controlplane.rollouts.verdicts import Moves


def moves_to(rollout: RolloutView, facts: Facts, share_permille: int, *, joined: bool) -> Moves:
    """What brings routes and engines of both sides to a share; nothing where all stand so."""
    old = [facts.engines[name] for name in rollout.engines if name in facts.engines]
    new = [facts.engines[name] for name in rollout.new_engines if name in facts.engines]
    out: list[str] = []
    back: list[str] = []
    for side, wanted in zip((old, new), wanted_in_service(len(old), len(new), share_permille), strict=True):
        side_out, side_back = turned(side, in_service(side, wanted, rollout.holder), rollout.holder)
        out, back = out + side_out, back + side_back
    return Moves(routes_to(rollout, facts, share_permille, joined=joined), out, back)


def moves_back(rollout: RolloutView, facts: Facts) -> Moves:
    """What makes all as it was before the rollout, and leaves what people changed since."""
    if rollout.kind == "red_black":
        return moves_to(rollout, facts, 0, joined=False)
    if rollout.kind == "versioned":
        new = [facts.engines[name] for name in rollout.new_engines if name in facts.engines]
        return Moves(hold_out=[engine.name for engine in new if not engine.held_out_by])
    return Moves(put_back=[engine.name for engine in held(rollout, facts) if not engine.trouble])


def routes_to(rollout: RolloutView, facts: Facts, share_permille: int, *, joined: bool) -> dict[str, dict[str, object]]:
    """Routes that somebody led to either pool meanwhile are left alone, but on the way back none may stay behind."""
    pair = Pair(rollout.pool, rollout.new_pool)
    bases = {name: rollout.base.get(name) or (None if share_permille else NO_ROLE) for name in facts.routes}
    wanted = {
        name: moved(route, base, pair, share_permille, joined=joined)
        for name, route in facts.routes.items()
        if (base := bases[name]) is not None
    }
    return {name: fields for name, fields in wanted.items() if fields}


def held(rollout: RolloutView, facts: Facts) -> list[EngineFacts]:
    """Of the engines that were there before, those that the rollout holds out."""
    return [
        engine
        for name in rollout.engines
        if (engine := facts.engines.get(name)) and engine.held_out_by == rollout.holder
    ]
