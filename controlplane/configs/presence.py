"""Which targets have a stream open, at any web process: heartbeats in the database.

A process that is killed leaves its heartbeats behind; they count no longer once three are missed.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import QuerySet

from controlplane import settings_rows as rows
from controlplane.configs import flapping
from controlplane.configs.models import TargetState
from controlplane.configs.streams import Opener
from controlplane.core.models import Target, TargetKind

MISSED_HEARTBEATS = 3
_BATCH = 500


def beat(open_ids: Collection[int], now: datetime, came: Collection[int] = ()) -> None:
    """These targets have a stream here now. `came`: those of which one opened just now."""
    for ids in _batches(open_ids):
        turned = set(ids).intersection(came)
        going_on = set(ids) - turned
        with transaction.atomic():
            _streaming(ids, now)
            _turned(turned, now, now)
            TargetState.objects.bulk_create([TargetState(target_id=i) for i in going_on], ignore_conflicts=True)
            TargetState.objects.filter(target_id__in=going_on).update(stream_seen_at=now)


def ended(ids: Collection[int], now: datetime, came: Collection[int] = ()) -> None:
    """The streams of these targets have ended here. One that goes on at another process says so at its next beat.

    `came`: those of which one opened just now, before it ended.
    """
    for batch in _batches(ids):
        turned = set(batch).intersection(came)
        with transaction.atomic():
            _streaming(batch, now)
            _turned(turned, None, now)
            TargetState.objects.filter(target_id__in=set(batch) - turned).update(stream_seen_at=None)


def _turned(ids: Collection[int], stream_seen_at: datetime | None, now: datetime) -> None:
    """Note a turn of each of these targets, whose rows are held, together with how their streams stand."""
    known = TargetState.objects.in_bulk(ids)
    states = [known.get(target_id) or TargetState(target_id=target_id) for target_id in sorted(ids)]
    for state in states:
        state.stream_seen_at = stream_seen_at
        state.turned_at_ms = flapping.noted(state.turned_at_ms, now)
    # An update of many rows to values of their own, such as `bulk_update` makes, takes many times as long.
    TargetState.objects.bulk_create(
        states,
        update_conflicts=True,
        unique_fields=["target"],
        update_fields=["stream_seen_at", "turned_at_ms"],
    )


def seen(ids: Collection[int], now: datetime) -> dict[int, datetime]:
    """Note that these targets were heard of now; answers when each enrolled."""
    enrolled_at = _hold(ids)
    Target.objects.filter(id__in=ids).update(last_seen_at=now)
    return enrolled_at


def _streaming(ids: Collection[int], now: datetime) -> None:
    """An open stream is a sign of life only of a gateway that has never pushed: of others their pushes are, of a node
    its reports.

    The stream of a process that hangs stays open for good, and that of a machine without power for minutes.
    """
    _hold(ids)
    heard = Target.objects.filter(id__in=ids, kind=TargetKind.GATEWAY, last_pushed_at=None)
    heard.update(last_seen_at=now)


def _hold(ids: Collection[int]) -> dict[int, datetime]:
    """Hold the targets' rows until the transaction ends; answers when each enrolled.

    In one order, and before their states, as an enrolment does, so that neither waits for the other in a circle.
    """
    held = Target.objects.filter(id__in=ids).select_for_update(no_key=True).order_by("id")
    return dict(held.values_list("id", "enrolled_at"))


def openers(targets: QuerySet[Target]) -> dict[int, Opener | None]:
    """Target (by id) → who may hold its stream; None where it is revoked."""
    found = targets.values_list("id", "revoked_at", "enrolled_at", "token_hash")
    return {target_id: None if revoked_at else Opener(at, digest) for target_id, revoked_at, at, digest in found}


def openers_of(ids: Collection[int]) -> dict[int, Opener | None]:
    found: dict[int, Opener | None] = {}
    for batch in _batches(ids):
        found |= openers(Target.objects.filter(id__in=batch))
    return found


def live_gateways(now: datetime) -> int:
    return TargetState.objects.filter(
        target__kind=TargetKind.GATEWAY, target__revoked_at=None, stream_seen_at__gte=_oldest_beat(now)
    ).count()


def connected(stream_seen_at: datetime | None, now: datetime) -> bool:
    """Whether some web process holds a target's stream, by its last heartbeat."""
    return stream_seen_at is not None and stream_seen_at >= _oldest_beat(now)


def _oldest_beat(now: datetime) -> datetime:
    return now - timedelta(seconds=MISSED_HEARTBEATS * rows.STREAM_PING_SECONDS.read())


def _batches(ids: Collection[int]) -> list[list[int]]:
    ordered = sorted(ids)
    return [ordered[i : i + _BATCH] for i in range(0, len(ordered), _BATCH)]
