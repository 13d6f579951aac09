"""What a rollout does next. Pure: rows and what is seen of the fleet in, one decision out.

A decision is carried out in one unit of work, together with the state that it leads to, and says what should be so
instead of what to do: taken again after a kill, it finds what was done already and goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from controlplane.core.nouns import some_of
from controlplane.rollouts.moves import moves_back
from controlplane.rollouts.observed import Facts, RolloutView, StepView
from controlplane.rollouts.rules import RULES
from controlplane.rollouts.verdicts import Moves, NewAct, Verdict

UNANSWERED_LOOKS_MAX = 3
# Steps that are watched: traffic is on the new side, and the old one is there to take it back.
WATCHED = ("shift", "keep_warm")
TAKE_BACK, RETIRE = "take_back", "retire"


@dataclass(frozen=True)
class StepChange:
    """What becomes of a step. `evidence` is added to what it has."""

    index: int
    state: str
    said: str = ""
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Decision:
    """`state` and `said`: those of the rollout. `steps`: in this order. `takes_back`: the step of that name is added.

    `is_write`: it changes more than words, and so needs a unit of work.
    """

    state: str
    said: str = ""
    steps: Sequence[StepChange] = ()
    moves: Moves = field(default_factory=Moves)
    acts: Sequence[NewAct] = ()
    share_permille: int | None = None
    publishes: bool = False
    takes_back: bool = False
    unanswered_looks: int = 0
    is_write: bool = True


def decide(rollout: RolloutView, facts: Facts, now: datetime) -> Decision:
    """The next thing to do, which may be to wait."""
    if facts.deaf:
        said = "no agent and no gateway is heard of, so it waits"
        return Decision(rollout.state, said, is_write=False, unanswered_looks=rollout.unanswered_looks)
    looks = rollout.unanswered_looks + 1 if "unanswered" in facts.judgements.values() else 0
    if rollout.state != "returning" and (why := hazard(rollout, facts, looks)):
        if neither := _nobody_serves(rollout.engines, facts):
            return Decision(rollout.state, f"{why}; {neither}, so it stays", is_write=False, unanswered_looks=looks)
        return taken_back(rollout, facts, why)
    if rollout.state == "paused":
        return Decision("paused", is_write=False, unanswered_looks=looks)
    step = rollout.current
    if step is None:
        return Decision("returned") if rollout.state == "returning" else Decision("done", "every step is done")
    if step.state == "waiting":
        begun = StepChange(step.index, "running")
        return Decision(rollout.state, f"{step.kind} begins", [begun], unanswered_looks=looks)
    verdict = RULES[step.kind](rollout, step, facts, now)
    return replace(_by(rollout, step, facts, verdict), unanswered_looks=looks)


def hazard(rollout: RolloutView, facts: Facts, unanswered_looks: int = 0) -> str:
    """Why all must go back to the old side at once; empty where nothing says so."""
    step = rollout.current
    if rollout.kind != "red_black" or step is None or step.kind not in WATCHED:
        return ""
    if step.state == "waiting" and not rollout.share_permille:
        return ""
    if lost := [name for name in rollout.new_engines if name not in facts.engines]:
        return f"{some_of(lost)} is not configured any more"
    if facts.refusing:
        return f"{some_of(list(facts.refusing))} refuses the configuration"
    if rollout.share_permille:
        new = [facts.engines[name] for name in rollout.new_engines]
        dead = [f"{each.name}: {each.trouble}" for each in new if not each.held_out_by and each.trouble]
        if dead:
            return f"the new side lost {some_of(dead)}"
        if not any(each.takes_work and not each.held_out_by for each in new):
            return "no engine of the new side takes work any more"
    broken = [name for name, judgement in facts.judgements.items() if judgement == "broken"]
    if broken:
        return f"not healthy: {some_of(broken)}"
    if unanswered_looks >= UNANSWERED_LOOKS_MAX:
        unanswered = [name for name, judgement in facts.judgements.items() if judgement == "unanswered"]
        return f"{unanswered_looks} times in a row there was no answer to {some_of(unanswered)}"
    return ""


def _nobody_serves(engines: Sequence[str], facts: Facts) -> str:
    """Why nothing can go back there; so it is while no agent is heard of at all, which says little of engines."""
    there = [facts.engines[name] for name in engines if name in facts.engines]
    if any(not engine.trouble for engine in there):
        return ""
    troubles = [f"{engine.name}: {engine.trouble}" for engine in there]
    return f"the old side cannot serve either ({some_of(troubles)})" if troubles else "the old side has no engine"


def taken_back(rollout: RolloutView, facts: Facts, why: str) -> Decision:
    """Everything as before, at once: in the same revision as the decision itself."""
    steps = [
        StepChange(step.index, "failed", why) if step.state == "running" else StepChange(step.index, "skipped")
        for step in rollout.steps
        if step.state in ("waiting", "running")
    ]
    moves = moves_back(rollout, facts)
    return Decision("returning", why, steps, moves, share_permille=0, takes_back=True)


def refused(rollout: RolloutView, facts: Facts, why: str) -> Decision:
    """What was decided could not be written: the rollout goes back where it can, and stops where it cannot."""
    step = rollout.current
    if rollout.state == "returning" or step is None or step.kind == RETIRE:
        # All traffic is where it belongs; it is tried again at each look.
        return Decision(rollout.state, f"cannot be written: {why}", is_write=False)
    return _stopped(rollout, step, facts, why)


def without_moves(decision: Decision) -> Decision:
    """The same, with nothing written to the fleet: a rollout that is returning tries that again at each look."""
    return replace(decision, moves=Moves(), share_permille=None)


def _by(rollout: RolloutView, step: StepView, facts: Facts, verdict: Verdict) -> Decision:
    if verdict.outcome == "failed":
        return _stopped(rollout, step, facts, verdict.said)
    if verdict.outcome == "paused":
        return Decision("paused", verdict.said, [StepChange(step.index, "running", verdict.said, verdict.evidence)])
    state = "running" if verdict.outcome == "wait" else "done"
    evidence = {key: value for key, value in verdict.evidence.items() if step.evidence.get(key) != value}
    shares = verdict.share_permille if verdict.share_permille != rollout.share_permille else None
    is_write = bool(verdict.moves or verdict.acts or evidence or verdict.publishes) or state == "done"
    return Decision(
        rollout.state,
        # Of one that goes back it stays said why.
        "" if rollout.state == "returning" else verdict.said,
        [StepChange(step.index, state, verdict.said, evidence)],
        verdict.moves,
        verdict.acts,
        shares,
        verdict.publishes,
        is_write=is_write or shares is not None,
    )


def _stopped(rollout: RolloutView, step: StepView, facts: Facts, why: str) -> Decision:
    """A red-black rollout goes back; any other stops where it is, and leaves all engines to come untouched."""
    if rollout.kind == "red_black":
        return taken_back(rollout, facts, why)
    later = [StepChange(each.index, "skipped") for each in rollout.steps if each.index > step.index]
    return Decision("failed", why, [StepChange(step.index, "failed", why), *later])
