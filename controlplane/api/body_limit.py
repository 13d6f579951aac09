"""Bounds request bodies before Django takes them: it would keep a whole body on disk before anything judges it."""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from django.core.handlers.asgi import ASGIRequest
from django.db import connections

from controlplane import settings_rows as rows
from controlplane.api.failed import DATABASE_TROUBLE, failure
from controlplane.batches import settings_rows as batch_rows
from controlplane.core.asgi import Application, Message, Receive, Send, send_whole
from controlplane.core.errors import Refused, TooLarge, problem_response
from controlplane.core.security import admin, target_of
from wire.batches import WORK_PATH
from wire.settings import Setting

log = logging.getLogger(__name__)

Judge = Callable[[dict[str, Any]], Refused | None]


class Upload(NamedTuple):
    """A call whose body may be larger than others. `judge`: why the caller may not; it runs in a thread."""

    what: str
    row: Setting[int]
    judge: Judge
    # What stands around the content.
    form_bytes: int = 0


def admin_by_token(scope: dict[str, Any]) -> Refused | None:
    """Why the caller is no admin."""
    return _refusal_by(admin.by_token, scope)


def target_by_token(scope: dict[str, Any]) -> Refused | None:
    """Why the caller is no enrolled target."""
    return _refusal_by(target_of, scope)


def _refusal_by(check: Callable[[ASGIRequest], object], scope: dict[str, Any]) -> Refused | None:
    try:
        check(ASGIRequest(scope, io.BytesIO()))
    except Refused as refused:
        return refused
    except DATABASE_TROUBLE as error:
        log.error("an upload could not be judged", exc_info=error)
        return failure(error)
    finally:
        connections.close_all()
    return None


def uploads(may_upload: Judge) -> dict[tuple[str, str], Upload]:
    """By method and path."""
    form_bytes = rows.BODY_MAX_BYTES.read()
    return {
        ("POST", "/api/v1/artifacts"): Upload("an artifact", rows.ARTIFACT_MAX_BYTES, may_upload),
        ("POST", f"{WORK_PATH}/files"): Upload("a file", batch_rows.FILE_MAX_BYTES, target_by_token, form_bytes),
        ("POST", f"{WORK_PATH}/results"): Upload("results", batch_rows.RESULT_MAX_BYTES, target_by_token),
    }


def with_body_limit(site: Application, may_upload: Judge = admin_by_token) -> Application:
    """`site`, with larger bodies refused (413): at once by what Content-Length says, else by what has come.

    An upload that is larger than other bodies may be is taken from an admin's or a target's token only (401, 403).
    """
    body_max, larger = rows.BODY_MAX_BYTES.read(), uploads(may_upload)

    async def application(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await site(scope, receive, send)
            return
        bounds = _Bounds(scope, body_max, larger.get((scope["method"], scope["path"])))
        if (refused := await bounds.refusal(_content_length(scope))) is not None:
            await send_whole(send, problem_response(refused))
            return
        taken, started = 0, False

        async def counted() -> Message:
            nonlocal taken, refused
            message = await receive()
            taken += len(message.get("body", b""))
            refused = refused or await bounds.refusal(taken)
            # To the site it looks as if the client had left, so it drops the request.
            return {"type": "http.disconnect"} if refused else message

        async def noted(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        await site(scope, counted, noted)
        if refused and not started:
            await send_whole(send, problem_response(refused))

    return application


class _Bounds:
    """What of one request's body is taken."""

    def __init__(self, scope: dict[str, Any], body_max: int, upload: Upload | None) -> None:
        self._scope, self._body_max, self._upload = scope, body_max, upload
        self._limit = body_max if upload is None else max(body_max, upload.row.read() + upload.form_bytes)
        self._judged = False

    async def refusal(self, size_bytes: int) -> Refused | None:
        """Why a body of so many bytes is not taken."""
        if size_bytes > self._limit:
            if (upload := self._upload) is not None:
                return TooLarge(f"{upload.what} may have at most {upload.row.read()} bytes ({upload.row.name})")
            return TooLarge(f"the body may have at most {self._limit} bytes (HEADWORKS_BODY_MAX_BYTES)")
        if self._upload is None or size_bytes <= self._body_max or self._judged:
            return None
        self._judged = True
        return await asyncio.to_thread(self._upload.judge, self._scope)


def _content_length(scope: dict[str, Any]) -> int:
    """0 where it is not given; the server itself refuses one that is no number."""
    return next((int(value) for name, value in scope["headers"] if name == b"content-length" and value.isdigit()), 0)
