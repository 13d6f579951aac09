"""Writes that meet in time, each on a connection of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from django.db import connection

from controlplane.core.changes import SYSTEM, UnitOfWork, unit_of_work

# Longer than a statement may take (`statement_timeout`): one that waits for a lock ends by itself.
END_SECONDS = 70
Ends = list[type[BaseException] | None]
two_writers = pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has one writer at a time")


def at_once(*acts: Callable[[], object]) -> Ends:
    """Run the acts at once; what each ended with."""
    barrier = threading.Barrier(len(acts))
    ends: Ends = [None] * len(acts)

    def run(index: int) -> None:
        try:
            barrier.wait(10)
            acts[index]()
        except BaseException as error:
            ends[index] = type(error)
        finally:
            connection.close()

    # Of one that never ends no end is known, and the run must not wait for it.
    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(len(acts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(END_SECONDS)
    assert not any(thread.is_alive() for thread in threads), f"an act did not end within {END_SECONDS} s"
    return ends


def race(*writes: Callable[[UnitOfWork], object]) -> Ends:
    """Run the writes at once, each in a unit of work; what each ended with."""

    def write(act: Callable[[UnitOfWork], object]) -> Callable[[], None]:
        def run() -> None:
            with unit_of_work(SYSTEM, "a race") as unit:
                act(unit)

        return run

    return at_once(*map(write, writes))


def meeting() -> Callable[[], None]:
    """A call that holds its thread until another thread calls it too, or half a second later.

    Where one of the two has to wait for the other to end, they do not meet.
    """
    barrier = threading.Barrier(2)

    def meet() -> None:
        try:
            barrier.wait(0.5)
        except threading.BrokenBarrierError:
            return

    return meet
