"""The configuration as the last write left it, without reading all of it from the database.

What the newest revision in this process holds is taken from memory, and only what was written since from the database.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Any, NamedTuple

from controlplane.configs.checks import contents, load
from controlplane.configs.heads import KEPT_HEADS, Heads
from controlplane.configs.history import Damaged, Stored
from controlplane.configs.hub import heads
from controlplane.configs.models import Fragment, Revision
from controlplane.configs.references import EntryKey
from controlplane.core.sealed import unsealed
from wire.canonical import Document


class Current(NamedTuple):
    """A base, section by section, and the entries in which it differs by now; None: removed.

    What a revision did not change is the same object in the base as in that of the one before.
    """

    base: Callable[[str], Mapping[str, Document]]
    changes: Mapping[EntryKey, Document | None]

    def section(self, name: str) -> Mapping[str, Document]:
        """Key → content; the base's own object where nothing in it changed."""
        changed = self.changed(name)
        if not changed:
            return self.base(name)
        merged = {**self.base(name), **changed}
        return {key: content for key, content in merged.items() if content is not None}

    def changed(self, name: str) -> dict[str, Document | None]:
        """The entries of one section in which it differs."""
        return {key: content for (section, key), content in self.changes.items() if section == name}

    def but(self, changes: Mapping[EntryKey, Document | None]) -> Current:
        """The same with other entries."""
        return Current(self.base, {**self.changes, **changes})


# What a process without a hub has read: it is looked at by writes alone, and says nothing of damage, which others mend.
_own = Heads(unsealed)


def current(sections: Collection[str]) -> Current:
    """These sections of it, at least. All of them are read only where the newest revision is damaged."""
    # Before the revisions: what is published in between is then seen in both, and not in neither.
    dirty = Fragment.objects.filter(dirty=True, section__in=sections).values_list("section", "key", "content")
    changes: dict[EntryKey, Document | None] = {(section, key): content for section, key, content in dirty}
    base = _base(heads) or _own_base()
    if base is None:
        return Current(cache(lambda section: contents(Fragment.objects.filter(section=section))), {})
    missing = {entry for entry in base.later if entry[0] in sections} - changes.keys()
    if missing:
        changes.update(dict.fromkeys(missing) | load(missing))
    return Current(lambda section: base.stored.content.get(section, {}), changes)


class _Base(NamedTuple):
    """A revision in memory, and the entries that later ones changed."""

    stored: Stored
    later: set[EntryKey]


def _base(known: Heads) -> _Base | None:
    stored = known.stored()
    later = None if stored is None else _changed_after(stored)
    return None if stored is None or later is None else _Base(stored, later)


def _own_base() -> _Base | None:
    """For a process in which no hub follows the revisions, as a worker or a command of the shell."""
    try:
        _own.refresh()
    except Damaged:
        return None
    return _base(_own)


def _changed_after(stored: Stored) -> set[EntryKey] | None:
    """What revisions after this one changed.

    None where it is not of this database, too many came after it, or one of those is damaged, which others mend.
    """
    if Revision.objects.order_by("-number").values_list("number", "hash").first() == (stored.number, stored.hash):
        return set()
    if not Revision.objects.filter(number=stored.number, hash=stored.hash).exists():
        return None
    later = Revision.objects.filter(number__gt=stored.number).order_by("number").values_list("patch", flat=True)
    patches: list[Any] = list(later[: KEPT_HEADS + 1])
    if len(patches) > KEPT_HEADS or not all(isinstance(patch, dict) for patch in patches):
        return None
    if not all(isinstance(entries, dict) for patch in patches for entries in patch.values()):
        return None
    return {(section, key) for patch in patches for section, entries in patch.items() for key in entries}
