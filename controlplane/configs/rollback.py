"""Going back: a new revision whose restorable sections are those of an old one.

Keys, engines, cordons and breaker overrides stay as they are: a rollback never revives a blocked key, lifts a cordon or
lets work back to what someone has just forced open.
"""

from __future__ import annotations

from controlplane.configs.checks import contents
from controlplane.configs.history import content_at
from controlplane.configs.models import Fragment
from controlplane.configs.publisher import ROLLBACK_NOUN
from controlplane.configs.references import EntryKey
from controlplane.configs.step import compile_touched
from controlplane.core.changes import Section, UnitOfWork, sections
from controlplane.core.errors import Conflict
from wire.canonical import Document
from wire.problems import Problem, pointer


def roll_back(unit: UnitOfWork, number: int) -> Document:
    """Make the rows compile into revision `number` again, through the nouns' own services; answers what it did.

    Raises NotFound, or Refused where a service refuses or the result is not the same.
    """
    wanted = content_at(number).content
    restorable = sorted((s for s in sections.values() if s.restore is not None), key=lambda s: s.order)
    differing = {section.name: _differing(section.name, wanted.get(section.name, {})) for section in restorable}
    # What others refer to comes first, and goes last.
    for section in restorable:
        for key in differing[section.name]:
            if key in wanted.get(section.name, {}):
                _restore(section, unit, key, wanted[section.name][key])
    for section in reversed(restorable):
        for key in differing[section.name]:
            if key not in wanted.get(section.name, {}):
                _restore(section, unit, key, None)
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
    return any(section.restore is not None for name, section in sections.items() if name in patch)


def _restore(section: Section, unit: UnitOfWork, key: str, content: Document | None) -> None:
    if section.restore is not None:
        section.restore(unit, key, content)


def _differing(section: str, wanted: Document) -> list[str]:
    current = contents(Fragment.objects.filter(section=section))
    return sorted(key for key in current.keys() | wanted.keys() if current.get(key) != wanted.get(key))


def _verify(unit: UnitOfWork, number: int, wanted: Document) -> None:
    """Every restorable entry that was touched compiles to what it was; what was not touched was the same already."""
    touched: dict[str, set[str]] = {}
    for section, key in unit.touched:
        touched.setdefault(section, set()).add(key)
    wrong: list[EntryKey] = [
        (section, key)
        for section, keys in touched.items()
        if sections[section].restore is not None
        for key in _differing(section, wanted.get(section, {}))
        if key in keys
    ]
    if wrong:
        problems = [
            Problem(pointer(pointer("/", section), key), "rollback", f"is not as it was in revision {number}")
            for section, key in wrong
        ]
        names = ", ".join(f"{section}/{key}" for section, key in wrong[:5])
        raise Conflict(f"revision {number} cannot be restored exactly: {names}", problems, code="rollback")
