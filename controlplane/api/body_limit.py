"""Bounds request bodies before Django takes them: it would keep a whole body on disk before anything judges it."""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import Callable
from typing import Any

from django.core.handlers.asgi import ASGIRequest
from django.db import connections

from controlplane import settings_rows as rows
from controlplane.api.failed import DATABASE_TROUBLE, failure
from controlplane.core.asgi import Application, Message, Receive, Send, send_whole
from controlplane.core.errors import Refused, TooLarge, problem_response
from controlplane.core.security import admin

log = logging.getLogger(__name__)


UPLOAD = ("POST", "/api/v1/artifacts")


def admin_by_token(scope: dict[str, Any]) -> Refused | None:
    """Why the caller may not upload. Runs in a thread."""
    try:
        admin.by_token(ASGIRequest(scope, io.BytesIO()))
    except Refused as refused:
        return refused
    except DATABASE_TROUBLE as error:
        log.error("an upload could not be judged", exc_info=error)
        return failure(error)
    finally:
        connections.close_all()
    return None


def with_body_limit(
    site: Application, may_upload: Callable[[dict[str, Any]], Refused | None] = admin_by_token
) -> Application:
    """`site`, with larger bodies refused (413): at once by what Content-Length says, else by what has come.

    An upload that is larger than other bodies may be is taken from an admin's token only (401, 403).
    """
    body_max, upload_max = rows.BODY_MAX_BYTES.read(), rows.ARTIFACT_MAX_BYTES.read()

    async def application(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await site(scope, receive, send)
            return
        bounds = _Bounds(scope, body_max, upload_max, may_upload)
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

    def __init__(
        self,
        scope: dict[str, Any],
        body_max: int,
        upload_max: int,
        may_upload: Callable[[dict[str, Any]], Refused | None],
    ) -> None:
        self._scope, self._body_max, self._may_upload = scope, body_max, may_upload
        self._upload = (scope["method"], scope["path"]) == UPLOAD
        self._limit = max(body_max, upload_max) if self._upload else body_max
        self._judged = False

    async def refusal(self, size_bytes: int) -> Refused | None:
        """Why a body of so many bytes is not taken."""
        if size_bytes > self._limit:
            if self._upload:
                return TooLarge(f"an artifact may have at most {self._limit} bytes (HEADWORKS_ARTIFACT_MAX_BYTES)")
            return TooLarge(f"the body may have at most {self._limit} bytes (HEADWORKS_BODY_MAX_BYTES)")
        if size_bytes <= self._body_max or self._judged:
            return None
        self._judged = True
        return await asyncio.to_thread(self._may_upload, self._scope)


def _content_length(scope: dict[str, Any]) -> int:
    """0 where it is not given; the server itself refuses one that is no number."""
    return next((int(value) for name, value in scope["headers"] if name == b"content-length" and value.isdigit()), 0)
