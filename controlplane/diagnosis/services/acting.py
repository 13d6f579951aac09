"""Applying levers by policies that an admin switched on."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.core.errors import Conflict, Refused
from controlplane.core.fields import iso
from controlplane.core.reported import reported_text
from controlplane.diagnosis.allowed import Asked, Limits, refusal
from controlplane.diagnosis.changed_since import changed_by_people
from controlplane.diagnosis.models import WATCHED_STATES, FindingState, LeverPolicy, Proposal
from controlplane.diagnosis.models import ProposalState as State
from controlplane.diagnosis.services import proposals

log = logging.getLogger(__name__)
_HOUR = timedelta(hours=1)


def act(at: datetime) -> int:
    """Apply what policies want and may; how many levers. Why one does not is told at its offer."""
    return sum(_act(policy, at) for policy in LeverPolicy.objects.filter(enabled=True).order_by("name"))


def _act(policy: LeverPolicy, at: datetime) -> int:
    offers = Proposal.objects.select_related("finding").filter(
        state=State.PROPOSED,
        key=policy.lever,
        finding__detector=policy.detector,
        finding__state=FindingState.OPEN,
        finding__rounds_missed=0,
    )
    applied = 0
    for row in offers.order_by("-finding__confidence_permille", "pk"):
        if not row.edits and not row.commands:
            continue
        why = _refusal(policy, row, at) or _apply(policy, row, at)
        applied += not why
        if why:
            _tell(row, f"policy {policy.name}: {why}")
    return applied


def _refusal(policy: LeverPolicy, row: Proposal, at: datetime) -> str:
    pools = None if policy.pools is None else frozenset(policy.pools)
    limits = Limits(policy.max_an_hour, policy.min_confidence_permille, pools)
    return refusal(limits, _asked(policy, row, at))


def _asked(policy: LeverPolicy, row: Proposal, at: datetime) -> Asked:
    others = row.finding.proposals.exclude(pk=row.pk)
    return Asked(
        confidence_permille=row.finding.confidence_permille,
        pools=row.finding.pools,
        applied_in_the_hour=Proposal.objects.filter(policy=policy.name, applied_at__gt=at - _HOUR).count(),
        watched=list(others.filter(state__in=WATCHED_STATES).values_list("key", flat=True)),
        tried=others.filter(key=row.key, applied_at__isnull=False).exists(),
        changed_by=_changed_by(policy, row, at),
    )


def _changed_by(policy: LeverPolicy, row: Proposal, at: datetime) -> str:
    entry = changed_by_people(row.edits, at - timedelta(seconds=policy.stand_back_seconds))
    return "" if entry is None else f"{entry.actor} changed {entry.noun} {entry.key} at {iso(entry.at)}"


def _apply(policy: LeverPolicy, row: Proposal, at: datetime) -> str:
    """Why it is refused; empty where it is applied. All is asked again in the unit, which lets in no other write."""
    reason = f"policy {policy.name}: {row.finding}, confidence {row.finding.confidence_permille} per mille"
    try:
        with unit_of_work(SYSTEM, reported_text(reason)) as unit:
            if why := _refusal(policy, row, at):
                raise Conflict(why)
            proposals.apply(unit, row.finding_id, row.key, policy=policy.name)
    except Refused as refused:
        return refused.detail
    log.info("policy %s applied lever %s of %s", policy.name, row.key, row.finding)
    return ""


def _tell(row: Proposal, said: str) -> None:
    said = reported_text(said)
    if row.said != said:
        Proposal.objects.filter(pk=row.pk, state=State.PROPOSED).update(said=said)
