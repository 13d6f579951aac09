"""Acknowledgements: judged against what the target was sent, and stored many in one transaction."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.db import transaction
from django.utils import timezone
from msgspec import UNSET

from controlplane import settings_rows as rows
from controlplane.configs import flapping, metrics, presence
from controlplane.configs.hub import heads, hub
from controlplane.configs.models import TargetState
from controlplane.core.errors import Conflict, NotFound
from controlplane.core.idle import give_back_connection
from controlplane.core.models import Target
from controlplane.core.reported import reported_text
from wire.messages import Ack
from wire.problems import Problem


class Judged(NamedTuple):
    """An acknowledgement that fits what was published, of the process that enrolled at `enrolled_at`.

    `slice_hash` is that of the target's slice at `ack.revision`.
    """

    target_id: int
    enrolled_at: datetime
    ack: Ack
    slice_hash: str
    at: datetime


def take(target: Target, ack: Ack) -> None:
    """Store what a target says it runs or refuses; returns once it is committed.

    Raises NotFound (no such revision) or Conflict (a hash that is not its slice's), with nothing stored.
    """
    batcher.store(judge(target, ack, timezone.now()))


def judge(target: Target, ack: Ack, now: datetime) -> Judged:
    """Raises as `take`; the target's streams here then send it the whole, for it holds what was not sent to it."""
    head = heads.at(ack.revision)
    if head is None:
        hub.streams.forget(target.pk)
        newest = heads.newest
        there = f"the newest is {newest.number}" if newest else "nothing has been published yet"
        raise NotFound(
            f"revision {ack.revision} does not exist; {there}",
            [Problem("/revision", "unknown_revision", there)],
            code="unknown_revision",
        )
    slice = head.slice(target.kind, target.name)
    if ack.hash is not UNSET and ack.hash != slice.hash:
        hub.streams.forget(target.pk)
        says = f"your slice at revision {ack.revision} has the hash {slice.hash}; ask for the whole with have=0"
        raise Conflict(says, [Problem("/hash", "wrong_hash", says)], code="wrong_hash")
    return Judged(target.pk, target.enrolled_at, ack, slice.hash, now)


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
        give_back_connection()
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
    """Store in one transaction. What is older than what is known already changes nothing, nor does what comes from a
    process that another has taken the name of meanwhile.
    """
    batch = list(batch)
    with transaction.atomic():
        enrolled_at = presence.seen({judged.target_id for judged in batch}, max(judged.at for judged in batch))
        batch = [judged for judged in batch if judged.enrolled_at == enrolled_at.get(judged.target_id)]
        ids = sorted({judged.target_id for judged in batch})
        TargetState.objects.bulk_create([TargetState(target_id=i) for i in ids], ignore_conflicts=True)
        states = {state.target_id: state for state in TargetState.objects.filter(target_id__in=ids)}
        for judged in batch:
            _note(states[judged.target_id], judged)
        TargetState.objects.bulk_update(states.values(), _FIELDS, batch_size=200)
    metrics.ACK_BATCH_SIZE.observe(len(batch))
    hub.note_acks({judged.target_id: judged.ack.revision for judged in batch})


_FIELDS = ["revision", "hash", "applied_at", "acked_at", "error_revision", "error_hash", "error", "turned_at_ms"]


def _note(state: TargetState, judged: Judged) -> None:
    ack = judged.ack
    if ack.revision < max(state.revision or 0, state.error_revision or 0):
        return
    if (ack.error is UNSET) != (state.error_revision is None):
        state.turned_at_ms = flapping.noted(state.turned_at_ms, judged.at)
    if ack.error is UNSET:
        # A gateway that restarts says again what it ran before; the lag is that of the first time.
        if (state.revision, state.hash) != (ack.revision, judged.slice_hash):
            state.revision, state.hash = ack.revision, judged.slice_hash
            state.applied_at, state.acked_at = _moment(ack.applied_at, judged.at), judged.at
        state.error_revision, state.error_hash, state.error = None, "", None
    else:
        state.error_revision, state.error_hash = ack.revision, judged.slice_hash
        state.error = [_shown(problem) for problem in ack.error]


def _shown(problem: Problem) -> dict[str, str]:
    return {name: reported_text(getattr(problem, name)) for name in ("path", "rule", "message")}


def _moment(epoch_ms: Any, now: datetime) -> datetime:
    """The target's clock may be wrong; later than now it cannot have been."""
    return datetime.fromtimestamp(min(epoch_ms, int(now.timestamp() * 1000)) / 1000, UTC)
