"""What somebody asks of a stage: which change, for which targets, watched how."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import Field

from controlplane.configs import staged
from controlplane.configs.bulk import guard_removals
from controlplane.configs.document import FORMAT, document_now
from controlplane.configs.edits import Edit, edit_of
from controlplane.configs.models import Stage
from controlplane.core import fields as f
from controlplane.core.changes import UnitOfWork
from controlplane.core.models import Target, TargetKind
from controlplane.telemetry.expressions import Expression
from wire.canonical import Document, diff_patch, merge_patch
from wire.problems import Problem, pointer

TARGETS_MAX = 1000
LASTS_MIN_SECONDS, LASTS_MAX_SECONDS = 10, 7 * 86_400
TargetName = Annotated[str, Field(pattern=r"^(gateway|node)/[a-z0-9][a-z0-9._-]{0,62}$")]


class WatchFields(f.Fields):
    """Looked at every HEADWORKS_STAGE_LOOK_SECONDS: healthy while the query has a result in which no value is NaN, nor
    0 unless a comparison let it through. What is not healthy is taken back at once, and so is what could not be asked
    three times in a row.
    """

    expression: Expression
    for_seconds: Annotated[int, Field(ge=1, le=LASTS_MAX_SECONDS)]


class StageFields(f.Fields):
    """The change is a `document`, as PUT /config takes it, or the RFC 7396 `patch` of the one that is exported.

    It goes to `targets` (kind/name), or to the `first` so many gateways by name. `then`: whether it is promoted once
    it was healthy `for_seconds`, or waits for a person. It is taken back when it expires.
    """

    document: dict[str, Any] | None = None
    patch: dict[str, Any] | None = None
    targets: Annotated[list[TargetName], Field(min_length=1, max_length=TARGETS_MAX)] | None = None
    first: Annotated[int, Field(ge=1, le=TARGETS_MAX)] | None = None
    watch: WatchFields | None = None
    then: Literal["promote", "wait"] = "wait"
    expires_in_seconds: Annotated[int, Field(ge=LASTS_MIN_SECONDS, le=LASTS_MAX_SECONDS)] = 3600


def begin(unit: UnitOfWork, fields: Mapping[str, Any], *, allow_removals: bool) -> Stage:
    """Begin the stage that is asked for. Raises Refused with every problem, or Conflict."""
    asked = f.read(StageFields, fields)
    problems = _either("document", asked.document, "patch", asked.patch)
    problems += _either("targets", asked.targets, "first", asked.first)
    if asked.then == "promote" and asked.watch is None:
        problems.append(Problem("/then", "watch", "without `watch` nothing says when; give one, or `then: wait`"))
    if asked.watch is not None and asked.watch.for_seconds >= asked.expires_in_seconds:
        message = f"the stage expires after {asked.expires_in_seconds} s, before that; give less, or more there"
        problems.append(Problem("/watch/for_seconds", "range", message))
    f.refuse_if(problems)
    targets = _targets(asked)
    edit = _edit(asked)
    guard_removals(unit, edit, allow_removals)
    watch = {
        "expression": asked.watch.expression if asked.watch else "",
        "for_seconds": asked.watch.for_seconds if asked.watch else 0,
        "promotes": asked.then == "promote",
    }
    return staged.begin(unit, _patch_of(edit), targets, timedelta(seconds=asked.expires_in_seconds), watch)


def _either(one: str, first: object, other: str, second: object) -> list[Problem]:
    if (first is None) != (second is None):
        return []
    return [Problem(f"/{one}", "one_of", f"give either `{one}` or `{other}`")]


def _targets(asked: StageFields) -> list[str]:
    known = Target.objects.filter(revoked_at=None).order_by("kind", "name")
    if asked.targets is None:
        gateways = list(known.filter(kind=TargetKind.GATEWAY).values_list("name", flat=True)[: asked.first])
        if not gateways:
            f.refuse_if([Problem("/first", "reference", "no gateway has joined yet")])
        return [f"{TargetKind.GATEWAY.value}/{name}" for name in gateways]
    there = {f"{kind}/{name}" for kind, name in known.values_list("kind", "name")}
    f.refuse_if(
        [
            Problem(pointer("/targets", target), "reference", f"there is no target {target!r}, or it is revoked")
            for target in asked.targets
            if target not in there
        ]
    )
    return f.distinct(asked.targets)


def _edit(asked: StageFields) -> Edit:
    before = document_now()
    if asked.document is not None:
        return edit_of(before, asked.document)
    patch = asked.patch or {}
    f.refuse_if(
        [
            Problem(pointer("/patch", section), "type", "give a map of names, null for each that is to go")
            for section, entries in patch.items()
            if section != "format" and not isinstance(entries, dict)
        ]
    )
    changed = {section: merge_patch(before.get(section, {}), entries) for section, entries in patch.items()}
    return edit_of(before, {**changed, "format": patch.get("format", FORMAT)})


def _patch_of(edit: Edit) -> Document:
    return {section: diff_patch(edit.before[section], edit.after[section]) for section in edit.entries}
