"""A write as a change that a stage could hold, and what a stage changes, as people read it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from controlplane.configs.checks import load
from controlplane.configs.document import document_now
from controlplane.configs.models import Stage, StageState
from controlplane.configs.public import public_form
from controlplane.core.changes import UnitOfWork, sections
from controlplane.core.errors import Refused
from controlplane.web import differences
from controlplane.web.convergence import lines_of
from controlplane.web.differences import Difference
from wire.canonical import Document, diff_patch, merge_patch

# A change of more entries is published as a whole document; its patch would be too long to read.
ENTRIES_MAX = 200


def document_patch(unit: UnitOfWork) -> Document:
    """What people would write for the same change; empty where part of it is state, which no stage can hold.

    Within the unit's transaction, after what it does and before its end.
    """
    if len(unit.touched) > ENTRIES_MAX:
        return {}
    try:
        return _as_written(unit)
    except Refused:
        # What stood there is not valid any more, and has no form that people could write.
        return {}


def _as_written(unit: UnitOfWork) -> Document:
    before, patch = load(unit.touched), dict[str, Any]()
    for name, key in unit.touched:
        section = sections[name]
        written = section.written
        if written is None:
            return {}
        old, new = before.get((name, key)), section.compile(key)
        if old == new:
            continue
        wanted = None if new is None else written.of_content(new)
        change = None if wanted is None else diff_patch(written.of_content(old) if old is not None else {}, wanted)
        # What differs is state, such as limits for a time. A new entry may take every default.
        if change == {} and old is not None:
            return {}
        patch.setdefault(name, {})[key] = change
    return patch


def of_document_patch(patch: Document) -> list[Difference]:
    """What a patch of the document would change of it as it stands; nothing where it is no such patch."""
    now = document_now()
    try:
        part = {name: dict(now[name]) for name in patch if isinstance(now.get(name), dict)}
        wanted = {name: merge_patch(part[name], patch[name]) for name in part}
    except (AttributeError, TypeError, Refused):
        return []
    return differences.of_patch(diff_patch(part, wanted), diff_patch(wanted, part))


def of_stage(stage: Stage) -> list[Difference]:
    """What its targets get, beside what all others have now."""
    patch = public_form(stage.patch)
    keys = [(section, key) for section, entries in stage.patch.items() for key in entries]
    part: Document = {section: {} for section in stage.patch}
    for (section, key), content in load(keys).items():
        part[section][key] = content
    inverse = public_form(diff_patch(merge_patch(part, stage.patch), part))
    return differences.of_patch(patch, inverse)


def told(stage: Stage) -> dict[str, Any]:
    """What pages show of a stage."""
    is_running = stage.state == StageState.RUNNING
    return {
        "row": stage,
        "running": is_running,
        "look": f"stage_{stage.state}",
        "targets": lines_of(stage.targets) if is_running else [],
        "promotes_at": _promotes_at(stage),
    }


def _promotes_at(stage: Stage) -> datetime | None:
    """When it is given to all by itself, if it stays healthy."""
    if not stage.promotes or stage.healthy_since is None or stage.state != StageState.RUNNING:
        return None
    return datetime.fromtimestamp(stage.healthy_since.timestamp() + stage.for_seconds, stage.healthy_since.tzinfo)
