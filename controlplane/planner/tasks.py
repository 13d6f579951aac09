"""Scheduled work on what-if runs."""

from __future__ import annotations

import logging
import threading
from datetime import timedelta

from celery import shared_task
from celery.signals import worker_shutdown, worker_shutting_down
from django.utils import timezone

from controlplane import settings_rows as rows
from controlplane.core.idle import give_back_connection
from controlplane.planner import what_if, what_if_child, what_if_work

log = logging.getLogger(__name__)


# A child that was told to end is waited for up to twice this; what has not ended then ends with the process.
END_SECONDS = 3 * what_if_child.GRACE_SECONDS


class Workbench:
    """One a worker process, with a thread of its own: a run takes minutes, and holds none of the worker's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()

    def wake(self) -> bool:
        """Begin with what waits, unless that is under way; whether it began. Returns at once."""
        with self._lock:
            if self._stopping.is_set() or (self._thread is not None and self._thread.is_alive()):
                return False
            self._thread = threading.Thread(target=self._work, name="what-if", daemon=True)
            self._thread.start()
            return True

    def stop(self) -> None:
        """Tell what is under way to end; the next worker begins it anew. Returns at once."""
        self._stopping.set()

    def wait(self, seconds: float) -> bool:
        """Until what was told to end has given its run back, but no longer than that; whether it has."""
        thread = self._thread
        if thread is not None:
            thread.join(seconds)
        return thread is None or not thread.is_alive()

    def _work(self) -> None:
        try:
            while not self._stopping.is_set() and what_if_work.work(timezone.now(), self._stopping):
                pass
        except Exception:
            # What was claimed is begun again when its lease ends.
            log.exception("what-if runs stopped; the next look goes on")
        finally:
            give_back_connection()


_bench = Workbench()


@worker_shutting_down.connect  # type: ignore[untyped-decorator]
def _stop(**_: object) -> None:
    _bench.stop()


@worker_shutdown.connect  # type: ignore[untyped-decorator]
def _wait(**_: object) -> None:
    # Killed with the process, its run would count as begun, and fail when that has happened twice.
    if not _bench.wait(END_SECONDS):
        log.warning("a what-if run did not end within %d s; the next worker begins it anew", END_SECONDS)


@shared_task  # type: ignore[untyped-decorator]
def run_what_ifs() -> bool:
    """Carry out the what-if runs that wait, one after another; whether it began. Returns at once."""
    return _bench.wake()


@shared_task  # type: ignore[untyped-decorator]
def prune_what_ifs() -> int:
    """Forget what-if runs that ended more than HEADWORKS_WHAT_IFS_KEEP_DAYS ago; how many."""
    return what_if.prune(timezone.now() - timedelta(days=rows.WHAT_IFS_KEEP_DAYS.read()))
