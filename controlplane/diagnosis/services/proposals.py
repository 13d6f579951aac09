"""The only writer of levers that people or policies take: applied, taken back, dismissed."""

from __future__ import annotations

from collections.abc import Collection

from django.utils import timezone

from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import Conflict, NotFound
from controlplane.core.fields import LIKE_NAME
from controlplane.core.nouns import some_of
from controlplane.core.reported import reported_text
from controlplane.diagnosis import applying, changed_since
from controlplane.diagnosis.models import LIVE_STATES, REVERTIBLE_STATES, WATCHED_STATES, Finding, Proposal
from controlplane.diagnosis.models import ProposalState as State
from controlplane.diagnosis.texts import plain
from controlplane.fleet.services import acts
from wire.canonical import Document
from wire.problems import Problem

NOUN = "lever"


def find(finding_id: int, key: str) -> Proposal:
    """The one that is live, or else the newest of that key. Raises NotFound."""
    found = None
    if not LIKE_NAME.refusal(key):
        rows = Proposal.objects.select_related("finding").filter(finding=finding_id, key=key)
        found = rows.filter(state__in=LIVE_STATES).first() or rows.order_by("-pk").first()
    if found is None:
        raise NotFound(_no_such(finding_id, key))
    return found


def _no_such(finding_id: int, key: str) -> str:
    finding = Finding.objects.filter(pk=finding_id).first()
    if finding is None:
        return f"there is no finding {finding_id}"
    keys = sorted(set(finding.proposals.values_list("key", flat=True)))
    return f"finding {finding_id} has no lever {key!r}; it has {some_of(keys) or 'none'}"


def audited(row: Proposal) -> Document:
    """What the audit keeps of it."""
    return {
        "id": row.pk,
        "detector": row.finding.detector,
        "subject": row.finding.subject,
        "lever": row.key,
        "title": plain(row.title),
        "state": row.state,
        "policy": row.policy or None,
    }


def apply(unit: UnitOfWork, finding_id: int, key: str, *, policy: str = "") -> Proposal:
    """Carry out all that the lever says, as this one unit of work; then it is watched until its finding clears.

    Raises Conflict where it is not offered, or is advice alone; Forbidden; Refused with what is wrong at which edit.
    """
    row = _locked(finding_id, key, (State.PROPOSED,))
    if not row.edits and not row.commands:
        raise Conflict("this lever is advice alone: there is nothing that could be applied", code="advice_alone")
    applying.refuse_wrong(row.edits, row.commands)
    applying.check_role(unit, row.edits)
    _warn_of_others(unit, row)
    before = audited(row)
    row.replaced = applying.write(unit, row.edits)
    row.acts = applying.ask(unit, row.commands)
    row.applied_by, row.reason, row.policy = unit.actor.name, unit.reason, policy
    row.applied_at, row.change_id = timezone.now(), unit.change_id
    _set(unit, row, before, State.APPLIED, "")
    return row


def _warn_of_others(unit: UnitOfWork, row: Proposal) -> None:
    watched = row.finding.proposals.filter(state__in=WATCHED_STATES).exclude(pk=row.pk)
    for key in watched.values_list("key", flat=True):
        message = f"lever {key} of this finding is still being verified: which of the two helped will not be known"
        unit.warnings.append(Problem("/", "verifying", message))


def revert(unit: UnitOfWork, finding_id: int, key: str) -> Proposal:
    """Take back exactly what the lever wrote; acts that no agent has begun are cancelled.

    Raises Conflict `changed_since` with who changed which field since and when; nothing is taken back then.
    """
    row = _locked(finding_id, key, REVERTIBLE_STATES)
    if not row.replaced:
        raise Conflict("this lever asked for acts alone, which cannot be taken back", code="nothing_to_revert")
    applying.check_role(unit, row.replaced)
    changed = changed_since.changed(row.replaced, row.applied_at or row.state_at)
    if changed:
        words = some_of([f"{each.noun}/{each.key} {each.field}".strip() for each in changed])
        raise Conflict(
            f"changed since it was applied: {words}; change back by hand what shall be as before",
            [each.problem for each in changed],
            code="changed_since",
        )
    before = audited(row)
    applying.take_back(unit, row.replaced)
    acts.cancel_waiting(unit, row.acts)
    _set(unit, row, before, State.REVERTED, f"taken back by {unit.actor.name}: {unit.reason}")
    return row


def dismiss(unit: UnitOfWork, finding_id: int, key: str) -> Proposal:
    """Want it no more: an offer is not made again while the finding stands; a change that is offered back stays."""
    row = _locked(finding_id, key, (State.PROPOSED, State.OFFERED_BACK))
    before = audited(row)
    _set(unit, row, before, State.DISMISSED, f"dismissed by {unit.actor.name}: {unit.reason}")
    return row


def _locked(finding_id: int, key: str, states: Collection[State]) -> Proposal:
    found = find(finding_id, key)
    row = Proposal.objects.select_for_update(of=("self",)).select_related("finding").get(pk=found.pk)
    if row.state not in states:
        able = ", ".join(states)
        raise Conflict(f"lever {key!r} is {row.state}; this is for one that is {able}", code="wrong_state")
    return row


def _set(unit: UnitOfWork, row: Proposal, before: Document, state: State, said: str) -> None:
    row.state, row.said, row.state_at = state, reported_text(said), timezone.now()
    row.save()
    unit.record(NOUN, f"{row.finding_id}/{row.key}", before, audited(row))
