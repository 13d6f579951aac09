"""The publisher and distributor of one web process: a thread that watches the database and wakes the streams.

One round: publish what has waited long enough → read newer revisions → tell the streams → beat for open streams.
A write of this process starts a round at once; those of other processes are found by polling, or through Redis.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from django.db import connection
from django.db.models import Max, Q
from django.utils import timezone

from controlplane import settings_rows as rows
from controlplane.configs import metrics, presence, publisher, wakeup
from controlplane.configs.debounce import Debounce
from controlplane.configs.events import Events
from controlplane.configs.heads import Heads
from controlplane.configs.models import TargetState
from controlplane.configs.neighbours import Neighbours
from controlplane.configs.opened import unsealed
from controlplane.configs.streams import Streams
from controlplane.core.models import Target

log = logging.getLogger(__name__)

heads = Heads(unsealed)
# Clocks of several web processes may differ by so much.
_LOOK_BACK = timedelta(seconds=60)
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class Hub:
    def __init__(self) -> None:
        self.streams = Streams()
        self.live_gateways = 0
        self.encoded: Events | None = None
        self._poll_seconds = rows.POLL_MS.read() / 1000
        self._beat_seconds = float(rows.STREAM_PING_SECONDS.read())
        self._debounce = Debounce(rows.PUBLISH_QUIET_MS.read() / 1000, rows.PUBLISH_MAX_WAIT_MS.read() / 1000)
        self._neighbours = Neighbours(rows.REDIS_URL.read(), self.wake)
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._stopping = self._draining = False
        self._wake = threading.Event()
        self._written = False
        self._waiting: publisher.Waiting | None = None
        self._beaten = 0.0
        self._acked_at: datetime | None = None
        self._failing = ""
        self._changed = threading.Condition()
        self._changes = 0
        self._watchers: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    # Life

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def draining(self) -> bool:
        return self._draining

    def start(self) -> None:
        """Start the thread where it does not run yet."""
        with self._starting:
            if self.running:
                return
            self._stopping = self._draining = False
            wakeup.listen(self.written)
            self._thread = threading.Thread(target=self._run, name="config-hub", daemon=True)
            self._thread.start()
            self._neighbours.start()

    def stop(self) -> None:
        """End the streams and the thread."""
        self._stopping = True
        self.drain()
        self._neighbours.stop()
        self.wake()
        if self._thread is not None:
            self._thread.join(timeout=10)

    def drain(self) -> None:
        """End the streams and take no more, because the process is about to end. May be called from any thread."""
        self._draining = True
        self.streams.close_all()

    def written(self) -> None:
        """A write of this process was committed."""
        self._written = True
        self.wake()

    def wake(self) -> None:
        self._wake.set()

    # What waits for a change: a revision, an acknowledgement, a target that came or went.

    @property
    def changes(self) -> int:
        """Grows with every change."""
        return self._changes

    def wait_change(self, seen: int, timeout_seconds: float) -> int:
        """Block until `changes` is beyond `seen`, or the time is over; answers `changes`."""
        with self._changed:
            self._changed.wait_for(lambda: self._changes > seen, timeout_seconds)
            return self._changes

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[asyncio.Event]:
        """An event that is set at every change, until the block ends. The reader clears it."""
        watcher = (asyncio.get_running_loop(), asyncio.Event())
        self._watchers.add(watcher)
        try:
            yield watcher[1]
        finally:
            self._watchers.discard(watcher)

    def note_change(self) -> None:
        with self._changed:
            self._changes += 1
            self._changed.notify_all()
        for loop, event in list(self._watchers):
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

    def note_acks(self, revisions: dict[int, int]) -> None:
        """Targets (by id) acknowledged or refused a revision, and it is stored."""
        self.streams.acknowledge(revisions)
        self.note_change()

    # The thread

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._round()
                if self._failing:
                    log.info("the configuration is distributed again")
                self._failing = ""
            except Exception as error:
                # Whatever it was (a database that restarts, a damaged row), targets run on meanwhile.
                if self._failing != repr(error):
                    log.exception(
                        "the configuration is not distributed now; trying again every %g s", self._poll_seconds
                    )
                self._failing = repr(error)
                connection.close()
            due = self._debounce.wait_seconds(time.monotonic())
            self._wake.wait(self._poll_seconds if due is None else min(due, self._poll_seconds))
            self._wake.clear()
        self._farewell()
        connection.close()

    def _round(self) -> None:
        self._publish_due()
        self._take_newest()
        self._look_at_targets()
        self._beat()

    def _publish_due(self) -> None:
        if self._written:
            self._written = False
            self._neighbours.tell()
        now = time.monotonic()
        waiting = publisher.waiting()
        if waiting is None:
            self._waiting = None
            self._debounce.clear()
            return
        if waiting != self._waiting:
            self._waiting = waiting
            self._debounce.saw(now)
        if self._debounce.wait_seconds(now) == 0:
            with metrics.PUBLISH_SECONDS.time():
                revision = publisher.publish(heads.stored())
            self._waiting = None
            self._debounce.clear()
            if revision is not None:
                log.info("published revision %d", revision.number)
                self._neighbours.tell()
            else:
                self.note_change()

    def _take_newest(self) -> None:
        head = heads.refresh()
        if head is None or (self.encoded is not None and self.encoded.head is head):
            return
        self.encoded = Events(head)
        self.streams.announce(head, self.live_gateways)
        self.note_change()

    def _look_at_targets(self) -> None:
        """Revoked and re-enrolled targets, and acknowledgements that other processes stored."""
        since = timezone.now() - _LOOK_BACK
        recent = Target.objects.filter(Q(revoked_at__gte=since) | Q(enrolled_at__gte=since))
        found = recent.values_list("id", "revoked_at", "enrolled_at")
        if enrolments := {target_id: None if revoked_at else at for target_id, revoked_at, at in found}:
            self.streams.close_outdated(enrolments)
        acked_at = TargetState.objects.aggregate(last=Max("acked_at"))["last"]
        if acked_at is not None and acked_at != self._acked_at:
            newer = TargetState.objects.filter(acked_at__gt=self._acked_at or _LONG_AGO)
            self._acked_at = acked_at
            acks = newer.values_list("target_id", "revision", "error_revision")
            self.note_acks({target_id: max(acked or 0, refused or 0) for target_id, acked, refused in acks})

    def _beat(self) -> None:
        opened, ended = self.streams.take_turnover()
        now = timezone.now()
        if time.monotonic() - self._beaten >= self._beat_seconds:
            opened = set(self.streams.target_ids())
            self._beaten = time.monotonic()
        if opened:
            presence.beat(opened, now)
        if ended:
            presence.ended(ended, now)
        live_gateways = presence.live_gateways(now, self._beat_seconds)
        if opened or ended or live_gateways != self.live_gateways:
            self.live_gateways = live_gateways
            if self.encoded is not None:
                self.streams.announce(self.encoded.head, live_gateways)
            self.note_change()

    def _farewell(self) -> None:
        """Other processes need not wait for missed beats."""
        try:
            opened, ended = self.streams.take_turnover()
            presence.ended(set(self.streams.target_ids()) | opened | ended, timezone.now())
        except Exception as error:
            log.warning("the streams' end could not be noted: %r", error)


hub = Hub()
