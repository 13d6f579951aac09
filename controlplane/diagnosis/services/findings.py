"""What a round leads to: findings that begin, go on and end, and the levers that each offers meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q

from controlplane import settings_rows
from controlplane.core.reported import reported_text
from controlplane.diagnosis import hysteresis
from controlplane.diagnosis.described import Prepared
from controlplane.diagnosis.hysteresis import Standing
from controlplane.diagnosis.models import (
    LIVE_STATES,
    STANDING_STATES,
    DetectorState,
    FindingState,
    Proposal,
    ProposalState,
)
from controlplane.diagnosis.models import Finding as Row
from controlplane.diagnosis.services import alerting, rounds
from wire.canonical import Document


@dataclass(frozen=True)
class Looked:
    """What one detector saw in a round. `error`: why it is blind; empty: it saw, and `found` is all there is.

    `weighs_window`: as its detector's.
    """

    name: str
    lasts_rounds: int
    found: Sequence[Prepared] = ()
    took_ms: int = 0
    error: str = ""
    weighs_window: bool = True


def store(looked: Iterable[Looked], at: datetime, took_ms: int) -> bool:
    """Write what a round saw; False where a later one is stored already. A row that says the same is not written."""
    looked = list(looked)
    with transaction.atomic():
        row = rounds.held(at)
        if row is None:
            return False
        _store_states(looked, at)
        unsettled = _unsettled_pools(at)
        standing: dict[str, dict[str, Row]] = {}
        for finding in Row.objects.filter(state__in=STANDING_STATES).order_by("pk"):
            standing.setdefault(finding.detector, {})[finding.subject] = finding
        for each in looked:
            if not each.error:
                _follow(each, standing.pop(each.name, {}), unsettled if each.weighs_window else frozenset(), at)
            else:
                standing.pop(each.name, None)
        # Of detectors that are no more.
        for gone in standing.values():
            for finding in gone.values():
                _end(finding, at)
        rounds.ended(row, at, took_ms)
    return True


def _store_states(looked: Iterable[Looked], at: datetime) -> None:
    DetectorState.objects.bulk_create(
        [
            DetectorState(name=each.name, looked_at=at, took_ms=each.took_ms, error=reported_text(each.error))
            for each in looked
        ],
        update_conflicts=True,
        unique_fields=["name"],
        update_fields=["looked_at", "took_ms", "error"],
    )


def _unsettled_pools(at: datetime) -> frozenset[str]:
    """Pools whose window is partly from before a lever, or from before one was taken back."""
    since = at - timedelta(seconds=settings_rows.DIAGNOSIS_WINDOW_SECONDS.read())
    taken_back = Q(state=ProposalState.REVERTED, state_at__gt=since)
    moved = Proposal.objects.filter(Q(applied_at__gt=since) | Q(verifying_since__gt=since) | taken_back)
    return frozenset(pool for pools in moved.values_list("finding__pools", flat=True) for pool in pools)


def _follow(looked: Looked, standing: Mapping[str, Row], unsettled: frozenset[str], at: datetime) -> None:
    """Findings of unsettled pools go on and end, and no new ones begin."""
    found = {
        finding.subject: finding
        for finding in looked.found
        if finding.subject in standing or unsettled.isdisjoint(finding.columns["pools"])
    }
    for subject in sorted(standing.keys() | found.keys()):
        row = standing.get(subject)
        before = None if row is None else _standing(row)
        after = hysteresis.stepped(before, subject in found, looked.lasts_rounds)
        if after is None:
            if row is not None:
                _end(row, at)
        elif row is None:
            _begin(looked.name, found[subject], after, at)
        else:
            _go_on(row, found.get(subject), after, at)


def _standing(row: Row) -> Standing:
    return Standing(row.rounds_found, row.rounds_missed, row.state == FindingState.OPEN)


def _begin(detector: str, found: Prepared, standing: Standing, at: datetime) -> None:
    row = Row(detector=detector, subject=found.subject, since=at)
    _write(row, {**_columns(standing), **found.columns}, at)
    _offer(row, found.levers, at)


def _go_on(row: Row, found: Prepared | None, standing: Standing, at: datetime) -> None:
    columns = {**_columns(standing), **(found.columns if found else {})}
    if any(getattr(row, name) != value for name, value in columns.items()):
        _write(row, columns, at)
    if found is not None:
        _offer(row, found.levers, at)


def _columns(standing: Standing) -> dict[str, Any]:
    return {
        "state": FindingState.OPEN if standing.shown else FindingState.PENDING,
        "rounds_found": standing.found,
        "rounds_missed": standing.missed,
    }


def _write(row: Row, columns: Mapping[str, Any], at: datetime) -> None:
    for name, value in columns.items():
        setattr(row, name, value)
    row.seen_at = at
    row.save()
    alerting.follow(row, at)


def _end(row: Row, at: datetime) -> None:
    """One that nobody was shown is forgotten; what it offered and nobody took is over with it."""
    if row.state == FindingState.PENDING:
        row.delete()
        return
    row.state, row.cleared_at = FindingState.CLEARED, at
    row.save()
    alerting.follow(row, at)
    row.proposals.filter(state=ProposalState.PROPOSED).update(
        state=ProposalState.SUPERSEDED, state_at=at, said="the finding is over"
    )


def _offer(row: Row, offered: Mapping[str, Document], at: datetime) -> None:
    """Make the offers those of the last round: new ones, other numbers, and none of what is offered no more.

    One that was dismissed is not offered again while the finding stands.
    """
    if row.state != FindingState.OPEN:
        return
    live: dict[str, Proposal] = {}
    dismissed = set()
    for proposal in row.proposals.all():
        if proposal.state in LIVE_STATES:
            live[proposal.key] = proposal
        elif proposal.state == ProposalState.DISMISSED and proposal.applied_at is None:
            dismissed.add(proposal.key)
    for key, columns in offered.items():
        if key not in live and key not in dismissed:
            Proposal.objects.create(finding=row, key=key, state_at=at, **columns)
    for key, proposal in live.items():
        if proposal.state == ProposalState.PROPOSED:
            _follow_offer(proposal, offered.get(key), at)


def _follow_offer(proposal: Proposal, columns: Mapping[str, Any] | None, at: datetime) -> None:
    if columns is None:
        proposal.state, proposal.state_at = ProposalState.SUPERSEDED, at
        proposal.said = "its detector offers it no more"
    elif all(getattr(proposal, name) == value for name, value in columns.items()):
        return
    else:
        for name, value in columns.items():
            setattr(proposal, name, value)
    proposal.save()


def prune(cleared_before: datetime) -> int:
    """Forget findings that were over by then, with what they offered; answers how many."""
    old = Row.objects.filter(state=FindingState.CLEARED, cleared_at__lt=cleared_before)
    # What still waits for its verdict is not forgotten with it.
    return old.exclude(proposals__state__in=LIVE_STATES).delete()[1].get(Row._meta.label, 0)
