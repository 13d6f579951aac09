"""How a commit wakes the worker. It only hastens: what the rows say is done at the next sweep anyway."""

from __future__ import annotations

from functools import partial

from django.db import connection, transaction

DELIVER = "controlplane.alerts.tasks.deliver"
NOTIFY = "controlplane.alerts.tasks.notify"
# A worker that was away finds the rows itself; it need not work through what woke it meanwhile.
EXPIRES_SECONDS = 60


def wake_on_commit(task: str = DELIVER) -> None:
    """Tell a worker that messages wait, or incidents to be looked at, once this transaction is committed; once, however
    often it is asked for.

    Each time costs a message of the broker's, or the wait for one that is away. That fails nothing: see above.
    """
    wake = _WAKES[task]
    if not any(call[1] is wake for call in connection.run_on_commit):
        transaction.on_commit(wake, robust=True)


def _wake(task: str) -> None:
    # Here: the project around the apps loads them.
    from controlplane.celery import app

    app.send_task(task, ignore_result=True, retry=False, expires=EXPIRES_SECONDS)


# One object a task, so that what is asked for twice is known.
_WAKES = {task: partial(_wake, task) for task in (DELIVER, NOTIFY)}
