"""What is too old or too much is removed, in steps that hold up no other writer, and its space given back."""

from __future__ import annotations

from itertools import takewhile

from django.db import connection, models

# Each step is a transaction of its own, of milliseconds.
_ROWS_A_STEP = 500
_PAGES_A_STEP = 256
# So much of SQLite's file may be free: it is filled again at once where decisions come steadily.
_FREE_PART = 8


def forget(kind: type[models.Model], before_ms: int, rows_max: int) -> int:
    """Remove rows received before then, and the oldest beyond `rows_max`; answers how many. They have `received_ms`."""
    rows = kind._default_manager
    excess_pk = _newest_in_excess(rows, rows_max)
    removed = 0
    while True:
        oldest = list(rows.order_by("pk").values_list("pk", "received_ms")[:_ROWS_A_STEP])
        gone = list(takewhile(lambda row: row[0] <= excess_pk or row[1] < before_ms, oldest))
        if gone:
            removed += rows.filter(pk__lte=gone[-1][0]).delete()[0]
        if len(gone) < _ROWS_A_STEP:
            return removed


def _newest_in_excess(rows: models.Manager[models.Model], rows_max: int) -> int:
    ends = rows.aggregate(first=models.Min("pk"), last=models.Max("pk"))
    # To count off millions of rows takes a second, so only where there can be as many.
    if ends["last"] is None or ends["last"] - ends["first"] < rows_max:
        return 0
    excess = list(rows.order_by("-pk").values_list("pk", flat=True)[rows_max : rows_max + 1])
    return excess[0] if excess else 0


def give_space_back() -> None:
    """SQLite: return free pages to the disk. PostgreSQL's own autovacuum makes the space of removed rows usable."""
    if connection.vendor != "sqlite":
        return
    with connection.cursor() as cursor:

        def pragma(text: str) -> int:
            rows = cursor.execute(f"PRAGMA {text}").fetchall()
            return int(rows[0][0]) if rows else 0

        free = pragma("freelist_count")
        while free > pragma("page_count") // _FREE_PART:
            pragma(f"incremental_vacuum({_PAGES_A_STEP})")
            before, free = free, pragma("freelist_count")
            # A file without incremental vacuum (see migration 0003) uses its free pages again, and keeps them.
            if free >= before:
                return
