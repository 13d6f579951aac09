"""What the page of recording rules shows: each rule, and what its last evaluation said."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

from controlplane.telemetry.recording import rules
from controlplane.telemetry.recording.fields import identity
from controlplane.telemetry.settings_rows import RECORDING_INTERVAL_SECONDS
from wire.canonical import Document


class RuleLine(NamedTuple):
    """`series`: how many the last result had. `evaluated_at` is None where no worker has come to it yet."""

    record: str
    labels: list[tuple[str, str]]
    expr: str
    evaluated_at: datetime | None
    took_ms: int | None
    series: int
    last_error: str


class GroupLines(NamedTuple):
    """`failing`: how many of its rules gave nothing the last time."""

    name: str
    interval: str
    lines: list[RuleLine]
    failing: int


def groups(document: Document) -> list[GroupLines]:
    """The groups of a rule file, with what is known of their rules."""
    states = {identity(state["record"], state["labels"]): state for state in rules.states()}
    return list(_groups(document, states))


def _groups(document: Document, states: dict[tuple[object, ...], Document]) -> Iterator[GroupLines]:
    for group in document["groups"]:
        lines = [_line(rule, states) for rule in group["rules"]]
        interval = group.get("interval") or f"{RECORDING_INTERVAL_SECONDS.read()}s"
        yield GroupLines(group["name"], interval, lines, sum(bool(line.last_error) for line in lines))


def _line(rule: Document, states: dict[tuple[object, ...], Document]) -> RuleLine:
    labels: dict[str, str] = rule.get("labels", {})
    state: dict[str, Any] = states.get(identity(rule["record"], labels), {})
    at = state.get("evaluated_at")
    return RuleLine(
        record=rule["record"],
        labels=sorted(labels.items()),
        expr=rule["expr"],
        evaluated_at=at and datetime.fromisoformat(at),
        took_ms=state.get("took_ms"),
        series=state.get("series", 0),
        last_error=state.get("last_error") or "",
    )
