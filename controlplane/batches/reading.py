"""A batch's file is read: a row for each of its lines, broken ones too, which have failed then.

Begun anew where a worker died over it. Memory holds one line, and a short digest of each custom_id.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from hashlib import blake2b
from typing import BinaryIO, NamedTuple

from django.db import transaction

from controlplane.batches import settings_rows as rows
from controlplane.batches import written
from controlplane.batches.claims import Claim
from controlplane.batches.models import Batch, Line, LineState, Status
from controlplane.batches.store import Store
from policy.batches.lines import CUSTOM_ID_MAX_CHARACTERS, BrokenLine, read_line
from wire.canonical import Document

_ROWS_AT_ONCE = 500
_SKIP_BYTES = 64 * 1024
_DIGEST_BYTES = 16
_ERRORS_TOLD = 20


class NotTaken(Exception):
    """The whole file is of no use. `errors`: OpenAI's form of why."""

    def __init__(self, *errors: Document) -> None:
        super().__init__(errors[0]["message"])
        self.errors = list(errors)


class Raw(NamedTuple):
    """A line as it stands in the file; `text` None: it is longer than a line may be."""

    number: int
    offset_bytes: int
    text: bytes | None


def read(store: Store, batch: Batch, claim: Claim, now: datetime) -> None:
    """Make the rows, and let gateways have them. Raises OSError, Lost where somebody cancelled it meanwhile."""
    Line.objects.filter(batch=batch).delete()
    try:
        with store.open(batch.input_file_id) as file:
            good, broken = _make_rows(batch, claim, file, now)
    except FileNotFoundError:
        _refuse(batch, claim, [_error("file_not_found", "the batch's file is gone", None)], now)
        return
    except NotTaken as error:
        _refuse(batch, claim, error.errors, now)
        return
    if not good:
        _refuse(batch, claim, broken[:_ERRORS_TOLD], now)
        return
    claim.move(status=Status.IN_PROGRESS, in_progress_at=now, total=good + len(broken), failed=len(broken))


def _make_rows(batch: Batch, claim: Claim, file: BinaryIO, now: datetime) -> tuple[int, list[Document]]:
    """How many lines can be run, and what is wrong with each that cannot. Raises NotTaken."""
    seen: set[bytes] = set()
    made: list[Line] = []
    good, broken = 0, list[Document]()
    for raw in raw_lines(file, rows.LINE_MAX_BYTES.read()):
        if good + len(broken) >= rows.LINES_MAX.read():
            most = rows.LINES_MAX.read()
            raise NotTaken(_error("too_many_lines", f"a batch may have {most} lines (HEADWORKS_BATCH_LINES_MAX)", None))
        try:
            made.append(_row(batch, raw, seen, now))
            good += 1
        except BrokenLine as error:
            made.append(_broken_row(batch, raw, error))
            broken.append(_error(error.code, str(error), raw.number))
        if len(made) == _ROWS_AT_ONCE:
            _store(made, claim)
            made = []
    _store(made, claim)
    if not good and not broken:
        raise NotTaken(_error("empty_file", "the file has no line", None))
    return good, broken


def _row(batch: Batch, raw: Raw, seen: set[bytes], now: datetime) -> Line:
    if raw.text is None:
        says = f"the line has more than {rows.LINE_MAX_BYTES.read()} bytes (HEADWORKS_BATCH_LINE_MAX_BYTES)"
        raise BrokenLine("line_too_long", says)
    line = read_line(raw.text, batch.endpoint)
    digest = blake2b(line.custom_id.encode(errors="surrogatepass"), digest_size=_DIGEST_BYTES).digest()
    if digest in seen:
        raise BrokenLine("duplicate_custom_id", "another line before it has this custom_id", line.custom_id)
    seen.add(digest)
    return Line(
        batch=batch,
        number=raw.number,
        custom_id=line.custom_id,
        model=line.model,
        offset_bytes=raw.offset_bytes,
        size_bytes=len(raw.text),
        due_at=now,
    )


def _broken_row(batch: Batch, raw: Raw, error: BrokenLine) -> Line:
    custom_id = error.custom_id[:CUSTOM_ID_MAX_CHARACTERS]
    text = written.unanswered(batch.pk, raw.number, custom_id, error.code, f"line {raw.number}: {error}")
    return Line(batch=batch, number=raw.number, custom_id=custom_id, state=LineState.FAILED, written=text)


def _store(made: list[Line], claim: Claim) -> None:
    with transaction.atomic():
        claim.hold()
        Line.objects.bulk_create(made)


def _refuse(batch: Batch, claim: Claim, errors: list[Document], now: datetime) -> None:
    with transaction.atomic():
        claim.move(status=Status.FAILED, failed_at=now, errors=errors)
        Line.objects.filter(batch=batch).delete()


def _error(code: str, message: str, line: int | None) -> Document:
    return {"code": code, "message": message, "param": None, "line": line}


def raw_lines(file: BinaryIO, most_bytes: int) -> Iterator[Raw]:
    """The lines that are not blank, with their numbers; of one that is too long no more than that is held."""
    number, offset = 0, 0
    while text := file.readline(most_bytes + 1):
        number += 1
        begins, size = offset, len(text)
        cut = size > most_bytes and not text.endswith(b"\n")
        ended = text.endswith(b"\n")
        while cut and not ended and (rest := file.readline(_SKIP_BYTES)):
            size += len(rest)
            ended = rest.endswith(b"\n")
        offset += size
        if cut:
            yield Raw(number, begins, None)
        elif text.strip():
            yield Raw(number, begins, text.rstrip(b"\r\n"))
