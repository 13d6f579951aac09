"""How far a change has come, in the form that pages show. The judgement is that of `configs.convergence`."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, NamedTuple

from django.db.models import Max
from django.http import HttpRequest

from controlplane.configs.convergence import State, convergence, standing_with
from controlplane.configs.models import Revision
from controlplane.core.errors import NotFound
from controlplane.core.models import AuditEntry, TargetKind
from controlplane.core.security import Caller
from controlplane.web.kept import Kept
from controlplane.web.shown import firing as firing_now
from wire.canonical import Document

# Of a thousand targets a person reads those that have not got there; these many of the others are enough.
ROWS_SHOWN = 50
_BY_NEED = (State.REFUSED, State.LOST, State.NEVER, State.PENDING, State.APPLIED)
_standing: Kept[Document] = Kept()


class Count(NamedTuple):
    """How many targets are in a state."""

    state: str
    how_many: int


def standing() -> Document:
    """`configs.convergence`, read once a change for all who ask."""
    return _standing.get("", convergence)


@dataclass(frozen=True)
class TargetLine:
    """One target as a row of a table.

    `lag_ms`: from publishing to its acknowledgement. `staged`: a staged publish gave it a change before the others.
    `turns`: how often it came and went lately, where that is flapping; else None.
    """

    id: int
    name: str
    kind_label: str
    version: str
    state: str
    desired_revision: int | None
    acked_revision: int | None
    lag_ms: int | None
    seen_at: datetime | None
    problems: list[dict[str, str]]
    staged: bool
    turns: int | None
    # Its slice is the same as before, so nothing was sent to it.
    unconcerned: bool = False


@dataclass(frozen=True)
class Progress:
    """Where one change stands. `revision` is None until it is published."""

    phase: Literal["publishing", "no_targets", "running", "applied"]
    revision: int | None
    applied: int
    total: int
    slowest_ms: int | None
    rows: list[TargetLine]
    more: int
    tally: list[Count] = field(default_factory=list)
    # The revision whose content a rollback brought back.
    rollback_to: int | None = None


def change_of(request: HttpRequest) -> uuid.UUID | None:
    """The change that an address names (`?change=…`), if it names one. Raises NotFound for what is no change's name."""
    text = request.GET.get("change")
    if text is None:
        return None
    try:
        return uuid.UUID(text)
    except ValueError as error:
        raise NotFound("there is no such change") from error


def followed(request: HttpRequest, caller: Caller) -> dict[str, Any]:
    """What a page shows of the change that its address names (`change_of`); nothing where it names none."""
    change_id = change_of(request)
    return told_of(caller, change_id) if change_id else {}


def told_of(caller: Caller, change_id: uuid.UUID) -> dict[str, Any]:
    """What a page shows of a change that was just made. The targets that run it are no matter of a tenant's people."""
    return {"change": change_id, "convergence": progress_of(change_id)} if caller.tenants is None else {}


def progress_of(change_id: uuid.UUID) -> Progress:
    """Raises NotFound for a change that was never made."""
    found = AuditEntry.objects.filter(change_id=change_id).aggregate(last=Max("pk"), revision=Max("revision"))
    if found["last"] is None:
        raise NotFound("there is no such change")
    revision = found["revision"]
    if revision is None:
        return Progress("publishing", None, 0, 0, None, [], 0)
    lines = [_since(target, revision) for target in standing()["targets"]]
    applied = sum(line.state == State.APPLIED for line in lines)
    lags = [line.lag_ms for line in lines if line.lag_ms is not None]
    phase: Literal["no_targets", "running", "applied"] = (
        "no_targets" if not lines else "applied" if applied == len(lines) else "running"
    )
    # Those that need a person come first; among the others the slowest.
    lines.sort(key=lambda line: (_is_well(line), line.unconcerned, -(line.lag_ms or 0), line.name))
    return Progress(
        phase,
        revision,
        applied,
        len(lines),
        max(lags, default=None),
        lines[:ROWS_SHOWN],
        max(0, len(lines) - ROWS_SHOWN),
        tally(lines),
        Revision.objects.filter(number=revision).values_list("rollback_to", flat=True).first(),
    )


def _is_well(line: TargetLine) -> bool:
    return line.state == State.APPLIED and line.turns is None


def _since(target: dict[str, Any], revision: int) -> TargetLine:
    """The target's line as it is for a change in `revision`, which need not be the newest."""
    line, state = _line(target), standing_with(target, revision)
    has_it, acked = state is State.APPLIED, target["acked_revision"] or 0
    return replace(
        line,
        state=state,
        lag_ms=line.lag_ms if has_it and acked == revision else None,
        problems=target["problems"] if state is State.REFUSED else [],
        unconcerned=has_it and acked < revision,
    )


def target_lines() -> list[TargetLine]:
    """All targets, by kind and name."""
    return [_line(target) for target in standing()["targets"]]


def lines_of(names: Collection[str]) -> list[TargetLine]:
    """Of these targets, each kind/name, those that are not revoked."""
    wanted = set(names)
    return [_line(each) for each in standing()["targets"] if f"{each['kind']}/{each['name']}" in wanted]


def tally(lines: Iterable[TargetLine]) -> list[Count]:
    """How many stand where, of states that any has: what needs a person first."""
    counts = Counter(line.state for line in lines)
    return [Count(state.value, counts[state.value]) for state in _BY_NEED if counts[state.value]]


def neediest_first(lines: Iterable[TargetLine]) -> list[TargetLine]:
    order = {state.value: place for place, state in enumerate(_BY_NEED)}
    return sorted(lines, key=lambda line: (order[line.state], line.turns is None, line.name))


def _line(target: dict[str, Any]) -> TargetLine:
    return TargetLine(
        id=target["id"],
        name=target["name"],
        kind_label=str(TargetKind(target["kind"]).label),
        version=target["version"],
        state=target["state"],
        desired_revision=target["desired_revision"],
        acked_revision=target["acked_revision"],
        lag_ms=target["lag_ms"],
        seen_at=datetime.fromisoformat(target["seen_at"]) if target["seen_at"] else None,
        problems=target["problems"] if target["state"] == State.REFUSED else [],
        staged=target["staged"],
        turns=target["turns_10m"] if target["flapping"] else None,
    )


def summary() -> dict[str, Any]:
    """What the header and the live stream tell: the newest revision, how many targets run it, what is on fire.

    `look` is how the header shows it: whole (all run it), partial, trouble (some refuse it or are lost).
    `acknowledged` is a sum that grows with every acknowledgement, so that each makes another event. Raises Damaged.
    """
    now = standing()
    targets = now["targets"]
    troubled = any(target["state"] in (State.REFUSED, State.LOST) for target in targets)
    return {
        "revision": now["revision"],
        "applied": now["applied"],
        "targets": len(targets),
        "look": "trouble" if troubled else "whole" if now["applied"] == len(targets) else "partial",
        "firing": firing(),
        "acknowledged": sum(target["acked_revision"] or 0 for target in targets),
    }


def firing() -> int:
    """Incidents that fire now."""
    return firing_now.firing().incidents
