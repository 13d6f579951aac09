"""Which engines an act takes down: one that is asked for, or one that was cancelled and may run all the same."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q

from controlplane import settings_rows
from controlplane.core.models import AuditEntry
from controlplane.fleet.models import OPEN_STATES, Act, ActState
from controlplane.fleet.services import acts

# Acts that end an engine's process, or its serving.
_ENDING = ("stop", "restart", "sleep")


@dataclass(frozen=True)
class Withdrawal:
    """An act that was cancelled, and what its node's agent has told.

    `asked_in`, `gone_in`: the revisions that first had it, and that first had it no more; None: not published yet.
    `reported_at`: when the node's newest report came; None: never. `reported_revision`: what that report went by; None:
    its agent tells none.
    """

    cancelled_at: datetime
    asked_in: int | None
    gone_in: int | None
    reported_at: datetime | None
    reported_revision: int | None


def may_run(act: Withdrawal, silent_after: timedelta) -> bool:
    """Whether the agent may have begun it, or begin it yet, without having told of it. Pure."""
    if act.reported_at is None:
        return False
    if act.reported_revision is None:
        return act.reported_at <= act.cancelled_at
    if act.gone_in is None:
        return True
    if act.asked_in == act.gone_in:
        # Asked for and cancelled before anything was published: no agent was told.
        return False
    if act.asked_in is not None and act.reported_revision < act.asked_in:
        # It had not heard of it. To a slice that is again as it was nothing more is sent; what was on its way is there,
        # or its stream has ended, once a target that says nothing counts as silent.
        return act.reported_at <= act.cancelled_at + silent_after
    return act.reported_revision < act.gone_in


def ending_acts(names: Iterable[str], now: datetime) -> dict[str, str]:
    """By engine, the act that takes it down, whoever asked for it."""
    long_over = now - timedelta(seconds=settings_rows.ACT_UNTOLD_SECONDS.read())
    may_matter = Q(state__in=OPEN_STATES) | Q(state=ActState.CANCELLED, expires_at__gte=long_over)
    found = list(
        Act.objects.filter(may_matter, engine__name__in=list(names), action__in=_ENDING)
        .order_by("pk")
        .values(
            "act_id",
            "engine__name",
            "action",
            "state",
            "state_at",
            "expires_at",
            "node__reported_at",
            "node__reported_revision",
        )
    )
    silent_after = timedelta(seconds=settings_rows.TARGET_SILENT_SECONDS.read())
    revisions = _revisions([act["act_id"] for act in found if act["state"] == ActState.CANCELLED])
    ending = {}
    for act in found:
        if act["state"] == ActState.CANCELLED:
            if act["node__reported_at"] and act["node__reported_at"] > act["expires_at"] + silent_after:
                # Too late to begin it, and nothing of it was told: so of an agent that refuses newer slices.
                continue
            asked_in, gone_in = revisions.get(act["act_id"], (None, None))
            told = (act["node__reported_at"], act["node__reported_revision"])
            if not may_run(Withdrawal(act["state_at"], asked_in, gone_in, *told), silent_after):
                continue
        ending[act["engine__name"]] = act["action"]
    return ending


def _revisions(act_ids: list[str]) -> dict[str, tuple[int | None, int | None]]:
    """Of each cancelled act: `asked_in` and `gone_in`, as the audit has them."""
    found: dict[str, tuple[int | None, int | None]] = {}
    if act_ids:
        entries = AuditEntry.objects.filter(noun=acts.NOUN, key__in=act_ids).order_by("pk")
        for key, revision in entries.values_list("key", "revision"):
            found[key] = (found[key][0] if key in found else revision, revision)
    return found
