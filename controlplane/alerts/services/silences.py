"""The only writer of silences. They are no part of the configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any

from django.utils import timezone
from pydantic import Field

from controlplane.alerts import models as rows
from controlplane.alerts.pipeline.matchers import Matcher
from controlplane.alerts.services import notifying
from controlplane.alerts.services.matching import ChoosingMatchers, warn_of_muted
from controlplane.core import fields as f
from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import Conflict
from controlplane.core.nouns import Noun
from wire.canonical import Document
from wire.problems import Problem

# Longer ones are a rule that nobody wants.
SILENCE_MAX = timedelta(days=366)


class SilenceFields(f.Fields):
    """From `starts_at` (null: now) until `ends_at`."""

    matchers: ChoosingMatchers
    starts_at: f.Moment | None = None
    ends_at: f.Moment
    comment: Annotated[f.Text, Field(min_length=1, max_length=500)]


class SilenceNoun(Noun[rows.Silence]):
    noun = "silence"
    row = rows.Silence
    fields = SilenceFields

    def describe(self, row: rows.Silence) -> Document:
        return {
            "name": row.name,
            "matchers": row.matchers,
            "starts_at": f.iso(row.starts_at),
            "ends_at": f.iso(row.ends_at),
            "owner": row.owner,
            "comment": row.comment,
        }

    def assign(self, row: rows.Silence, values: Document) -> list[Problem]:
        now = timezone.now()
        starts_at = values["starts_at"] or row.starts_at or now
        problems = super().assign(row, {**values, "starts_at": starts_at})
        if row.ends_at <= max(starts_at, now):
            problems.append(Problem("/ends_at", "range", "give a time after its start, and later than now"))
        elif row.ends_at - starts_at > SILENCE_MAX:
            problems.append(Problem("/ends_at", "range", f"a silence may last {SILENCE_MAX.days} days"))
        return problems

    def create(self, unit: UnitOfWork, name: str, fields: Mapping[str, Any]) -> rows.Silence:
        row = self._new(name, fields)
        row.owner = unit.actor.name
        return self._insert(unit, row, name)

    def update(self, unit: UnitOfWork, name: str, fields: Mapping[str, Any]) -> rows.Silence:
        """Extend it, shorten it, or mend it while it lasts. Raises Conflict where it has ended."""
        if self.lock(name).ends_at <= timezone.now():
            raise Conflict("the silence has ended; make a new one", code="ended")
        return super().update(unit, name, fields)

    def touch(self, unit: UnitOfWork, row: rows.Silence, name: str) -> None:
        """Nothing of it is compiled: what fires is looked at anew."""
        warn_of_muted(unit, row.matchers)
        notifying.wake(timezone.now())

    def expire(self, unit: UnitOfWork, name: str, now: datetime) -> rows.Silence:
        """End it now; it stays in the list. One that has ended stays as it is."""
        row = self.lock(name)
        if row.ends_at > now:
            before = self.describe(row)
            row.ends_at = now
            row.starts_at = min(row.starts_at, now)
            self._save(unit, row, name, before)
        return row


SILENCES = SilenceNoun()


def state_of(row: rows.Silence, now: datetime) -> str:
    """`waiting`, `active` or `ended`."""
    if now < row.starts_at:
        return "waiting"
    return "active" if now < row.ends_at else "ended"


def shown(found: Sequence[rows.Silence]) -> list[Document]:
    """The public form with what it is just now."""
    now = timezone.now()
    return [{**SILENCES.describe(row), "state": state_of(row, now)} for row in found]


def prune(before: datetime) -> int:
    """Forget silences that ended before then; answers how many."""
    return rows.Silence.objects.filter(ends_at__lt=before).delete()[0]


def matchers_of(incident: rows.Incident) -> list[str]:
    """What matches the alerts of an incident, and of the next ones of its group."""
    return [str(Matcher(name, "=", value)) for name, value in sorted(incident.labels.items())]
