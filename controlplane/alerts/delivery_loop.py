"""Sending what is due: receivers beside each other, each one message at a time, so that none waits for another."""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

from django.db import InterfaceError, OperationalError, connection
from django.utils import timezone

from controlplane.alerts.delivery_plan import Outcome, Reason
from controlplane.alerts.models import Delivery, Receiver
from controlplane.alerts.outgoing import attempt, tick
from controlplane.alerts.services import attempts, beats
from controlplane.core.idle import give_back_connection

log = logging.getLogger(__name__)

# A receiver that takes its messages slowly has its turn, and then others have theirs.
TURN_SECONDS = 1.0
# For so long the end of an attempt is kept for a database that is away, and so often it is looked for.
SETTLE_SECONDS_MAX, SETTLE_PAUSE_SECONDS = 120.0, 0.5


class DeliveryLoop:
    """One a worker process. Its threads are its own: a receiver that hangs holds none of the worker's."""

    def __init__(self, receivers_at_once: int) -> None:
        self._pool = ThreadPoolExecutor(receivers_at_once, thread_name_prefix="webhook")
        self._lock = threading.Lock()
        # Ids of the receivers that are being sent to.
        self.busy: set[int] = set()
        # And of those that are being told something by the clock, or wait for a thread to be.
        self._telling: set[int] = set()
        self._stopping = False

    def wake(self) -> None:
        """Begin with every receiver that a message is due for and that is not being sent to. Returns at once."""
        for receiver_id in attempts.receivers_due(timezone.now()):
            with self._lock:
                if self._stopping or receiver_id in self.busy:
                    continue
                self.busy.add(receiver_id)
            self._pool.submit(self._drain, receiver_id)
        self._beat()

    def stop(self) -> None:
        """Begin no further attempt. Those under way end by themselves, within the bound on one."""
        with self._lock:
            self._stopping = True

    def _beat(self) -> None:
        """Begin with what is to be told by the clock. Threads that are stuck send no heartbeat either."""
        now = timezone.now()
        due = beats.due(now)
        why_not = beats.standstill(now) if any(beats.is_heartbeat(row) for row in due) else ""
        for row in due:
            if why_not and beats.is_heartbeat(row):
                beats.hold_back(row, why_not)
                continue
            with self._lock:
                if self._stopping or row.pk in self._telling:
                    continue
                self._telling.add(row.pk)
            self._pool.submit(self._tell, row)

    def _tell(self, row: Receiver) -> None:
        """Claimed here, and not before: what waits for a thread may be told by another worker meanwhile."""
        try:
            if not self._stopping and beats.claim(row, timezone.now()):
                _told(row)
        except Exception:
            log.exception("what %s is told by the clock failed here; it comes again", row.name)
        finally:
            give_back_connection()
            with self._lock:
                self._telling.discard(row.pk)

    def _drain(self, receiver_id: int) -> None:
        """Send what is due until its turn is over, which a failure ends: several that hang or take their time, with
        many messages each, would else keep all others waiting."""
        over, turn_ends = False, time.monotonic() + TURN_SECONDS
        try:
            while not over and not self._stopping and (row := attempts.claim(receiver_id, timezone.now())):
                began = time.monotonic()
                outcome = _attempted(row)
                ended = time.monotonic()
                self._settle(row, outcome, timezone.now(), timedelta(seconds=ended - began))
                over = outcome.reason is not Reason.TAKEN or ended > turn_ends
        except Exception:
            # What was claimed is due again when its lease ends.
            log.exception("deliveries to receiver %d stopped; the next sweep goes on", receiver_id)
        finally:
            give_back_connection()
            with self._lock:
                if over and not self._stopping:
                    self._pool.submit(self._drain, receiver_id)
                else:
                    self.busy.discard(receiver_id)

    def _settle(self, row: Delivery, outcome: Outcome, now: datetime, took: timedelta) -> None:
        """Write down how it ended, once the database takes that: what was taken would else be sent again."""
        gives_up = time.monotonic() + SETTLE_SECONDS_MAX
        while True:
            try:
                return attempts.settle(row, outcome, now, took)
            except (OperationalError, InterfaceError) as error:
                if self._stopping or time.monotonic() > gives_up:
                    raise
                log.warning("the end of delivery %s cannot be written yet: %s", row.pk, error)
                connection.close()
                time.sleep(SETTLE_PAUSE_SECONDS)


def _attempted(row: Delivery) -> Outcome:
    try:
        outcome = attempt(row)
    except Exception as error:
        log.exception("delivery %s to %s failed here", row.pk, row.receiver.name)
        return Outcome(Reason.FAILED_HERE, type(error).__name__)
    if outcome.reason is not Reason.TAKEN:
        log.warning("delivery %s to %s, attempt %d: %s", row.pk, row.receiver.name, row.attempts, outcome.error)
    return outcome


def _told(row: Receiver) -> None:
    outcome = tick(row)
    if outcome.reason is not Reason.TAKEN:
        log.warning("what %s is told by the clock: %s", row.name, outcome.error)
    beats.settle(row, outcome, timezone.now())
