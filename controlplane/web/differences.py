"""What changed, as lines that a person reads: place, before, after. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from controlplane.configs.publisher import ROLLBACK_NOUN
from controlplane.core.changes import Change


@dataclass(frozen=True)
class Difference:
    """One value that changed. `before` or `after` is None where there is none; `path` is a readable place."""

    path: str
    before: str | None
    after: str | None

    @property
    def action(self) -> str:
        return "add" if self.before is None else "remove" if self.after is None else "change"


def of_patch(patch: dict[str, Any], inverse: dict[str, Any]) -> list[Difference]:
    """The lines of an RFC 7396 patch, given the patch that takes it back. Whole new or removed maps are spelt out."""
    return [Difference(path, shown(before), shown(after)) for path, before, after in _leaves(inverse, patch, "")]


def of_changes(changes: Iterable[Change]) -> list[Difference]:
    """The lines of changed rows, by their public form. Fields that are unset on both sides are left out.

    So is the note that a rollback leaves in the audit: what it does are the other rows.
    """
    return [line for change in changes if change.noun != ROLLBACK_NOUN for line in _of_change(change)]


def digest(changes: Iterable[Change]) -> str:
    """A short name for the values that a set of changes replaces.

    Where they are the same, the same form does the same; where they are not, the person is asked again. What comes
    after is left out, since a new row may hold the moment of its making.
    """
    replaced = [[change.noun, change.key, change.before and _replaced(change)] for change in changes]
    return hashlib.sha256(json.dumps(replaced, sort_keys=True).encode()).hexdigest()[:32]


def _replaced(change: Change) -> dict[str, Any]:
    before, after = change.before or {}, change.after or {}
    return {field: before.get(field) for field in before.keys() | after.keys() if before.get(field) != after.get(field)}


def shown(value: Any) -> str | None:
    """A value as text: names of a set joined, other maps and lists as JSON, None for none."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, dict) and value and all(item is True for item in value.values()):
        return ", ".join(sorted(value))
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return ", ".join(value)
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _of_change(change: Change) -> Iterator[Difference]:
    row = f"{change.noun} {change.key}"
    if change.before is None or change.after is None:
        yield Difference(row, *(None if form is None else change.key for form in (change.before, change.after)))
    before, after = change.before or {}, change.after or {}
    for field in sorted(before.keys() | after.keys()):
        old, new = before.get(field), after.get(field)
        if old != new and field != "name":
            yield Difference(f"{row} › {field}", shown(old), shown(new))


def _leaves(before: Any, after: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """A null in a merge patch, and a key that is not in it, both say: nothing there."""
    sides = [side for side in (before, after) if side is not None]
    if any(side and isinstance(side, dict) for side in sides) and all(isinstance(side, dict) for side in sides):
        old, new = before or {}, after or {}
        for key in sorted(old.keys() | new.keys()):
            yield from _leaves(old.get(key), new.get(key), f"{path} › {key}" if path else key)
    elif path:
        yield path, before, after
