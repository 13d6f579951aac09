"""In which order many entries are written, so that what others refer to comes first, and goes last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

from controlplane.core.changes import Section, sections

EntryT = TypeVar("EntryT")


def in_order(entries: Mapping[str, Mapping[str, EntryT | None]]) -> Iterator[tuple[Section, str, EntryT | None]]:
    """Section by section: first what is there afterwards, then, the other way round, what is removed (None)."""
    ordered = sorted((sections[name] for name in entries), key=lambda section: section.order)
    for section in ordered:
        for key, entry in entries[section.name].items():
            if entry is not None:
                yield section, key, entry
    for section in reversed(ordered):
        for key, entry in entries[section.name].items():
            if entry is None:
                yield section, key, None
