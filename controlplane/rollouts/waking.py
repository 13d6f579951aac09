"""How a write wakes the worker. It only hastens: what the rows say is done at the next sweep anyway."""

from __future__ import annotations

from django.db import connection, transaction

LOOK = "controlplane.rollouts.tasks.look"
EXPIRES_SECONDS = 10


def wake_on_commit() -> None:
    """Tell a worker to look, once this transaction is committed; once, however often it is asked for."""
    if not any(call[1] is _wake for call in connection.run_on_commit):
        transaction.on_commit(_wake, robust=True)


def _wake() -> None:
    # Here: the project around the apps loads them.
    from controlplane.celery import app

    app.send_task(LOOK, ignore_result=True, retry=False, expires=EXPIRES_SECONDS)
