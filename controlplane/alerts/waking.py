"""How a commit wakes the worker. It only hastens: what the rows say is done at the next sweep anyway."""

from __future__ import annotations

DELIVER = "controlplane.alerts.tasks.deliver"
# A worker that was away finds the rows itself; it need not work through what woke it meanwhile.
EXPIRES_SECONDS = 60


def wake_deliveries() -> None:
    """Tell a worker that messages wait. Raises what the broker raises when it is away."""
    # Here: the project around the apps loads them.
    from controlplane.celery import app

    app.send_task(DELIVER, ignore_result=True, retry=False, expires=EXPIRES_SECONDS)
