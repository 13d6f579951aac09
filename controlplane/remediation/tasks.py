"""Work on repairs that the beat asks for."""

from __future__ import annotations

from threading import Lock

from celery import shared_task

from controlplane.remediation import runner

_looking = Lock()


@shared_task  # type: ignore[untyped-decorator]
def look() -> int:
    """Take every repair that is open as far as it comes; how many. One such task a worker."""
    if not _looking.acquire(blocking=False):
        return 0
    try:
        return runner.look_at_all()
    finally:
        _looking.release()
