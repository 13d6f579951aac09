"""One at a time: who opens or ends alerts, or has several incidents looked at."""

from __future__ import annotations

from django.db import connection

_NAME = "headworks.alerts"


def lock_alerts() -> None:
    """Hold until the transaction ends; taken before the row of any incident.

    So of two that share groups none waits for the other's rows in the opposite order. It is held for a few statements,
    however many alerts come at once. SQLite's IMMEDIATE transactions hold the whole database already.
    """
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [_NAME])
