"""The diagnosis as people read it: the grid of detectors, findings with their levers, proposals. Public forms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from django.db.models import Prefetch, Q, QuerySet
from django.utils import timezone

from controlplane.core.errors import NotFound
from controlplane.core.fields import iso
from controlplane.core.nouns import PAGE_ROWS, page_of
from controlplane.diagnosis.changed_since import Changed, changed
from controlplane.diagnosis.detector import Detector
from controlplane.diagnosis.detectors.registry import DETECTORS
from controlplane.diagnosis.models import REVERTIBLE_STATES, DetectorState, Finding, FindingState, Proposal
from controlplane.diagnosis.services import rounds
from controlplane.diagnosis.texts import plain, texts_of
from wire.canonical import Document

HISTORY = timedelta(hours=24)
# blind: it could not see. waiting: no round has asked it yet.
State = Literal["found", "clear", "blind", "waiting"]


@dataclass(frozen=True)
class Card:
    """One detector: what it found now (the surest first), and whatever it found within HISTORY (the oldest first)."""

    detector: Detector
    looked: DetectorState | None
    found: list[Finding]
    lately: list[Finding]

    @property
    def state(self) -> State:
        """A detector that is blind shows no clear; what it found before stands with it."""
        if self.looked is None:
            return "waiting"
        if self.looked.error:
            return "blind"
        return "found" if self.found else "clear"


def cards(now: datetime) -> list[Card]:
    """All detectors in their order."""
    looked = {state.name: state for state in DetectorState.objects.all()}
    lately: dict[str, list[Finding]] = {}
    recent = Q(state=FindingState.OPEN) | Q(state=FindingState.CLEARED, cleared_at__gt=now - HISTORY)
    for finding in Finding.objects.filter(recent).order_by("since", "pk"):
        lately.setdefault(finding.detector, []).append(finding)
    return [_card(detector, looked.get(detector.name), lately.get(detector.name, [])) for detector in DETECTORS]


def _card(detector: Detector, looked: DetectorState | None, lately: list[Finding]) -> Card:
    found = [finding for finding in lately if finding.state == FindingState.OPEN]
    return Card(detector, looked, sorted(found, key=lambda each: -each.confidence_permille), lately)


def grid() -> Document:
    """All detectors, each with its state, what it finds now, and when it found something lately."""
    now, last = timezone.now(), rounds.last()
    return {
        "looked_at": iso(last.looked_at) if last else None,
        "took_ms": last.took_ms if last else None,
        "history_since": iso(now - HISTORY),
        "detectors": [_describe_card(card) for card in cards(now)],
    }


def _describe_card(card: Card) -> Document:
    detector, looked = card.detector, card.looked
    return {
        "number": detector.number,
        "name": detector.name,
        "title": plain(texts_of(detector.title)),
        "explanation": plain(texts_of(detector.explanation)),
        "state": card.state,
        "looked_at": iso(looked.looked_at) if looked else None,
        "took_ms": looked.took_ms if looked else None,
        "blind": (looked.error or None) if looked else None,
        "findings": [_short(finding) for finding in card.found],
        "history": [
            {"id": each.pk, "subject": each.subject, "since": iso(each.since), "cleared_at": iso(each.cleared_at)}
            for each in card.lately
        ],
    }


def _short(finding: Finding) -> Document:
    return {
        "id": finding.pk,
        "subject": finding.subject,
        "summary": plain(finding.summary),
        "since": iso(finding.since),
        "confidence_permille": finding.confidence_permille,
    }


def shown() -> QuerySet[Finding]:
    """Those that lasted long enough to be shown, over or not."""
    return Finding.objects.exclude(state=FindingState.PENDING)


def open_findings(pool: str = "") -> list[Finding]:
    """The surest first; of one pool alone where one is named."""
    found = shown().filter(state=FindingState.OPEN).order_by("-confidence_permille", "since")
    # Neither database finds a member of a JSON list in a way that both understand.
    return [finding for finding in found if not pool or pool in finding.pools]


def page(
    *, detector: str = "", state: str = "", limit: int = PAGE_ROWS, after: int | None = None
) -> tuple[list[Finding], int | None]:
    """Newest first; `after` is the last of the page before."""
    found = shown()
    if detector:
        found = found.filter(detector=detector)
    if state:
        found = found.filter(state=state)
    if after is not None:
        found = found.filter(pk__lt=after)
    return page_of(found.order_by("-pk"), limit, lambda row: row.pk)


def get(finding_id: int) -> Finding:
    proposals = Prefetch("proposals", Proposal.objects.order_by("place", "-pk"))
    row = shown().prefetch_related(proposals).filter(pk=finding_id).first()
    if row is None:
        raise NotFound(f"there is no finding {finding_id}")
    return row


def describe(row: Finding, seen_at: datetime | None = None) -> Document:
    """Without its levers. `seen_at`: when its detector looked last, of one that is found still."""
    return {
        "id": row.pk,
        "detector": row.detector,
        "subject": row.subject,
        "state": row.state,
        "since": iso(row.since),
        "seen_at": iso(seen_at or row.seen_at),
        "cleared_at": iso(row.cleared_at),
        "confidence_permille": row.confidence_permille,
        "summary": plain(row.summary),
        "evidence": row.evidence,
        "pools": row.pools,
        "tenants": row.tenants,
        "alert": row.alert_id,
    }


def looked_at() -> Mapping[str, datetime]:
    """When each detector that sees looked last."""
    return dict(DetectorState.objects.filter(error="").values_list("name", "looked_at"))


def seen_at(row: Finding, looked: Mapping[str, datetime]) -> datetime:
    """A row is not written in a round that changes nothing of it; it was seen all the same."""
    if row.state == FindingState.OPEN and not row.rounds_missed:
        return max(looked.get(row.detector, row.seen_at), row.seen_at)
    return row.seen_at


def with_levers(row: Finding) -> Document:
    described = describe(row, seen_at(row, looked_at()))
    return {**described, "levers": [describe_lever(lever) for lever in row.proposals.all()]}


def describe_lever(row: Proposal) -> Document:
    return {
        "id": row.pk,
        "finding": row.finding_id,
        "key": row.key,
        "state": row.state,
        "state_at": iso(row.state_at),
        "said": row.said or None,
        "title": plain(row.title),
        "why": plain(row.why),
        "advice": plain(row.advice) or None,
        "edits": row.edits,
        "commands": row.commands,
        "applied_by": row.applied_by or None,
        "policy": row.policy or None,
        "reason": row.reason or None,
        "applied_at": iso(row.applied_at),
        "change_id": str(row.change_id) if row.change_id else None,
        "replaced": row.replaced,
        "acts": row.acts,
        "verifying_since": iso(row.verifying_since),
        "clear_since": iso(row.clear_since),
    }


def changed_since(row: Proposal) -> list[Changed]:
    """What somebody changed of what it wrote, so that it cannot be taken back."""
    if row.state not in REVERTIBLE_STATES or row.applied_at is None:
        return []
    return changed(row.replaced, row.applied_at)


def with_changes(row: Proposal) -> Document:
    return {**describe_lever(row), "changed_since": [each.described() for each in changed_since(row)]}


def page_proposals(
    *, state: str = "", limit: int = PAGE_ROWS, after: int | None = None
) -> tuple[list[Proposal], int | None]:
    """Newest first."""
    rows: QuerySet[Proposal, Any] = Proposal.objects.select_related("finding")
    if state:
        rows = rows.filter(state=state)
    if after is not None:
        rows = rows.filter(pk__lt=after)
    return page_of(rows.order_by("-pk"), limit, lambda row: row.pk)
