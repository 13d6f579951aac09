"""What is told of an engine in events: the words. Pure."""

from __future__ import annotations

from typing import Literal, NamedTuple

from gpu_agent.engines.condition import ConditionEvent, condition_events
from gpu_agent.events import Severity
from wire.messages import Condition, EngineReport
from wire.snapshot import NodeEngine

# That of `engine_down` follows from what was asked.
_SEVERITIES: dict[ConditionEvent, Severity] = {
    "engine_hung": "critical",
    "engine_paused": "warning",
    "engine_sleeping": "info",
    "engine_up": "info",
}
_AGAIN: dict[Condition, str] = {
    "hung": "works again",
    "paused": "goes on",
    "sleeping": "is awake again",
}


class Told(NamedTuple):
    """An event, less what it is about and when."""

    kind: str
    severity: Severity
    detail: str


def told_of_condition(
    before: Condition | None, engine: NodeEngine, seen: EngineReport, *, asked: Literal["", "restart", "stop"]
) -> list[Told]:
    """The change of condition to the one that a look has found, if it is a change.

    An engine that is down while its restart was `asked` for need not wake anybody; one that was stopped is as it
    should be.
    """
    down: dict[str, Severity] = {"": "critical", "restart": "warning", "stop": "info"}
    severities: dict[ConditionEvent, Severity] = _SEVERITIES | {"engine_down": down[asked]}
    texts: dict[ConditionEvent, str] = {
        "engine_down": f"{_subject(engine, seen.name)} is {seen.condition}: {seen.error}",
        "engine_hung": f"{_subject(engine, seen.name)} is {seen.error}",
        "engine_paused": f"{_subject(engine, seen.name)} is paused: it takes requests and computes nothing",
        "engine_sleeping": f"{_subject(engine, seen.name)} is sleeping: its memory is given back and it serves nothing",
        "engine_up": f"engine {seen.name} ({engine.kind}) {_AGAIN.get(before or 'ok', 'is up again')}",
    }
    return [Told(kind, severities[kind], texts[kind]) for kind in condition_events(before, seen.condition)]


def told_of_overdue_restart(engine: NodeEngine, seen: EngineReport) -> Told:
    overdue = f"{_subject(engine, seen.name)} is {seen.condition} beyond the time of its restart: {seen.error}"
    return Told("engine_down", "critical", overdue)


def told_of_restart(name: str, engine: NodeEngine, *, asked: bool) -> Told:
    why = "as it was asked to" if asked else "and nobody here asked for it"
    return Told("engine_restarted", "info" if asked else "warning", f"{_subject(engine, name)} started again, {why}")


def told_of_failed_probe(name: str, engine: NodeEngine, probe: str, failure: str) -> Told:
    return Told("engine_probe_failed", "warning", f"{_subject(engine, name)} fails the probe {probe}: {failure}")


def told_of_held_probe(name: str, engine: NodeEngine, probe: str) -> Told:
    return Told("engine_probe_ok", "info", f"engine {name} ({engine.kind}) holds the probe {probe} again")


def _subject(engine: NodeEngine, name: str) -> str:
    return f"engine {name} ({engine.kind}, pool {engine.pool})"
