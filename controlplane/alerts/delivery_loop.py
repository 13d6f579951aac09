"""Sending what is due: receivers beside each other, each one message at a time, so that none waits for another."""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from django.utils import timezone

from controlplane.alerts.delivery_plan import Outcome, Reason
from controlplane.alerts.models import Delivery, Receiver
from controlplane.alerts.outgoing import attempt, tick
from controlplane.alerts.services import attempts, beats
from controlplane.core.idle import give_back_connection

log = logging.getLogger(__name__)


class DeliveryLoop:
    """One a worker process. Its threads are its own: a receiver that hangs holds none of the worker's."""

    def __init__(self, receivers_at_once: int) -> None:
        self._pool = ThreadPoolExecutor(receivers_at_once, thread_name_prefix="webhook")
        self._lock = threading.Lock()
        # Ids of the receivers that are being sent to.
        self.busy: set[int] = set()
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
            elif not self._stopping and beats.claim(row, now):
                self._pool.submit(_tell, row)

    def _drain(self, receiver_id: int) -> None:
        """Send what is due. A failed attempt sends the receiver to the end of the queue: several that hang, with many
        messages each, would else keep all others waiting."""
        failed = False
        try:
            while not failed and not self._stopping and (row := attempts.claim(receiver_id, timezone.now())):
                began = time.monotonic()
                outcome = _attempted(row)
                attempts.settle(row, outcome, timezone.now(), timedelta(seconds=time.monotonic() - began))
                failed = outcome.reason is not Reason.TAKEN
        except Exception:
            # What was claimed is due again when its lease ends.
            log.exception("deliveries to receiver %d stopped; the next sweep goes on", receiver_id)
        finally:
            give_back_connection()
            with self._lock:
                if failed and not self._stopping:
                    self._pool.submit(self._drain, receiver_id)
                else:
                    self.busy.discard(receiver_id)


def _attempted(row: Delivery) -> Outcome:
    try:
        outcome = attempt(row)
    except Exception as error:
        log.exception("delivery %s to %s failed here", row.pk, row.receiver.name)
        return Outcome(Reason.FAILED_HERE, type(error).__name__)
    if outcome.reason is not Reason.TAKEN:
        log.warning("delivery %s to %s, attempt %d: %s", row.pk, row.receiver.name, row.attempts, outcome.error)
    return outcome


def _tell(row: Receiver) -> None:
    try:
        outcome = tick(row)
        if outcome.reason is not Reason.TAKEN:
            log.warning("what %s is told by the clock: %s", row.name, outcome.error)
        beats.settle(row, outcome, timezone.now())
    except Exception:
        log.exception("what %s is told by the clock failed here; it comes again", row.name)
    finally:
        give_back_connection()
