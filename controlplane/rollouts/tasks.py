"""Work on rollouts that the beat or a commit asks for."""

from __future__ import annotations

from threading import Lock

from celery import shared_task

from controlplane.rollouts import runner

_looking = Lock()


@shared_task  # type: ignore[untyped-decorator]
def look() -> int:
    """Take every rollout that is due as far as it comes; how many. One such task a worker: queries can be slow."""
    if not _looking.acquire(blocking=False):
        return 0
    try:
        return runner.look_at_all()
    finally:
        _looking.release()
