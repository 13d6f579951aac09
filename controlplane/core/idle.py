"""Waiting without a database connection: there are far fewer of them than there may be requests that wait."""

from __future__ import annotations

from django.db import connection


def give_back_connection() -> None:
    """Let others have this thread's connection while it waits; its next query takes one again.

    Within a transaction the connection is kept, for it is the transaction.
    """
    if not connection.in_atomic_block:
        connection.close()
