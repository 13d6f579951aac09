"""Where each target stands: what it should run, what it said it runs, how far behind it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from django.db.models import OuterRef, Subquery
from django.utils import timezone

from controlplane import settings_rows as rows
from controlplane.configs import flapping, presence
from controlplane.configs.head import Head
from controlplane.configs.hub import heads
from controlplane.configs.models import Revision, TargetState
from controlplane.core.fields import iso
from controlplane.core.models import Target
from wire.canonical import Document


class State(StrEnum):
    """`applied`: runs its slice of the newest revision. `pending`: not yet. `refused`: said no to that slice.
    `never`: has not run any yet. `lost`: not heard of for HEADWORKS_TARGET_SILENT_SECONDS."""

    APPLIED = "applied"
    PENDING = "pending"
    REFUSED = "refused"
    NEVER = "never"
    LOST = "lost"


@dataclass(frozen=True)
class Facts:
    """What is known of one target. Hashes are those of slices; empty: none."""

    desired_hash: str
    acked_hash: str = ""
    refused_hash: str = ""
    seen_at: datetime | None = None


def judge(facts: Facts, now: datetime, silent: timedelta) -> State:
    """By hash, not by number: a revision that does not concern a target leaves it applied."""
    if facts.seen_at is None or now - facts.seen_at > silent:
        return State.LOST
    if facts.refused_hash == facts.desired_hash:
        return State.REFUSED
    if facts.acked_hash == facts.desired_hash:
        return State.APPLIED
    return State.PENDING if facts.acked_hash else State.NEVER


def standing_with(target: Mapping[str, Any], revision: int | None) -> State:
    """Where a target of `convergence` stands with the change in `revision`, which need not be the newest one.

    A target that is pending because of what came later is not pending here. None: the change is not published yet.
    """
    state = State(target["state"])
    if revision is None or state in (State.APPLIED, State.LOST):
        return state
    if (target["acked_revision"] or 0) >= revision:
        return State.APPLIED
    return State.REFUSED if (target["refused_revision"] or 0) >= revision else state


def convergence() -> Document:
    """All targets that are not revoked, by kind and name, against the newest revision."""
    head = heads.refresh()
    now = timezone.now()
    acked = Revision.objects.filter(number=OuterRef("state__revision")).values("published_at")
    targets = (
        Target.objects.filter(revoked_at=None).select_related("state").annotate(acked_published_at=Subquery(acked))
    )
    described = [_describe(target, head, now) for target in targets.order_by("kind", "name")]
    return {
        "revision": head.number if head else None,
        "published_at": iso(head.published_at) if head else None,
        "stage": head.stage.id if head and head.stage else None,
        "applied": sum(target["state"] == State.APPLIED for target in described),
        "targets": described,
    }


def _describe(target: Target, head: Head | None, now: datetime) -> dict[str, Any]:
    """Of a target that is annotated with when its revision was published."""
    state = getattr(target, "state", None) or TargetState(target=target)
    published_at: datetime | None = target.acked_published_at  # type: ignore[attr-defined]
    facts = Facts(
        desired_hash=head.slice(target.kind, target.name).hash if head else "",
        acked_hash=state.hash,
        refused_hash=state.error_hash or "",
        seen_at=target.last_seen_at,
    )
    silent = timedelta(seconds=rows.TARGET_SILENT_SECONDS.read())
    stands = judge(facts, now, silent) if head else State.NEVER
    turns = flapping.turns(state.turned_at_ms, now)
    return {
        "id": target.pk,
        "kind": target.kind,
        "name": target.name,
        "version": target.version,
        "state": stands.value,
        "staged": bool(head and head.is_staged(target.kind, target.name)),
        "connected": presence.connected(state.stream_seen_at, now),
        "turns_10m": turns,
        "flapping": flapping.is_flapping(turns),
        "desired_revision": head.number if head else None,
        "acked_revision": state.revision,
        "applied_at": iso(state.applied_at),
        "seen_at": iso(target.last_seen_at),
        "lag_ms": _lag_ms(stands, state, head, published_at, now),
        "refused_revision": state.error_revision,
        "problems": state.error or [],
    }


def _lag_ms(
    stands: State, state: TargetState, head: Head | None, published_at: datetime | None, now: datetime
) -> int | None:
    """Applied: how long its last revision took to be acknowledged. Otherwise: how long the newest one waits by now."""
    if stands is not State.APPLIED:
        return _milliseconds(now - head.published_at) if head else None
    if state.acked_at is None or published_at is None:
        return None
    return _milliseconds(state.acked_at - published_at)


def _milliseconds(duration: timedelta) -> int:
    return max(0, round(duration / timedelta(milliseconds=1)))
