"""Who changed, and when, what a lever wrote: that is then theirs, and is not taken back over their heads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from controlplane.core.fields import iso
from controlplane.core.models import AuditEntry
from controlplane.diagnosis.applying import KINDS, at_place, picked, places_of
from wire.canonical import Document
from wire.problems import Problem, pointer

# Kinds of actors that are people, directly or by a script.
PEOPLE = ("user", "token", "shell")


@dataclass(frozen=True)
class Changed:
    """A field that is not as it was left. `by` and `at` are empty where the audit does not say."""

    noun: str
    key: str
    field: str
    left: Any
    now: Any
    by: str = ""
    at: datetime | None = None

    @property
    def problem(self) -> Problem:
        who = f"{self.by} at {iso(self.at)}" if self.by else "somebody"
        message = f"{who} made it {self.now!r}, and the lever had left {self.left!r}"
        return Problem(pointer(pointer(f"/{self.noun}", self.key), self.field), "changed_since", message)

    def described(self) -> Document:
        return {"noun": self.noun, "key": self.key, "field": self.field, "left": self.left, "now": self.now,
                "by": self.by or None, "at": iso(self.at)}  # fmt: skip


def changed(replaced: Sequence[Document], since: datetime) -> list[Changed]:
    """What of the edits is no more as they left it."""
    return [each for edit in replaced for each in _changed(edit, since)]


def _changed(edit: Document, since: datetime) -> Iterator[Changed]:
    noun, key, after = KINDS[edit["noun"]].noun, edit["key"], edit["after"]
    now = noun.known(key)
    if now is None:
        entry = _entries(edit["noun"], key).filter(at__gte=since, after=None).order_by("-id").first()
        yield Changed(edit["noun"], key, "", "as applied", "deleted", *_whose(entry))
        return
    stands = now if edit["create"] else picked(noun.fields, now, after)
    for place in places_of(edit["noun"], after):
        left, here = at_place(after, place), at_place(stands, place)
        if left != here:
            yield Changed(
                edit["noun"], key, ".".join(place), left, here, *_whose(_who(edit["noun"], key, place, since))
            )


def changed_by_people(edits: Sequence[Document], since: datetime) -> AuditEntry | None:
    """The last change of a person since then of any field that the edits would write."""
    found = [
        entry
        for edit in edits
        for place in ([()] if edit["create"] else places_of(edit["noun"], edit["changes"]))
        if (entry := _who(edit["noun"], edit["key"], place, since, people=True)) is not None
    ]
    return max(found, key=lambda entry: entry.pk, default=None)


def _who(noun: str, key: str, place: Sequence[str], since: datetime, *, people: bool = False) -> AuditEntry | None:
    """The last to change what stands at that place. An empty place is the whole row."""
    entries = _entries(noun, key).filter(at__gte=since).order_by("-id")
    if people:
        entries = entries.filter(actor_kind__in=PEOPLE)
    for entry in entries:
        if at_place(entry.before, place) != at_place(entry.after, place):
            return entry
    return None


def _entries(noun: str, key: str) -> QuerySet[AuditEntry]:
    return AuditEntry.objects.filter(noun=KINDS[noun].noun.noun, key=key)


def _whose(entry: AuditEntry | None) -> tuple[str, datetime | None]:
    return ("", None) if entry is None else (entry.actor, entry.at)


def fields_in_words(edits: Sequence[Mapping[str, Any]]) -> str:
    """What the edits write, for a sentence: `queue_cap of chat`."""
    return ", ".join(
        f"{'.'.join(place)} of {edit['key']}" for edit in edits for place in places_of(edit["noun"], edit["changes"])
    )
