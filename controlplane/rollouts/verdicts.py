"""What the rule of a step says: it waits, is done or has failed, and what is to be done meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from controlplane.core.fields import epoch_ms, from_epoch_ms
from controlplane.core.nouns import some_of
from controlplane.rollouts.observed import ActFacts, EngineFacts, Facts, StepView
from wire.canonical import Document

# How long a step that has no limit of its own waits for a node that has vanished.
VANISHED_SECONDS = 300
# More are asked for in further writes: nobody else can write to the configuration meanwhile.
ASKED_AT_ONCE = 64
_FORGOTTEN = ActFacts("unknown", "nobody knows of the act any more")


@dataclass(frozen=True)
class NewAct:
    """Asked of an engine's agent; `key` names it among those of the step."""

    key: str
    engine: str
    action: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Moves:
    """What is written to the fleet, in one revision. `routes`: the fields of each that change."""

    routes: Mapping[str, Document] = field(default_factory=dict)
    hold_out: Sequence[str] = ()
    put_back: Sequence[str] = ()

    def __bool__(self) -> bool:
        return bool(self.routes or self.hold_out or self.put_back)


@dataclass(frozen=True)
class Verdict:
    """`evidence` is added to that of the step. `paused`: a person must look first."""

    outcome: Literal["wait", "done", "failed", "paused"]
    said: str = ""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    acts: Sequence[NewAct] = ()
    moves: Moves = Moves()
    share_permille: int | None = None
    publishes: bool = False


def waits(said: str, **rest: Any) -> Verdict:
    return Verdict("wait", said, **rest)


def done(said: str = "", **rest: Any) -> Verdict:
    return Verdict("done", said, **rest)


def failed(said: str) -> Verdict:
    return Verdict("failed", said)


def is_over(step: StepView, limit_seconds: int, now: datetime) -> bool:
    return step.begun_at is not None and now - step.begun_at >= timedelta(seconds=limit_seconds)


def until(step: StepView, now: datetime, missing: Sequence[str], what: str) -> Verdict:
    """Wait for what is missing, up to the step's limit."""
    said = f"{what}: {some_of(list(missing))}"
    limit_seconds = step.arguments["limit_seconds"]
    return failed(f"after {limit_seconds} s {said}") if is_over(step, limit_seconds, now) else waits(said)


def since(step: StepView) -> datetime | None:
    """When the step's change began to hold at every gateway."""
    at_ms = step.evidence.get("since_ms")
    return None if at_ms is None else from_epoch_ms(at_ms)


def since_now(now: datetime) -> Document:
    return {"since_ms": epoch_ms(now)}


def engines_of(step: StepView, facts: Facts) -> list[EngineFacts]:
    return [facts.engines[name] for name in step.arguments["engines"] if name in facts.engines]


def gone(names: Iterable[str], facts: Facts) -> list[str]:
    return [name for name in names if name not in facts.engines]


def by_acts(step: StepView, facts: Facts, wanted: Sequence[NewAct], what: str, now: datetime) -> Verdict:
    """Ask for acts, one after the other of each engine, and wait for their ends. One that does not end well fails the
    step, once those that were asked have ended; one whose node has vanished, when the step's limit is over.
    """
    asked = step.acts
    ends = [(act.engine, facts.acts.get(asked[act.key], _FORGOTTEN)) for act in wanted if act.key in asked]
    still = {engine for engine, end in ends if end.is_open}
    bad = [f"{engine} {end.state}: {end.said}" for engine, end in ends if not end.is_open and end.state != "done"]
    following: dict[str, NewAct] = {}
    for act in wanted:
        if act.key not in asked and act.engine not in still:
            following.setdefault(act.engine, act)
    if following and not bad:
        now_asked = list(following.values())[:ASKED_AT_ONCE]
        return waits(f"asks to {what}: {some_of([act.engine for act in now_asked])}", acts=now_asked)
    vanished = [name for name in sorted(still) if name not in facts.engines or facts.engines[name].silent]
    if vanished and is_over(step, step.arguments.get("limit_seconds", VANISHED_SECONDS), now):
        return failed(f"could not {what}: the node of {some_of(vanished)} is not heard of")
    if still:
        return waits(f"waits to {what}: {some_of(sorted(still))}")
    if bad:
        return failed(f"could not {what}: {some_of(bad)}")
    last_ms = max((epoch_ms(end.ended_at) for _, end in ends if end.ended_at is not None), default=0)
    return done(some_of([f"{engine}: {end.said}" for engine, end in ends if end.said]), evidence={"ended_ms": last_ms})
