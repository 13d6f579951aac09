"""Acknowledgements: judged against what the target was sent, and stored many in one transaction."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
from django.db import transaction
from django.utils import timezone
from msgspec import UNSET

from controlplane import settings_rows as rows
from controlplane.configs import metrics
from controlplane.configs.hub import heads, hub
from controlplane.configs.models import TargetState
from controlplane.core.errors import Conflict, NotFound
from controlplane.core.models import Target
from wire.messages import Ack
from wire.problems import Problem


class Judged(NamedTuple):
    """An acknowledgement that fits what was published. `slice_hash` is that of the target's slice at `ack.revision`."""

    target_id: int
    ack: Ack
    slice_hash: str
    at: datetime


def take(target: Target, ack: Ack) -> None:
    """Store what a target says it runs or refuses; returns once it is committed.

    Raises NotFound (no such revision) or Conflict (a hash that is not its slice's), with nothing stored.
    """
    batcher.store(judge(target, ack, timezone.now()))


def judge(target: Target, ack: Ack, now: datetime) -> Judged:
    head = heads.at(ack.revision)
    if head is None:
        newest = heads.newest
        there = f"the newest is {newest.number}" if newest else "nothing has been published yet"
        raise NotFound(
            f"revision {ack.revision} does not exist; {there}",
            [Problem("/revision", "unknown_revision", there)],
            code="unknown_revision",
        )
    slice = head.slice(target.kind, target.name)
    if ack.hash is not UNSET and ack.hash != slice.hash:
        says = f"your slice at revision {ack.revision} has the hash {slice.hash}; ask for the whole with have=0"
        raise Conflict(says, [Problem("/hash", "wrong_hash", says)], code="wrong_hash")
    return Judged(target.pk, ack, slice.hash, now)


class Batcher:
    """Group commit: the first to come waits a moment for others and stores them all; each returns after that."""

    def __init__(self, wait_seconds: float) -> None:
        self._wait_seconds = wait_seconds
        self._lock = threading.Lock()
        self._gathering: list[Judged] = []
        self._committed: Future[None] | None = None

    def store(self, judged: Judged) -> None:
        with self._lock:
            first = self._committed is None
            if self._committed is None:
                self._committed = Future()
            committed = self._committed
            self._gathering.append(judged)
        if first:
            time.sleep(self._wait_seconds)
            with self._lock:
                batch, self._gathering, self._committed = self._gathering, [], None
            try:
                store(batch)
            except BaseException as error:
                committed.set_exception(error)
                raise
            committed.set_result(None)
        else:
            committed.result()


batcher = Batcher(rows.ACK_BATCH_MS.read() / 1000)


def store(batch: Iterable[Judged]) -> None:
    """Store in one transaction. What is older than what is known already changes nothing."""
    batch = list(batch)
    ids = {judged.target_id for judged in batch}
    with transaction.atomic():
        TargetState.objects.bulk_create([TargetState(target_id=i) for i in sorted(ids)], ignore_conflicts=True)
        states = {
            state.target_id: state
            for state in TargetState.objects.select_for_update().filter(target_id__in=ids).order_by("target_id")
        }
        for judged in batch:
            _note(states[judged.target_id], judged)
        TargetState.objects.bulk_update(states.values(), _FIELDS, batch_size=200)
        Target.objects.filter(id__in=ids).update(last_seen_at=max(judged.at for judged in batch))
    metrics.ACK_BATCH_SIZE.observe(len(batch))
    hub.note_acks({judged.target_id: judged.ack.revision for judged in batch})


_FIELDS = ["revision", "hash", "applied_at", "acked_at", "error_revision", "error_hash", "error"]


def _note(state: TargetState, judged: Judged) -> None:
    ack = judged.ack
    if ack.revision < max(state.revision or 0, state.error_revision or 0):
        return
    state.acked_at = judged.at
    if ack.error is UNSET:
        state.revision, state.hash = ack.revision, judged.slice_hash
        state.applied_at = _moment(ack.applied_at, judged.at)
        state.error_revision, state.error_hash, state.error = None, "", None
    else:
        state.error_revision, state.error_hash = ack.revision, judged.slice_hash
        state.error = msgspec.to_builtins(ack.error)


def _moment(epoch_ms: Any, now: datetime) -> datetime:
    """The target's clock may be wrong; later than now it cannot have been."""
    return datetime.fromtimestamp(min(epoch_ms, int(now.timestamp() * 1000)) / 1000, UTC)
