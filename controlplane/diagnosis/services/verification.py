"""Watching what was applied, until its finding clears or it is offered back."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from controlplane import settings_rows
from controlplane.configs.convergence import State as TargetStands
from controlplane.configs.convergence import convergence, standing_with
from controlplane.configs.history import Damaged
from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.core.errors import Refused
from controlplane.core.models import AuditEntry
from controlplane.core.reported import reported_text
from controlplane.diagnosis.models import WATCHED_STATES, LeverPolicy, Proposal
from controlplane.diagnosis.models import ProposalState as State
from controlplane.diagnosis.services import proposals
from controlplane.diagnosis.services.findings import Looked
from controlplane.diagnosis.taken_up import waiting_for_files, waiting_for_start
from controlplane.diagnosis.verdict import Seen, Verdict, Watched, verdict
from controlplane.fleet.models import OPEN_STATES, Act, ActState

log = logging.getLogger(__name__)


def watch(looked: Mapping[str, Looked], at: datetime) -> int:
    """Look at all that was applied and is not judged yet, after a round at `at`; how many are judged now."""
    judged = 0
    for row in Proposal.objects.select_related("finding").filter(state__in=WATCHED_STATES).order_by("pk"):
        try:
            seen = _seen(row, looked)
        except Damaged:
            # Where targets stand is not known while the newest revision cannot be read.
            continue
        decided = verdict(_watched(row), seen, at, _window(), settings_rows.DIAGNOSIS_VERIFY_WINDOWS.read())
        if _store(row, decided, at) and decided.state not in WATCHED_STATES:
            judged += 1
    return judged


def _window() -> timedelta:
    return timedelta(seconds=settings_rows.DIAGNOSIS_WINDOW_SECONDS.read())


def _watched(row: Proposal) -> Watched:
    return Watched(row.state, row.applied_at or row.state_at, row.verifying_since, row.clear_since)


def _seen(row: Proposal, looked: Mapping[str, Looked]) -> Seen:
    saw = looked.get(row.finding.detector)
    found = None if saw is None or saw.error else any(each.subject == row.finding.subject for each in saw.found)
    if row.state != State.APPLIED:
        return Seen(found)
    pending, refusing = _targets(row)
    open_acts, failed_acts = _acts(row.acts)
    unstarted = [*waiting_for_start(row.replaced), *waiting_for_files(row.acts, row.finding.pools)]
    return Seen(found, pending, refusing, open_acts, failed_acts, unstarted)


def _targets(row: Proposal) -> tuple[list[str], list[str]]:
    """Those that do not run the change yet, and those that refuse it; one that is lost is waited for by nobody."""
    if row.change_id is None or not (entries := _entries(row.change_id)).exists():
        return [], []
    published = entries.filter(revision__isnull=False).order_by("-revision").first()
    if published is None:
        return ["anyone: it is not published yet"], []
    stands = {
        f"{target['kind']}/{target['name']}": standing_with(target, published.revision)
        for target in convergence()["targets"]
    }
    waited_for = (TargetStands.PENDING, TargetStands.NEVER)
    return (
        [name for name, state in stands.items() if state in waited_for],
        [name for name, state in stands.items() if state is TargetStands.REFUSED],
    )


def _entries(change_id: UUID) -> QuerySet[AuditEntry]:
    """Of what the change brings to targets."""
    return AuditEntry.objects.filter(change_id=change_id, touches_config=True)


def _acts(act_ids: Collection[str]) -> tuple[list[str], list[str]]:
    open_acts, failed = [], []
    for act in Act.objects.select_related("engine", "node").filter(act_id__in=act_ids).order_by("pk"):
        name = f"{act.action} of {act.engine or act.node}"
        if act.state in OPEN_STATES:
            open_acts.append(name)
        elif act.state != ActState.DONE:
            why = ": ".join(filter(None, (act.state, act.result_reason, act.detail)))
            failed.append(f"{name} {why}")
    return open_acts, failed


def _store(row: Proposal, decided: Verdict, at: datetime) -> bool:
    """Write a verdict, unless somebody wrote to the proposal meanwhile. What says the same is not written."""
    state, said = decided.state, decided.said
    if state == State.OFFERED_BACK and not row.replaced:
        state = State.FAILED
    columns = {
        "state": state,
        "said": reported_text(said),
        "verifying_since": decided.verifying_since or row.verifying_since,
        "clear_since": decided.clear_since,
    }
    if all(getattr(row, name) == value for name, value in columns.items()):
        return False
    columns["state_at"] = row.state_at if state == row.state else at
    with transaction.atomic():
        written = Proposal.objects.filter(pk=row.pk, state=row.state).update(**columns)
    return bool(written)


def revert_by_policies() -> int:
    """Take back what did not help and was applied by a policy that says so; how many.

    What others changed since stays with people, and is looked at again in the next round.
    """
    policies = {policy.name for policy in LeverPolicy.objects.filter(enabled=True, revert_if_not_held=True)}
    offered = Proposal.objects.select_related("finding").filter(state=State.OFFERED_BACK, policy__in=policies)
    return sum(_reverted(row) for row in offered.order_by("pk"))


def _reverted(row: Proposal) -> bool:
    try:
        with unit_of_work(SYSTEM, f"policy {row.policy}: lever {row.key} of {row.finding} did not help") as unit:
            proposals.revert(unit, row.finding_id, row.key)
    except Refused as refused:
        said = reported_text(f"policy {row.policy} cannot take it back: {refused.detail}")
        if said != row.said:
            log.warning("lever %s of %s: %s", row.key, row.finding, said)
            Proposal.objects.filter(pk=row.pk, state=State.OFFERED_BACK).update(said=said)
        return False
    return True
