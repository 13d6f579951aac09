"""One at a time: who changes the configuration, from the first row it reads to its commit."""

from __future__ import annotations

import time

from django.db import connection, transaction

from controlplane.configs import metrics

_NAME = "headworks.configuration"


def lock_configuration() -> None:
    """Hold until the transaction ends. Every unit of work and the publisher begin with it.

    So two writes cannot each remove what the other refers to or lock rows in opposite orders, and a revision never
    holds half a write. SQLite's IMMEDIATE transactions hold the whole database already.
    """
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [_NAME])


def open_write() -> None:
    """Begin a unit of work: the lock, and measuring for how long it keeps others out if it is kept."""
    lock_configuration()
    began = time.perf_counter()
    transaction.on_commit(lambda: metrics.WRITE_SECONDS.observe(time.perf_counter() - began))
