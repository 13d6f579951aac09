"""What a document changes in the configuration. Nothing here reads or writes a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from controlplane.configs.document import FORMAT, gathered, written_sections
from controlplane.core.changes import Written
from controlplane.core.fields import refuse_if
from wire.canonical import Document
from wire.problems import Problem, pointer

_SHOWN_CHARACTERS = 100
# Section → key → an entry as people write it; None: it is removed.
Entries = Mapping[str, Mapping[str, Document | None]]


@dataclass(frozen=True)
class Edit:
    """From one document to another. `entries`: what differs, as it is to be."""

    before: Document
    after: Document
    entries: Entries

    def removed(self, section: str) -> list[str]:
        return [key for key, entry in self.entries.get(section, {}).items() if entry is None]

    def count(self) -> Document:
        """How many entries are created, changed and removed."""
        counts = {"created": 0, "changed": 0, "removed": 0}
        for section, entries in self.entries.items():
            for key, entry in entries.items():
                counts["removed" if entry is None else "changed" if key in self.before[section] else "created"] += 1
        return counts


def edit_of(before: Document, given: Any) -> Edit:
    """A section that is given is whole; one that is not is left alone. Raises Refused with every problem."""
    return edit_to(before, checked_document(given))


def checked_document(given: Any) -> Document:
    """The sections that are given, as people write them. Raises Refused with every problem of their form.

    No row is read for it: of a large document it takes seconds, in which nobody needs to be kept from writing.
    """
    problems = _form_problems(given)
    refuse_if(problems)
    checked = {
        section.name: _checked(section.name, written, given[section.name], problems)
        for section, written in written_sections()
        if section.name in given
    }
    refuse_if(problems)
    return checked


def edit_to(before: Document, checked: Document) -> Edit:
    """From the document as it stands to one that `checked_document` gave."""
    entries = {name: _differing(before[name], wanted) for name, wanted in checked.items()}
    return Edit(before, {**before, **checked}, {name: differing for name, differing in entries.items() if differing})


def _form_problems(given: Any) -> list[Problem]:
    if not isinstance(given, dict):
        return [Problem("/", "type", f"give a map with `format: {FORMAT}` and sections")]
    problems = []
    if given.get("format") != FORMAT:
        problems.append(Problem("/format", "format", f"give `format: {FORMAT}`, which this version reads"))
    names = [section.name for section, _ in written_sections()]
    for name, entries in given.items():
        if name == "format":
            continue
        if name not in names:
            message = f"no such section: {name[:_SHOWN_CHARACTERS]!r}; there are {', '.join(names)}"
            problems.append(Problem(pointer("/", name), "unknown", message))
        elif not isinstance(entries, dict):
            message = "give a map of names; {} removes all entries, and a section that is left out stays as it is"
            problems.append(Problem(pointer("/", name), "type", message))
    return problems


def _checked(section: str, written: Written, given: Document, problems: list[Problem]) -> Document:
    checked: Document = {}
    for key, fields in sorted(given.items()):
        with gathered(problems, pointer(f"/{section}", key)):
            checked[key] = written.check(key, fields)
    return checked


def _differing(before: Document, after: Document) -> dict[str, Document | None]:
    return {key: after.get(key) for key in sorted(before.keys() | after.keys()) if before.get(key) != after.get(key)}
