"""Sending what is due: receivers beside each other, each one message at a time, so that none waits for another."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor

from django.utils import timezone

from controlplane.alerts.delivery_plan import Outcome, Reason
from controlplane.alerts.models import Delivery
from controlplane.alerts.outgoing import attempt
from controlplane.alerts.services import attempts
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

    def stop(self) -> None:
        """Begin no further attempt. Those under way end by themselves, within the bound on one."""
        with self._lock:
            self._stopping = True

    def _drain(self, receiver_id: int) -> None:
        """Send what is due. A failed attempt sends the receiver to the end of the queue: several that hang, with many
        messages each, would else keep all others waiting."""
        failed = False
        try:
            while not failed and not self._stopping and (row := attempts.claim(receiver_id, timezone.now())):
                outcome = _attempted(row)
                attempts.settle(row, outcome, timezone.now())
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
