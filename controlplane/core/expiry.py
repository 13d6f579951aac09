"""Rows whose time is over, which the program ends by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from django.db import models

from controlplane.core.changes import SYSTEM, UnitOfWork, unit_of_work

RowT = TypeVar("RowT", bound=models.Model)
# All other writes wait while one is made, so thousands that end at once are many writes.
ROWS_A_WRITE = 20


def end_all(due: models.QuerySet[RowT], reason: str, end: Callable[[UnitOfWork, RowT], object]) -> int:
    """End the rows that are `due`, after which they are no longer; answers how many."""
    due, ended = due.order_by("pk"), 0
    while due.exists():
        with unit_of_work(SYSTEM, reason) as unit:
            # Read again: who ended others meanwhile has been here before.
            found = list(due[:ROWS_A_WRITE])
            for row in found:
                end(unit, row)
        ended += len(found)
    return ended
