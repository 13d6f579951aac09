"""Writes that meet in time, each on a connection of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from django.db import connection

from controlplane.core.changes import SYSTEM, UnitOfWork, unit_of_work

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

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(acts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
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
