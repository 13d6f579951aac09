"""Connections to Django's database that threads of tests leave open, as asyncio's and executors' do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

# Of every thread.
_opened: WeakSet[BaseDatabaseWrapper] = WeakSet()


@contextmanager
def noted() -> Iterator[None]:
    """Every connection that is opened within the block is known here."""
    from django.db.backends.signals import connection_created

    connection_created.connect(_note)
    try:
        yield
    finally:
        connection_created.disconnect(_note)


def _note(connection: BaseDatabaseWrapper, **_signal: object) -> None:
    _opened.add(connection)


def close_those_left() -> None:
    """Whichever thread opened them: to be called when none of them asks any more."""
    for connection in list(_opened):
        connection.inc_thread_sharing()
        try:
            connection.close()
        finally:
            connection.dec_thread_sharing()
