"""How a commit wakes the worker. It only hastens: what the rows say is done at the next sweep anyway."""

from __future__ import annotations

from django.db import connection, transaction

WORK = "controlplane.batches.tasks.work"
_EXPIRES_SECONDS = 60


def wake_on_commit() -> None:
    """Tell a worker that there is something to do, once this transaction is committed; once, however often asked."""
    if not any(call[1] is _wake for call in connection.run_on_commit):
        transaction.on_commit(_wake, robust=True)


def _wake() -> None:
    # Here: the project around the apps loads them.
    from controlplane.celery import app

    app.send_task(WORK, ignore_result=True, retry=False, expires=_EXPIRES_SECONDS)
