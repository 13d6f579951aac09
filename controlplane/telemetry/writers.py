"""The only writer of metric writers: a Prometheus, Alloy or vmagent that writes its series here with its own token.

They are no part of the configuration. No two of them may write the same series: the matchers of any two ask for
different values of one label.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any

from django.db.models import Q
from django.utils import timezone
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from controlplane.core import fields as f
from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import Conflict, Forbidden, Unauthenticated
from controlplane.core.models import Target
from controlplane.core.nouns import Noun, some_of
from controlplane.core.tokens import new_token, token_hash
from controlplane.telemetry import models as rows
from controlplane.telemetry.expressions import LabelName, LabelValue
from controlplane.telemetry.ownership import (
    OWN_PREFIX,
    RECORDED_COLONS,
    TARGET_LABELS,
    WRITER,
    WriterRules,
    named_in,
)
from controlplane.telemetry.store.writer import Owner
from wire.canonical import Document
from wire.problems import Problem
from wire.write_body import METRIC_NAME, Key

TOKEN_PREFIX = "hww"  # noqa: S105
MATCHERS_MAX = 10
OVERLAP_MAX_SECONDS = 30 * 86_400
# Bodies within this time count as one, so that not each costs a write.
_PUSH_STEP = timedelta(seconds=5)
_NAMES_A_QUERY = 1000


def _no_targets_label(name: str) -> str:
    if name in TARGET_LABELS:
        raise PydanticCustomError("reserved", "this label names targets that have enrolled; give another")
    return name


class MetricWriterFields(f.Fields):
    """`matchers`: labels and values that each of its series carries. `expires_at`: of its token; null: never."""

    matchers: Annotated[
        dict[Annotated[LabelName, AfterValidator(_no_targets_label)], LabelValue],
        Field(min_length=1, max_length=MATCHERS_MAX),
    ]
    blocked: bool = f.default_of(rows.MetricWriter, "blocked")
    expires_at: f.Moment | None = None


class RotateWriterFields(f.Fields):
    """How long the old token goes on working beside the new one, and when that one expires; null: never."""

    overlap_seconds: Annotated[int, Field(ge=0, le=OVERLAP_MAX_SECONDS)]
    expires_at: f.Moment | None = None


class MetricWriterNoun(Noun[rows.MetricWriter]):
    noun = "metric writer"
    row = rows.MetricWriter
    fields = MetricWriterFields

    def describe(self, row: rows.MetricWriter) -> Document:
        return {
            "name": row.name,
            "matchers": row.matchers,
            "blocked": row.blocked,
            "expires_at": f.iso(row.expires_at),
            "token_made_at": f.iso(row.token_made_at),
            "previous_expires_at": f.iso(row.previous_expires_at),
        }

    def show(self, row: rows.MetricWriter) -> Document:
        """With what is observed of it."""
        return {**self.describe(row), "last_pushed_at": f.iso(row.last_pushed_at)}

    def assign(self, row: rows.MetricWriter, values: Document) -> list[Problem]:
        if not row.token_hash:
            _renew(row, timezone.now())
        problems = _overlaps(row, values["matchers"])
        if values["expires_at"] != row.expires_at:
            problems += _past(values["expires_at"], timezone.now())
        return super().assign(row, values) + problems

    def touch(self, unit: UnitOfWork, row: rows.MetricWriter, name: str) -> None:
        """Nothing of it is compiled: no target knows it."""

    def rotate(self, unit: UnitOfWork, name: str, fields: Mapping[str, Any]) -> rows.MetricWriter:
        """A new token, the row's `secret`, in the place of the old one, which ends after the overlap.

        Raises Refused, NotFound, or Conflict where two are good already and shall go on.
        """
        asked, row, now = f.read(RotateWriterFields, fields), self.lock(name), timezone.now()
        f.refuse_if(_past(asked.expires_at, now))
        if asked.overlap_seconds and row.previous_expires_at is not None and row.previous_expires_at > now:
            raise Conflict(
                f"two tokens of metric writer {name!r} are good until {f.iso(row.previous_expires_at)}; rotate after "
                "that, or with `overlap_seconds` 0, which ends both now",
                code="rotated",
            )
        before = self.describe(row)
        end = f.from_epoch_ms(f.epoch_ms(now + timedelta(seconds=asked.overlap_seconds)))
        row.previous_token_hash = row.token_hash if asked.overlap_seconds else None
        row.previous_expires_at = min(end, row.expires_at or end) if asked.overlap_seconds else None
        _renew(row, now)
        row.expires_at = asked.expires_at
        return self._save(unit, row, name, before)


def _renew(row: rows.MetricWriter, now: datetime) -> None:
    row.secret = new_token(TOKEN_PREFIX)
    row.token_hash, row.token_made_at = token_hash(row.secret), now


def _past(moment: datetime | None, now: datetime) -> list[Problem]:
    if moment is None or moment > now:
        return []
    return [Problem("/expires_at", "range", "give a time to come; to end a token now, block or delete the writer")]


def _overlaps(row: rows.MetricWriter, matchers: Mapping[str, str]) -> list[Problem]:
    """Other writers that could write a series which these matchers allow too."""
    others = rows.MetricWriter.objects.exclude(pk=row.pk).order_by("name")
    alike = [
        other.name
        for other in others
        if all(matchers.get(label, value) == value for label, value in other.matchers.items())
    ]
    if not alike:
        return []
    message = f"a series could be this writer's and that of {some_of(alike)}; give a label of theirs another value"
    return [Problem("/matchers", "overlap", message)]


METRIC_WRITERS = MetricWriterNoun()


@dataclass(frozen=True)
class WriterSource:
    """A metric writer. Whose series are of others is looked up for those that a body names alone."""

    owner: Owner
    matchers: Mapping[str, str]

    def rules_for(self, keys: Sequence[Key]) -> WriterRules:
        named = named_in(keys)
        targets = {(label, name) for label in TARGET_LABELS for name in _enrolled(label, named[label])}
        return WriterRules(self.owner, self.matchers, targets, _recorded(named[METRIC_NAME]))

    def describes(self, family: str) -> bool:
        return not family.startswith(OWN_PREFIX)


def source_of(token: str) -> WriterSource:
    """Who writes with this token. Raises Unauthenticated; Forbidden where it is blocked."""
    digest, now = token_hash(token), timezone.now()
    row = rows.MetricWriter.objects.filter(Q(token_hash=digest) | Q(previous_token_hash=digest)).first()
    if row is None:
        raise Unauthenticated("this writer's token is unknown; ask an admin for one of POST /api/v1/metric-writers")
    expires_at = row.expires_at if row.token_hash == digest else row.previous_expires_at
    if expires_at is not None and expires_at <= now:
        raise Unauthenticated(
            f"this token of metric writer {row.name!r} has expired; ask an admin to rotate it", code="expired"
        )
    if row.blocked:
        raise Forbidden(f"metric writer {row.name!r} is blocked; ask an admin to unblock it", code="blocked")
    _note_push(row, now)
    return WriterSource(Owner(WRITER, row.name), row.matchers)


def _enrolled(kind: str, names: Collection[str]) -> list[str]:
    """Those of the names by which targets of a kind have enrolled."""
    # Some could be no name at all, such as one with U+0000, which PostgreSQL cannot look up.
    asked = [name for name in names if f.LIKE_NAME.refusal(name) is None]
    found: list[str] = []
    for start in range(0, len(asked), _NAMES_A_QUERY):
        targets = Target.objects.filter(kind=kind, name__in=asked[start : start + _NAMES_A_QUERY])
        found += targets.values_list("name", flat=True)
    return found


def _recorded(names: Collection[str]) -> frozenset[str]:
    """Those of the names that recording rules give."""
    asked = {name for name in names if name.count(":") >= RECORDED_COLONS}
    if not asked:
        return frozenset()
    recorded = rows.RecordingRule.objects.filter(group__isnull=False).values_list("record", flat=True)
    return frozenset(asked.intersection(recorded))


def _note_push(row: rows.MetricWriter, now: datetime) -> None:
    if row.last_pushed_at is None or now - row.last_pushed_at >= _PUSH_STEP:
        rows.MetricWriter.objects.filter(pk=row.pk).update(last_pushed_at=now)
