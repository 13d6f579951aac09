"""REST that gateways call for tenants and for their lines: the whole of it is `wire.batches` and OpenAI's own forms.

A gateway has looked at the tenant's key and says whose it is, as it does of everything else that it tells.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Annotated, Any, BinaryIO, Literal

from django.core.exceptions import SuspiciousOperation
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.multipartparser import MultiPartParserError
from django.utils import timezone
from ninja import Query, Router

from controlplane.batches import batches, files, lines
from controlplane.batches import settings_rows as rows
from controlplane.batches.asked import read_asked
from controlplane.batches.models import Purpose
from controlplane.batches.refusals import bad_upload, no_file
from controlplane.batches.store import PART_BYTES, store
from controlplane.core.bodies import described, read_body, read_message
from controlplane.core.errors import Forbidden, Malformed, Unavailable
from controlplane.core.models import Target, TargetKind
from controlplane.core.rest import json_answer
from controlplane.core.security import TargetAuth, target_of
from wire.batches import TENANT_HEADER, LeaseAnswer, LeaseRequest, Renewal, RenewalAnswer, Results, ResultsAnswer
from wire.canonical import Document

router = Router(tags=["targets"])
log = logging.getLogger(__name__)
_TENANT = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_TROUBLE_LASTS_SECONDS = 30
_FILES_A_PAGE, _BATCHES_A_PAGE = 10_000, 100
_EXPIRES_FIELD = "expires_after[seconds]"
After = Annotated[str, Query(max_length=64, pattern=r"^[^\x00]*$")]


class Gateway(TargetAuth):
    """Gateways alone: a node's agent serves nobody."""

    def __call__(self, request: HttpRequest) -> Target:
        target = target_of(request)
        if target.kind != TargetKind.GATEWAY:
            raise Forbidden("only a gateway works on batches", code="wrong_kind")
        return target


def _tenant(request: HttpRequest) -> str:
    name = request.headers.get(TENANT_HEADER, "")
    if not _TENANT.fullmatch(name):
        raise Malformed(f"send the tenant's name as {TENANT_HEADER}")
    return name


@contextmanager
def _store_trouble() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        log.error("files of batches are out of reach: %s", error)
        says = f"files of batches are out of reach: {error.strerror or type(error).__name__}"
        raise Unavailable(says, retry_after_seconds=_TROUBLE_LASTS_SECONDS) from error


# Files


@router.post("/batch-work/files", auth=Gateway(), summary="A gateway passes a tenant's file on")
def upload_file(request: HttpRequest) -> HttpResponse:
    """The multipart form that the tenant sent: `file`, `purpose` = batch and, if it likes, `expires_after`."""
    tenant = _tenant(request)
    try:
        # A large one is written to disk while it is read.
        with _store_trouble():
            form, sent = request.POST, request.FILES.get("file")
    except (MultiPartParserError, SuspiciousOperation) as error:
        raise bad_upload(f"the form cannot be read: {error}") from error
    if not isinstance(sent, UploadedFile):
        raise bad_upload("send multipart/form-data with the file in the field `file`")
    if form.get("purpose") != Purpose.BATCH:
        raise bad_upload("purpose must be batch; files serve nothing else here")
    seconds = _expires_seconds(form.get(_EXPIRES_FIELD))
    with _store_trouble():
        file = files.upload(store(), tenant, sent.name or "", sent.size or 0, sent.chunks(), timezone.now(), seconds)
    return json_answer(files.describe(file))


def _expires_seconds(given: object) -> int | None:
    if given is None:
        return None
    if (
        not isinstance(given, str)
        or not re.fullmatch("[0-9]{1,9}", given)
        or int(given) < files.EXPIRES_AT_LEAST_SECONDS
    ):
        raise bad_upload(f"{_EXPIRES_FIELD} must be a number of at least {files.EXPIRES_AT_LEAST_SECONDS}")
    return int(given)


@router.get("/batch-work/files", auth=Gateway(), summary="A tenant's files")
def list_files(
    request: HttpRequest,
    purpose: Literal["", "batch", "batch_output"] = "",
    limit: Annotated[int, Query(ge=1, le=_FILES_A_PAGE)] = _FILES_A_PAGE,
    after: After = "",
    order: Literal["asc", "desc"] = "desc",
) -> HttpResponse:
    found, more = files.page(_tenant(request), purpose=purpose, limit=limit, after=after, ascending=order == "asc")
    return json_answer(_listed([files.describe(file) for file in found], more))


@router.get("/batch-work/files/{file_id}", auth=Gateway(), summary="A tenant's file")
def read_file(request: HttpRequest, file_id: str) -> HttpResponse:
    return json_answer(files.describe(files.get(_tenant(request), file_id)))


@router.post("/batch-work/files/{file_id}/delete", auth=Gateway(), summary="A tenant deletes its file")
def delete_file(request: HttpRequest, file_id: str) -> HttpResponse:
    """Not while a batch reads it (409 `file_in_use`)."""
    files.delete(store(), _tenant(request), file_id)
    return json_answer({"id": file_id, "object": "file", "deleted": True})


@router.get("/batch-work/files/{file_id}/content", auth=Gateway(), summary="The content of a tenant's file")
def read_content(request: HttpRequest, file_id: str) -> StreamingHttpResponse:
    file = files.get(_tenant(request), file_id)
    with _store_trouble():
        try:
            content = store().open(file.pk)
        except FileNotFoundError:
            raise no_file(file_id) from None
    headers = {"Content-Length": str(file.size_bytes), "Cache-Control": "no-store"}
    return StreamingHttpResponse(_parts(content), content_type="application/octet-stream", headers=headers)


async def _parts(content: BinaryIO) -> AsyncIterator[bytes]:
    """An iterator of the other kind would be read whole into memory first."""
    with content:
        while part := await asyncio.to_thread(content.read, PART_BYTES):
            yield part


# Batches


@router.post("/batch-work/batches", auth=Gateway(), summary="A tenant makes a batch")
def create_batch(request: HttpRequest) -> HttpResponse:
    tenant = _tenant(request)
    return json_answer(batches.openai_form(batches.create(tenant, read_asked(request.body), timezone.now())))


@router.get("/batch-work/batches", auth=Gateway(), summary="A tenant's batches")
def list_own_batches(
    request: HttpRequest, limit: Annotated[int, Query(ge=1, le=_BATCHES_A_PAGE)] = 20, after: After = ""
) -> HttpResponse:
    found, more = batches.page(frozenset([_tenant(request)]), limit=limit, after=after)
    return json_answer(_listed([batches.openai_form(batch) for batch in found], more))


@router.get("/batch-work/batches/{batch_id}", auth=Gateway(), summary="A tenant's batch")
def read_own_batch(request: HttpRequest, batch_id: str) -> HttpResponse:
    return json_answer(batches.openai_form(batches.get(batch_id, frozenset([_tenant(request)]))))


@router.post("/batch-work/batches/{batch_id}/cancel", auth=Gateway(), summary="A tenant cancels its batch")
def cancel_own_batch(request: HttpRequest, batch_id: str) -> HttpResponse:
    batch = batches.cancel(batch_id, frozenset([_tenant(request)]), timezone.now())
    return json_answer(batches.openai_form(batch))


def _listed(found: list[Document], more: bool) -> dict[str, Any]:
    """OpenAI's list."""
    ends = {"first_id": found[0]["id"], "last_id": found[-1]["id"]} if found else {"first_id": None, "last_id": None}
    return {"object": "list", "data": found, "has_more": more, **ends}


# Lines


@router.post(
    "/batch-work/leases", auth=Gateway(), **described("batch-lease-request", LeaseAnswer), summary="Take lines to run"
)  # fmt: skip
def take_lines(request: HttpRequest) -> HttpResponse:
    """Lines of the models that the gateway has room for, until their lease ends."""
    asked = read_body(request, LeaseRequest)
    gateway: Target = request.auth  # type: ignore[attr-defined]
    with _store_trouble():
        given = lines.lease(store(), gateway.name, asked, timezone.now())
    return json_answer(LeaseAnswer(given, rows.LEASE_SECONDS.read() * 1000))


@router.post(
    "/batch-work/renewals", auth=Gateway(), **described("batch-renewal", RenewalAnswer), summary="Keep lines"
)  # fmt: skip
def keep_lines(request: HttpRequest) -> HttpResponse:
    """`lost`: another's by now, or of a batch that takes no more."""
    return json_answer(RenewalAnswer(lines.renew(read_body(request, Renewal).lines, timezone.now())))


@router.post(
    "/batch-work/results", auth=Gateway(), **described("batch-results", ResultsAnswer), summary="Hand lines over"
)  # fmt: skip
def hand_over(request: HttpRequest) -> HttpResponse:
    """What became of lines. One that comes twice counts once; answers when all are stored."""
    results = read_message(request.read(), Results).results
    return json_answer(ResultsAnswer(lines.take(results, timezone.now())), HTTPStatus.OK)
