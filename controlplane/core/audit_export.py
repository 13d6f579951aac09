"""The audit as a file: JSON lines or CSV, oldest entry first, a page in memory at a time."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Literal

import msgspec
from asgiref.sync import sync_to_async
from django.db.models import QuerySet
from django.http import StreamingHttpResponse

from controlplane.core.audit import describe
from controlplane.core.idle import give_back_connection
from controlplane.core.models import AuditEntry
from wire.canonical import Document

Format = Literal["jsonl", "csv"]
COLUMNS = (
    "id", "change_id", "at", "actor_kind", "actor", "address", "noun", "key", "action", "before", "after", "reason",
    "revision",
)  # fmt: skip
PAGE_ENTRIES = 500
CONTENT_TYPES: dict[Format, str] = {"jsonl": "application/jsonl", "csv": "text/csv"}
# Spreadsheets take a cell that begins so for a formula, and run it (OWASP, CSV injection).
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")


def exported(entries: QuerySet[AuditEntry], form: Format, after: int = 0) -> StreamingHttpResponse:
    """All of these that are newer than the entry `after`, which lets a follower fetch what came since."""
    response = StreamingHttpResponse(_parts(entries, form, after), content_type=f"{CONTENT_TYPES[form]}; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="audit.{form}"'
    response["Cache-Control"] = "no-store"
    response["X-Accel-Buffering"] = "no"
    return response


async def _parts(entries: QuerySet[AuditEntry], form: Format, after: int) -> AsyncIterator[bytes]:
    if form == "csv":
        yield _csv_lines([COLUMNS])
    encode = _ENCODERS[form]
    while found := await sync_to_async(_page)(entries, after):
        yield encode(found)
        after = found[-1]["id"]


def _page(entries: QuerySet[AuditEntry], after: int) -> list[Document]:
    try:
        return [describe(entry) for entry in entries.filter(pk__gt=after).order_by("pk")[:PAGE_ENTRIES]]
    finally:
        # A reader may be slow to take the page.
        give_back_connection()


def _as_lines(found: Sequence[Document]) -> bytes:
    return msgspec.json.Encoder().encode_lines(found)


def _as_csv(found: Sequence[Document]) -> bytes:
    return _csv_lines([[_cell(entry[column]) for column in COLUMNS] for entry in found])


_ENCODERS: dict[Format, Callable[[Sequence[Document]], bytes]] = {"jsonl": _as_lines, "csv": _as_csv}


def _csv_lines(lines: Sequence[Sequence[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(lines)
    return text.getvalue().encode()


def _cell(value: Any) -> Any:
    """Rows as JSON; a text that a spreadsheet would run has an apostrophe before it, which none shows."""
    if isinstance(value, dict):
        return msgspec.json.encode(value).decode()
    if isinstance(value, str) and value.startswith(_FORMULA_STARTS):
        return f"'{value}"
    return value
