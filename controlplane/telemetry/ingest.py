"""`POST /prometheus/api/v1/write` as a small ASGI application beside Django, which would start a thread a body."""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any, TypeVar

from django.core.handlers.asgi import ASGIRequest
from django.db import Error, connections
from django.http import HttpResponse

from controlplane.core.asgi import Application, Receive, Send, send_whole
from controlplane.core.errors import Malformed, Refused, TooLarge, problem_response
from controlplane.telemetry import receiver
from controlplane.telemetry import settings_rows as rows
from controlplane.telemetry.metrics import REFUSED_BODIES, SAMPLES
from controlplane.telemetry.refusals import Busy

log = logging.getLogger(__name__)

PATH = "/prometheus/api/v1/write"
# Of remote write 2.0, whose senders look for them in every answer.
_SAMPLES_WRITTEN = "X-Prometheus-Remote-Write-Samples-Written"
_NOT_WRITTEN = {f"X-Prometheus-Remote-Write-{what}-Written": "0" for what in ("Histograms", "Exemplars")}
# A body is some 100 KB: a writer that takes longer has lost its connection.
_BODY_SECONDS = 30.0
# Bodies in hand; the rest are told to come again, so that memory is bounded.
_IN_HAND_MAX = 64
# Most of a write is waiting: for the database, the disk, an external server.
_threads = ThreadPoolExecutor(max_workers=8, thread_name_prefix="remote-write")

T = TypeVar("T")


class Left(Exception):
    """The writer closed the connection within its body."""


def with_remote_write(site: Application) -> Application:
    """`site`, with remote writes answered here instead."""
    in_hand = 0

    async def application(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        nonlocal in_hand
        if scope["type"] != "http" or scope["path"] != PATH:
            await site(scope, receive, send)
            return
        if in_hand >= _IN_HAND_MAX:
            await send_whole(send, _refusal(Busy("too many writes at once; send again")))
            return
        in_hand += 1
        try:
            await send_whole(send, await _written(scope, receive))
        except Left:
            pass
        finally:
            in_hand -= 1

    return application


async def _written(scope: dict[str, Any], receive: Receive) -> HttpResponse:
    try:
        target = await _in_thread(lambda: receiver.authenticated(ASGIRequest(scope, io.BytesIO())))
        body = await _body(receive, rows.METRICS_BODY_MAX_BYTES.read())
        samples = await _in_thread(lambda: receiver.take(target, body))
    except Refused as refused:
        return _refusal(refused)
    except Error as error:
        log.error("a write could not be checked: %s", error)
        return _refusal(Busy("the database does not answer now; send again"))
    SAMPLES.inc(samples)
    return HttpResponse(status=HTTPStatus.NO_CONTENT, headers={**_NOT_WRITTEN, _SAMPLES_WRITTEN: str(samples)})


def _refusal(refused: Refused) -> HttpResponse:
    REFUSED_BODIES.labels(refused.code).inc()
    return problem_response(refused)


async def _in_thread(work: Callable[[], T]) -> T:
    def run() -> T:
        try:
            return work()
        finally:
            connections.close_all()

    return await asyncio.get_running_loop().run_in_executor(_threads, run)


async def _body(receive: Receive, limit_bytes: int) -> bytes:
    """Raises TooLarge, Malformed (too slow), Left."""
    parts, size = [], 0
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Left
                part = message.get("body", b"")
                size += len(part)
                if size > limit_bytes:
                    raise TooLarge(f"send at most {limit_bytes} bytes at once", code="body_too_large")
                parts.append(part)
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError:
        raise Malformed(f"the body did not come within {_BODY_SECONDS:g} s") from None
