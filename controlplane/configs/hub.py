"""The publisher and distributor of one web process: a thread that watches the database and wakes the streams.

One round: look at what other processes did to targets → beat for open streams → publish what has waited long enough
→ read newer revisions → tell the streams. Revoking comes first, since nothing wrong with a revision may hold it up.
A write of this process starts a round at once; those of other processes are found by polling, or told (`neighbours`).
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

from django.db import connection
from django.db.models import Q, Sum
from django.utils import timezone

from controlplane import settings_rows as rows
from controlplane.configs import metrics, presence, publisher, wakeup
from controlplane.configs.debounce import Debounce
from controlplane.configs.events import Events
from controlplane.configs.heads import Heads
from controlplane.configs.history import Damaged
from controlplane.configs.models import TargetState
from controlplane.configs.neighbours import neighbours
from controlplane.configs.streams import Streams
from controlplane.core.models import Target
from controlplane.core.sealed import unsealed

log = logging.getLogger(__name__)

heads = Heads(unsealed)
# Clocks of several web processes may differ by so much.
_LOOK_BACK = timedelta(seconds=60)


class Hub:
    def __init__(self) -> None:
        self.streams = Streams()
        self.live_gateways = 0
        self.encoded: Events | None = None
        self._poll_seconds = rows.POLL_MS.read() / 1000
        self._beat_seconds = float(rows.STREAM_PING_SECONDS.read())
        self._debounce = Debounce(rows.PUBLISH_QUIET_MS.read() / 1000, rows.PUBLISH_MAX_WAIT_MS.read() / 1000)
        self._neighbours = neighbours(rows.REDIS_URL.read(), self.wake)
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._stopping = self._draining = False
        self._wake = threading.Event()
        self._written = False
        self._waiting: publisher.Waiting | None = None
        self._beaten = 0.0
        # When a look at the targets last succeeded, and what was acknowledged then.
        self._looked_at: datetime | None = None
        self._acknowledged: dict[str, int | None] = {}
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
            if self._neighbours is not None:
                self._neighbours.start()

    def stop(self) -> None:
        """End the streams and the thread."""
        self._stopping = True
        self.drain()
        if self._neighbours is not None:
            self._neighbours.stop()
        self.wake()
        if self._thread is not None:
            self._thread.join(timeout=10)

    def drain(self) -> None:
        """End the streams and take no more, because the process is about to end. May be called from any thread."""
        self._draining = True
        self.streams.close_all()
        # Whoever waits for a change looks up, and sees `draining`.
        self.note_change()

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
        self._look_at_targets()
        self._beat()
        self._publish_due()
        self._take_newest()

    def _publish_due(self) -> None:
        if self._written:
            self._written = False
            self._tell()
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
            self._publish()

    def _publish(self) -> None:
        with metrics.PUBLISH_SECONDS.time():
            revision = publisher.publish(heads.stored())
        self._waiting = None
        self._debounce.clear()
        if revision is not None:
            log.info("published revision %d", revision.number)
            self._tell()
        else:
            self.note_change()

    def _tell(self) -> None:
        if self._neighbours is not None:
            self._neighbours.tell()

    def _take_newest(self) -> None:
        try:
            head = heads.refresh()
        except Damaged:
            # Nothing need wait to be published: whoever starts now must get the whole too.
            self._publish()
            head = heads.refresh()
        if head is None or (self.encoded is not None and self.encoded.head is head):
            return
        self.encoded = Events(head)
        self.streams.announce(head, self.live_gateways)
        self.note_change()

    def _look_at_targets(self) -> None:
        """Revoked and re-enrolled targets, and acknowledgements that other processes stored."""
        now = timezone.now()
        since = (self._looked_at or now) - _LOOK_BACK
        if recent := presence.openers(Target.objects.filter(Q(revoked_at__gte=since) | Q(enrolled_at__gte=since))):
            self.streams.close_outdated(recent)
        # By numbers, not by times, which are those of other processes' clocks.
        awaited = self.streams.awaited()
        states = TargetState.objects.filter(target_id__in=awaited)
        answers = states.values_list("target_id", "revision", "error_revision")
        newest = {target_id: max(acked or 0, refused or 0) for target_id, acked, refused in answers}
        self.streams.acknowledge({target: number for target, number in newest.items() if number >= awaited[target]})
        acknowledged = TargetState.objects.aggregate(Sum("revision"), Sum("error_revision"))
        if acknowledged != self._acknowledged:
            self._acknowledged = acknowledged
            self.note_change()
        self._looked_at = now

    def _look_at_openers(self, target_ids: set[int]) -> None:
        """Whatever the clocks say: a stream outlives neither its enrolment nor its token."""
        found = presence.openers_of(target_ids)
        self.streams.close_outdated({target_id: found.get(target_id) for target_id in target_ids})

    def _beat(self) -> None:
        opened, ended, came = self.streams.take_turnover()
        now = timezone.now()
        if time.monotonic() - self._beaten >= self._beat_seconds:
            opened |= set(self.streams.target_ids())
            self._look_at_openers(opened)
            self._beaten = time.monotonic()
        if opened:
            presence.beat(opened, now, came)
        if ended:
            presence.ended(ended, now, came - opened)
        live_gateways = presence.live_gateways(now)
        if opened or ended or live_gateways != self.live_gateways:
            self.live_gateways = live_gateways
            if self.encoded is not None:
                self.streams.announce(self.encoded.head, live_gateways)
            self.note_change()

    def _farewell(self) -> None:
        """Other processes need not wait for missed beats."""
        try:
            opened, ended, came = self.streams.take_turnover()
            presence.ended(set(self.streams.target_ids()) | opened | ended, timezone.now(), came)
        except Exception as error:
            log.warning("the streams' end could not be noted: %r", error)


hub = Hub()
