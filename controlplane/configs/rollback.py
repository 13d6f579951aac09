"""Going back: a new revision whose restorable sections are those of an old one.

Keys, engines, cordons, breaker overrides and temporary limits stay as they are: a rollback never revives a blocked key,
lifts a cordon, lets work back to what someone has just forced open, or ends what a tenant was given for an hour.
"""

from __future__ import annotations

from controlplane.configs.checks import contents
from controlplane.configs.edits import Entries
from controlplane.configs.history import content_at
from controlplane.configs.models import Fragment
from controlplane.configs.ordering import in_order
from controlplane.configs.publisher import ROLLBACK_NOUN
from controlplane.configs.references import EntryKey
from controlplane.configs.removals import RULE, keys_in_words, keys_of_tenants
from controlplane.configs.step import compile_touched
from controlplane.core.changes import Section, UnitOfWork, sections
from controlplane.core.errors import Conflict
from controlplane.core.nouns import some_of
from wire.canonical import Document
from wire.problems import Problem, pointer


def roll_back(unit: UnitOfWork, number: int) -> Document:
    """Make the rows compile into revision `number` again, through the nouns' own services; answers what it did.

    Raises NotFound, or Refused where a service refuses or the result is not the same.
    """
    wanted = content_at(number).content
    differing = {section.name: _differing(section, wanted.get(section.name, {})) for section in _restorable()}
    unit.warnings += _keys_that_go(differing)
    for section, key, content in in_order(differing):
        if section.restore is not None:
            section.restore(unit, key, content)
    compile_touched(unit)
    _verify(unit, number, wanted)
    # Compiled and checked; a second time would hold the lock for longer.
    unit.touched.clear()
    restored = sum(map(len, differing.values()))
    if restored:
        unit.record(ROLLBACK_NOUN, str(number), None, {"revision": number, "entries": restored})
    return {"revision": number, "entries": restored}


def restores(patch: Document) -> bool:
    """Whether going back takes back any of what a revision's patch changed."""
    return any(
        section.restore is not None and section.is_edit(entry)
        for name, section in sections.items()
        for entry in patch.get(name, {}).values()
    )


def _keys_that_go(differing: Entries) -> list[Problem]:
    """Warnings of keys that are deleted with their tenants: no later rollback brings a key back."""
    removed = [name for name, content in differing.get("tenants", {}).items() if content is None]
    keys = keys_of_tenants() if removed else {}
    return [
        Problem(pointer("/tenants", name), RULE, f"deleted with it: {keys_in_words(keys[name])}, for good")
        for name in removed
        if name in keys
    ]


def _restorable() -> list[Section]:
    return [section for section in sections.values() if section.restore is not None]


def _differing(section: Section, wanted: Document) -> dict[str, Document | None]:
    """Key → what is wanted, of the entries that are not so now."""
    current = contents(Fragment.objects.filter(section=section.name))
    return {
        key: wanted.get(key)
        for key in sorted(current.keys() | wanted.keys())
        if _configured(section, current.get(key)) != _configured(section, wanted.get(key))
    }


def _configured(section: Section, content: Document | None) -> Document | None:
    """An entry without what is state in it."""
    return content and {field: value for field, value in content.items() if field not in section.state}


def _verify(unit: UnitOfWork, number: int, wanted: Document) -> None:
    """Every restorable entry that was touched compiles to what it was; what was not touched was the same already."""
    touched: dict[str, set[str]] = {}
    for section, key in unit.touched:
        touched.setdefault(section, set()).add(key)
    wrong: list[EntryKey] = [
        (section, key)
        for section, keys in touched.items()
        if sections[section].restore is not None
        for key in _differing(sections[section], wanted.get(section, {}))
        if key in keys
    ]
    if wrong:
        problems = [
            Problem(pointer(pointer("/", section), key), "rollback", f"is not as it was in revision {number}")
            for section, key in wrong
        ]
        names = some_of([f"{section}/{key}" for section, key in wrong])
        raise Conflict(f"revision {number} cannot be restored exactly: {names}", problems, code="rollback")
