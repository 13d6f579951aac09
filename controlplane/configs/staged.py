"""Staged publish: a change that some targets get first, on top of what all get.

A stage keeps the change as a patch of the document. It is tried when the stage begins and, as long as it runs, with
every other write, so that it can always be promoted: then it is applied as a document is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from controlplane.configs import wakeup
from controlplane.configs.bulk import write_entries
from controlplane.configs.checks import load
from controlplane.configs.document import gathered
from controlplane.configs.edits import Entries
from controlplane.configs.models import Stage, StageState
from controlplane.configs.public import public_form
from controlplane.configs.references import REFERRERS, EntryKey
from controlplane.configs.stages import describe, get, running
from controlplane.configs.step import compile_touched
from controlplane.core.changes import UnitOfWork, sections
from controlplane.core.errors import Conflict, Refused
from controlplane.core.fields import refuse_if, shown
from controlplane.core.scope import told_of_warnings
from wire.canonical import Document, diff_patch, merge_patch
from wire.problems import Problem, pointer

NOUN, CODE = "stage", "staged"
# Nobody writes these, but what people write names them: who removes one takes it away from the change.
_NAMED = frozenset({"nodes"})


class _Undone(Exception):
    """Leaves a savepoint."""


def begin(
    unit: UnitOfWork, document_patch: Document, targets: list[str], lasts: timedelta, watch: dict[str, Any]
) -> Stage:
    """Let these targets have the change. `watch`: the row's columns of who watches it, and what then.

    Raises Refused where the change could not be applied, or Conflict where a stage runs.
    """
    if (other := running()) is not None:
        raise Conflict(f"stage {other.pk} runs; promote it or take it back first", code=CODE)
    patch = _tried(unit, document_patch)
    if not patch:
        message = "it changes nothing of the configuration; give what some targets shall get first"
        refuse_if([Problem("/document", "no_change", message)])
    now = timezone.now()
    stage = Stage.objects.create(
        change_id=unit.change_id,
        owner=unit.actor.name,
        reason=unit.reason,
        started_at=now,
        expires_at=now + lasts,
        targets=targets,
        document_patch=document_patch,
        patch=patch,
        look_at=now,
        **watch,
    )
    _note(unit, stage, None, patch)
    return stage


def promote(unit: UnitOfWork, stage_id: int, why: str = "promoted by hand") -> Stage:
    """Give the change to all: it is applied, and the stage ends. Raises NotFound, Conflict where it has ended."""
    with _ended(unit, stage_id, StageState.PROMOTED, why) as stage:
        write_entries(unit, _entries(stage.document_patch))
    return stage


def take_back(unit: UnitOfWork, stage_id: int, why: str = "taken back by hand") -> Stage:
    """Give its targets what all others have. Raises NotFound, Conflict where it has ended."""
    with _ended(unit, stage_id, StageState.TAKEN_BACK, why) as stage:
        part = _part(stage.patch)
        unit.patch = public_form(diff_patch(merge_patch(part, stage.patch), part))
        transaction.on_commit(wakeup.written)
    return stage


def refuse_against_stage(unit: UnitOfWork) -> None:
    """A step of every write: an edit of what the stage changes too is refused, and one that would keep it from being
    promoted. What is no edit is never held up.
    """
    if not unit.patch:
        return
    stage = running()
    if stage is None or stage.change_id == unit.change_id:
        return
    is_edit = _is_edit(unit)
    problems = [
        Problem(pointer(pointer("/", section), key), CODE, f"stage {stage.pk} changes this")
        for section, key in _common(unit.patch, stage.patch)
        if is_edit
    ]
    if not problems:
        try:
            _follow(unit, stage)
        except Refused as refused:
            problems = refused.problems or [Problem("/", refused.code, refused.detail)]
    if problems and is_edit:
        raise _cannot_be_promoted(unit, stage, told_of_warnings(unit.actor.tenants, problems))


def _is_edit(unit: UnitOfWork) -> bool:
    """Whether a person changes what people write, or removes what that names.

    An incident's acts (a cordon, an override, a key, a temporary limit) change state, and what the program and its
    targets do by themselves, such as forgetting what expired, is no edit.
    """
    return unit.actor.kind not in ("system", "target") and any(
        sections[name].is_edit(entry) if sections[name].written is not None else entry is None and name in _NAMED
        for name, entries in unit.patch.items()
        for entry in entries.values()
    )


def _cannot_be_promoted(unit: UnitOfWork, stage: Stage, told: list[Problem]) -> Conflict:
    """`told`: what of it the caller may know, which can be nothing."""
    says = f"stage {stage.pk} runs, and could not be promoted any more"
    if told:
        says += f": {shown(told)}"
    limited = unit.actor.tenants is not None
    first = "Ask someone of the whole fleet to end it first" if limited else "Promote it or take it back first"
    return Conflict(f"{says}. {first}", told, code=CODE)


def _common(one: Document, other: Document) -> Iterator[EntryKey]:
    """Entries in which two patches of the configuration change the same fields."""
    for section in one.keys() & other.keys():
        for key in one[section].keys() & other[section].keys():
            mine, theirs = one[section][key], other[section][key]
            if mine is None or theirs is None or mine.keys() & theirs.keys():
                yield section, key


def _follow(unit: UnitOfWork, stage: Stage) -> None:
    """Try the stage on top of a write, and keep what it makes of the configuration now. Raises as applying it does.

    That can be more than it was: a key that is new goes with its tenant, an engine is cordoned with its node.
    """
    in_question = _in_question(stage.document_patch, unit.patch)
    if not in_question:
        return
    patch = _tried(unit, in_question)
    if in_question == stage.document_patch and patch != stage.patch:
        Stage.objects.filter(pk=stage.pk).update(patch=patch)


def _in_question(document_patch: Document, patch: Document) -> Document:
    """The part of a stage that a write with this patch could keep from being promoted.

    Tenants and keys, which are many and are written all the time, are named by nothing but keys and routes. Where none
    goes, neither with the write nor with the stage, the write can only be against what the stage makes of the same
    tenants; that stands on the sections that tenants name.
    """
    written = patch.get("tenants", {})
    removes = None in written.values() or any(None in entries.values() for entries in document_patch.values())
    if removes or patch.keys() - {"tenants", "keys"}:
        return document_patch
    both = {name: change for name, change in document_patch.get("tenants", {}).items() if name in written}
    if not both:
        return {}
    named = {section: entries for section, entries in document_patch.items() if "tenants" in REFERRERS.get(section, ())}
    return {**named, "tenants": both}


def _tried(unit: UnitOfWork, document_patch: Document) -> Document:
    """The patch that applying it now would bring; nothing is kept. Raises as applying does."""
    probe = UnitOfWork(unit.actor, unit.reason, dry_run=True)
    try:
        with transaction.atomic():
            write_entries(probe, _entries(document_patch))
            compile_touched(probe)
            raise _Undone
    except _Undone:
        unit.warnings += [warning for warning in probe.warnings if warning not in unit.warnings]
    return probe.patch


def _entries(document_patch: Document) -> Entries:
    """What the patch makes of the entries that it names, as they stand. Raises Refused with every problem."""
    now = load((section, key) for section, keys in document_patch.items() for key in keys)
    made: dict[str, dict[str, Document | None]] = {}
    problems: list[Problem] = []
    for section, entries in document_patch.items():
        written = sections[section].written
        if written is None:
            continue
        made[section] = {}
        for key, change in entries.items():
            content = now.get((section, key))
            with gathered(problems, pointer(f"/{section}", key)):
                before = None if content is None else written.of_content(content)
                made[section][key] = None if change is None else written.check(key, merge_patch(before or {}, change))
    refuse_if(problems)
    return made


def _part(patch: Document) -> Document:
    """The entries of the configuration that a patch names, as they stand."""
    part: Document = {section: {} for section in patch}
    for (section, key), content in load((section, key) for section, keys in patch.items() for key in keys).items():
        part[section][key] = content
    return part


@contextmanager
def _ended(unit: UnitOfWork, stage_id: int, state: StageState, why: str) -> Iterator[Stage]:
    """Within it the stage does not run any more. Units follow one another, so of two that end it one is told so."""
    stage = Stage.objects.select_for_update().filter(pk=stage_id).first() or get(stage_id)
    if stage.state != StageState.RUNNING:
        how = StageState(stage.state).label.lower()
        raise Conflict(f"stage {stage_id} has ended: {how} ({stage.said})", code="ended")
    before = describe(stage)
    stage.state, stage.said, stage.ended_at = state, why, timezone.now()
    stage.save()
    yield stage
    unit.record(NOUN, str(stage.pk), before, describe(stage))


def _note(unit: UnitOfWork, stage: Stage, before: Document | None, patch: Document) -> None:
    unit.record(NOUN, str(stage.pk), before, describe(stage))
    # What its targets get is published as every change is.
    unit.patch = patch
    transaction.on_commit(wakeup.written)
