"""The last part of every write: compile what it touched, check it, and leave it for the publisher."""

from __future__ import annotations

from collections.abc import Iterable

from django.db import transaction

from controlplane.configs import wakeup
from controlplane.configs.checks import idle_pools, problems_of
from controlplane.configs.models import Fragment
from controlplane.configs.oversubscription import warnings_of
from controlplane.configs.public import public_form
from controlplane.configs.references import EntryKey, Transition, keys_by_section
from controlplane.core.changes import UnitOfWork, sections
from controlplane.core.fields import refuse_if
from wire.canonical import Document, NotCanonical, check_canonical, diff_patch
from wire.problems import Problem, pointer


def compile_touched(unit: UnitOfWork) -> None:
    """Compile, store and check the touched entries; `unit.patch` is then what they change. Raises Refused.

    The unit holds the configuration's lock since it opened.
    """
    if not unit.touched:
        return
    compiled = _compiled(unit.touched)
    refuse_if(_uncanonical(compiled))
    changed = _store(compiled)
    if not changed:
        return
    unit.patch = public_form(_patch(changed))
    refuse_if(problems_of(changed))
    unit.warnings += idle_pools(changed) + warnings_of(changed)
    transaction.on_commit(wakeup.written)


def touch_everything(unit: UnitOfWork) -> None:
    """Touch all entries there are, and those left of rows that are gone: for a first start, and after an upgrade."""
    for name, section in sections.items():
        for key in section.keys():  # noqa: SIM118 - a function of the section, which is no dict
            unit.touch(name, key)
    for section_name, key in Fragment.objects.filter(section__in=sections).values_list("section", "key"):
        unit.touch(section_name, key)


def _compiled(entries: Iterable[EntryKey]) -> dict[EntryKey, Document | None]:
    """What each entry is now, in the order given; None: it does not exist."""
    found: dict[EntryKey, Document | None] = dict.fromkeys(entries)
    for name, keys in keys_by_section(found).items():
        section = sections[name]
        if section.compile_many is not None:
            found.update({(name, key): content for key, content in section.compile_many(keys).items()})
        else:
            found.update({(name, key): section.compile(key) for key in keys})
    return found


def _uncanonical(compiled: dict[EntryKey, Document | None]) -> list[Problem]:
    problems = []
    for (section, key), content in compiled.items():
        try:
            check_canonical({key: content} if content is not None else {}, pointer("/", section))
        except NotCanonical as error:
            problems.append(Problem(error.path, "canonical", error.rule))
    return problems


def _store(compiled: dict[EntryKey, Document | None]) -> dict[EntryKey, Transition]:
    """Write what differs from the stored fragments; answers what each was and is."""
    rows = {(row.section, row.key): row for row in _rows(compiled)}
    changed: dict[EntryKey, Transition] = {}
    stored, removed = [], []
    for (section, key), content in compiled.items():
        row = rows.get((section, key))
        before = row.content if row else None
        if before == content:
            continue
        changed[section, key] = (before, content)
        if content is not None:
            stored.append(Fragment(section=section, key=key, content=content, dirty=True))
        elif row is not None:
            removed.append(row.pk)
    Fragment.objects.bulk_create(
        stored,
        batch_size=500,
        update_conflicts=True,
        unique_fields=["section", "key"],
        update_fields=["content", "dirty"],
    )
    # Not in the bulk above, which would write JSON's null instead of SQL's.
    Fragment.objects.filter(pk__in=removed).update(content=None, dirty=True)
    return changed


def _rows(entries: Iterable[EntryKey]) -> Iterable[Fragment]:
    for section, names in keys_by_section(entries).items():
        yield from Fragment.objects.select_for_update().filter(section=section, key__in=names)


def _patch(changed: dict[EntryKey, Transition]) -> Document:
    """The merge patch of the whole configuration that the changed entries make."""
    patch: Document = {}
    for (section, key), (before, after) in changed.items():
        entry = after if before is None or after is None else diff_patch(before, after)
        patch.setdefault(section, {})[key] = entry
    return patch
