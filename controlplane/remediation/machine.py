"""What comes next in the repair of a node. Pure: what is seen and the time are passed in.

    held → quarantined → draining → drained → remediating → verifying → remediated

A person's hand goes before: who takes the cordon back, or ends the incident, ends the repair. Whatever fails leaves the
node out of service, and calls for a person. Practice: NVSentinel's states.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from controlplane.core.nouns import some_of
from controlplane.remediation.models import State

# What of an engine's acts each repair needs, and of the node's.
ENGINE_ACTS: Mapping[str, tuple[str, ...]] = {
    "restart_engines": ("drain", "restart"),
    "reset_gpu": ("drain", "stop", "start"),
    "reboot": ("drain", "stop", "start"),
}
NODE_ACTS: Mapping[str, tuple[str, ...]] = {"restart_engines": (), "reset_gpu": ("reset_gpu",), "reboot": ("reboot",)}
# Ollama cannot tell that it has no request left.
UNDRAINABLE = frozenset({"ollama"})
# How long it may take until a repaired node is well, beside the time that it must be.
SETTLES_WITHIN = timedelta(minutes=10)


@dataclass(frozen=True)
class EngineSeen:
    """`up` and `well` as its agent reported after the last act; `held_out_by`: what of the program holds it out."""

    name: str
    kind: str
    up: bool
    well: bool
    allowed: frozenset[str]
    held_out_by: str = ""


@dataclass(frozen=True)
class ActSeen:
    state: str
    said: str = ""
    ended_at: datetime | None = None

    @property
    def is_open(self) -> bool:
        return self.state in ("waiting", "running")


@dataclass(frozen=True)
class Seen:
    """What is so now. `gpu_well`: as reported since the last act ended; True where the fault is no GPU's.

    `heard`: the node's agent reports. `struck_again`: what critical of the same node came since then; `other_faults`:
    of its other GPUs, what still stands; empty: nothing. `policys_cordon`: the cordon is the policy's, so that it may
    be taken back without a person.
    """

    cordoned: bool
    fires: bool
    tripped: str
    engines: tuple[EngineSeen, ...]
    node_allowed: frozenset[str]
    acts: Mapping[str, ActSeen]
    gpu_well: bool
    policys_cordon: bool = True
    heard: bool = True
    struck_again: str = ""
    other_faults: str = ""


@dataclass(frozen=True)
class View:
    """The repair as its row has it. `asked`: acts by what they are for."""

    name: str
    state: State
    action: str
    gpu: str
    state_at: datetime
    asked: Mapping[str, str]
    well_since: datetime | None
    drain_limit: timedelta
    verify: timedelta


@dataclass(frozen=True)
class NewAct:
    """`engine`: empty where it is the node's. `key` names it among those of the repair."""

    key: str
    action: str
    engine: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Decision:
    """`state`: the next one, or the same. `back`: engines are put back, and with `uncordon` the node."""

    state: State
    said: str
    ask: Sequence[NewAct] = ()
    hold_out: Sequence[str] = ()
    back: bool = False
    uncordon: bool = False
    well_since: datetime | None = None


def decide(view: View, seen: Seen, now: datetime) -> Decision:
    if not seen.fires:
        return Decision(State.CANCELLED, "the fault has ended; nothing more is done", back=True)
    if view.state == State.HELD:
        return _held(seen)
    if not seen.cordoned:
        return Decision(State.CANCELLED, "the node was uncordoned: a person's hand goes before", back=True)
    match view.state:
        case State.QUARANTINED:
            return _quarantined(view, seen)
        case State.DRAINING:
            return _draining(view, seen)
        case State.DRAINED:
            return Decision(State.REMEDIATING, "begins", ask=_first_acts(view, seen))
        case State.REMEDIATING:
            return _remediating(view, seen, now)
        case State.VERIFYING:
            return _verifying(view, seen, now)
    raise ValueError(f"a repair that is {view.state} has ended")


def missing_permissions(action: str, engines: Iterable[EngineSeen], node_allowed: Iterable[str]) -> str:
    """What the node's own policy does not allow of all that a repair needs; empty: it may begin."""
    lacking = [name for name in NODE_ACTS[action] if name not in node_allowed]
    for engine in engines:
        needed = [name for name in ENGINE_ACTS[action] if not (name == "drain" and engine.kind in UNDRAINABLE)]
        lacking += [f"{name} of {engine.name}" for name in needed if name not in engine.allowed]
    return f"the node's policy does not allow {some_of(lacking)}" if lacking else ""


def _held(seen: Seen) -> Decision:
    if seen.tripped:
        return Decision(State.HELD, f"the breaker is tripped: {seen.tripped}")
    if not seen.cordoned:
        return Decision(State.HELD, "waits for the node to be cordoned, by a person or by the cordon policy")
    return Decision(State.QUARANTINED, "the node takes no new work")


def _quarantined(view: View, seen: Seen) -> Decision:
    if lacking := missing_permissions(view.action, seen.engines, seen.node_allowed):
        return Decision(State.FAILED, lacking)
    others = [f"{engine.name} ({engine.held_out_by})" for engine in seen.engines if _is_anothers(engine, view)]
    if others:
        return Decision(State.QUARANTINED, f"waits for what holds out {some_of(others)}")
    seconds = int(view.drain_limit.total_seconds())
    # One that hangs, or is down, will never tell that it has no request left.
    drained = [engine for engine in seen.engines if engine.up and engine.well and engine.kind not in UNDRAINABLE]
    ask = [NewAct(f"drain {each.name}", "drain", each.name, {"limit_seconds": seconds}) for each in drained]
    hold_out = [engine.name for engine in seen.engines]
    return Decision(State.DRAINING, f"drains {_named(drained)}", ask=ask, hold_out=hold_out)


def _is_anothers(engine: EngineSeen, view: View) -> bool:
    return engine.held_out_by not in ("", view.name)


def _draining(view: View, seen: Seen) -> Decision:
    acts = {key: act for key, act in seen.acts.items() if key.startswith("drain ")}
    if waiting := [key for key, act in acts.items() if act.is_open]:
        return Decision(State.DRAINING, f"waits: {some_of(waiting)}")
    if bad := _failures(acts):
        return Decision(State.FAILED, f"could not be drained: {bad}")
    return Decision(State.DRAINED, "no request runs on the node")


def _first_acts(view: View, seen: Seen) -> list[NewAct]:
    if view.action == "restart_engines":
        return [NewAct(f"restart {engine.name}", "restart", engine.name) for engine in seen.engines]
    # Also those that are down, as far as is known: whatever holds the GPU must be gone before it is reset.
    return [NewAct(f"stop {engine.name}", "stop", engine.name) for engine in seen.engines]


def _remediating(view: View, seen: Seen, now: datetime) -> Decision:
    if waiting := [key for key, act in seen.acts.items() if act.is_open]:
        return Decision(State.REMEDIATING, f"waits: {some_of(waiting)}")
    if bad := _failures(seen.acts):
        return Decision(State.FAILED, f"could not be repaired: {bad}")
    if view.action == "restart_engines":
        return Decision(State.VERIFYING, "looks whether all is well")
    if "repair" not in view.asked:
        arguments = {"gpu": view.gpu} if view.action == "reset_gpu" else {}
        return Decision(State.REMEDIATING, f"asks to {view.action}", ask=[NewAct("repair", view.action, "", arguments)])
    if not any(key.startswith("start ") for key in view.asked) and seen.engines:
        starts = [NewAct(f"start {engine.name}", "start", engine.name) for engine in seen.engines]
        return Decision(State.REMEDIATING, "starts the engines again", ask=starts)
    return Decision(State.VERIFYING, "looks whether all is well")


def _verifying(view: View, seen: Seen, now: datetime) -> Decision:
    if seen.struck_again:
        return Decision(State.ESCALATED, f"the fault came back: {seen.struck_again}")
    ill = [engine.name for engine in seen.engines if not (engine.up and engine.well)]
    if ill or not seen.gpu_well or not seen.heard:
        gpu, agent = () if seen.gpu_well else (f"GPU {view.gpu}",), () if seen.heard else ("the node's agent",)
        what = some_of([*ill, *gpu, *agent])
        if now - view.state_at > view.verify + SETTLES_WITHIN:
            return Decision(State.FAILED, f"not well after the repair: {what}")
        return Decision(State.VERIFYING, f"waits for {what} to be well")
    since = view.well_since or now
    if now - since < view.verify:
        return Decision(State.VERIFYING, f"well since {since:%H:%M:%S} UTC", well_since=since)
    if seen.other_faults:
        return Decision(State.REMEDIATED, f"well again; the cordon stays for {seen.other_faults}", back=True)
    if not seen.policys_cordon:
        return Decision(State.REMEDIATED, "well again; a person cordoned the node, and may take that back", back=True)
    return Decision(State.REMEDIATED, "well again, and back in service", back=True, uncordon=True)


def _failures(acts: Mapping[str, ActSeen]) -> str:
    return some_of([f"{key} {act.state}: {act.said}" for key, act in acts.items() if act.state != "done"])


def _named(engines: Sequence[EngineSeen]) -> str:
    return some_of([engine.name for engine in engines]) if engines else "nothing: no engine answers"
