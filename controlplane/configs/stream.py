"""`GET /api/v1/config/stream`: a target's config stream, as a small ASGI application beside Django.

Django would keep a thread for every open stream, since its middleware runs in one per request.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.core.handlers.asgi import ASGIRequest
from django.db import connections

from controlplane import settings_rows as rows
from controlplane.configs import events
from controlplane.configs.hub import heads, hub
from controlplane.configs.models import TargetState
from controlplane.configs.slices import Slice
from controlplane.configs.streams import Opener, Stream
from controlplane.core.asgi import Application, Receive, Send, send_whole
from controlplane.core.enrolment import check_protocol
from controlplane.core.errors import Malformed, MethodNotAllowed, Refused, Unavailable, problem_response
from controlplane.core.models import Target
from controlplane.core.security import target_of

log = logging.getLogger(__name__)

PATH = "/api/v1/config/stream"
PROTOCOL_HEADER = "X-Headworks-Protocol"
MAX_HAVE_DIGITS = 16
_SHA256 = re.compile("[0-9a-f]{64}")

_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    # nginx and others would hold events back.
    (b"x-accel-buffering", b"no"),
]
# Opening a stream asks the database; a thousand targets that come back at once queue here.
_threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="config-stream")


def with_config_streams(site: Application) -> Application:
    """`site`, with config streams answered here instead."""

    async def application(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == PATH:
            await config_stream(scope, receive, send)
        else:
            await site(scope, receive, send)

    return application


async def config_stream(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """Answer one target until it goes, is revoked, or the process ends. A refusal is a problem body."""
    loop = asyncio.get_running_loop()
    try:
        stream = await loop.run_in_executor(_threads, _open, scope, loop)
    except Refused as refused:
        await send_whole(send, problem_response(refused))
        return
    except Exception:
        log.exception("a config stream could not be opened")
        await send_whole(send, problem_response(Unavailable("the control plane cannot answer now; try again")))
        return
    hub.streams.add(stream)
    if hub.draining:
        # The end came between opening and adding.
        stream.closed = True
    hub.wake()
    serving = asyncio.create_task(_serve(stream, send))
    leaving = asyncio.create_task(_left(receive))
    try:
        await asyncio.wait((serving, leaving), return_when=asyncio.FIRST_COMPLETED)
        if serving.done() and (error := serving.exception()):
            log.error("the stream of %s %s failed", stream.kind, stream.name, exc_info=error)
    finally:
        hub.streams.remove(stream)
        hub.wake()
        serving.cancel()
        leaving.cancel()
    with contextlib.suppress(Exception):  # the reader may have left
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _open(scope: dict[str, Any], loop: asyncio.AbstractEventLoop) -> Stream:
    """Who is calling, and what it holds. Runs in a thread. Raises Refused."""
    try:
        request = ASGIRequest(scope, io.BytesIO())
        if request.method != "GET":
            raise MethodNotAllowed("open a config stream with GET")
        if hub.draining:
            raise Unavailable("this process is about to end; connect again")
        target = target_of(request)
        check_protocol(request.headers.get(PROTOCOL_HEADER))
        have, digest = _revision(request.GET.get("have", "0")), _digest(request.GET.get("hash", ""))
        hub.start()
        return Stream(
            target.pk,
            target.kind,
            target.name,
            Opener(target.enrolled_at, target.token_hash),
            target.token_expires_at.timestamp(),
            loop,
            base=_base(target, have, digest) if have else None,
        )
    finally:
        connections.close_all()


def _revision(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_HAVE_DIGITS):
        raise Malformed("have: give the number of the revision that you hold, or 0 for none")
    return int(text)


def _digest(text: str) -> str:
    if text and not _SHA256.fullmatch(text):
        raise Malformed(
            "hash: give the SHA-256 of the slice that you hold, in 64 lower-case hex digits, or leave it out"
        )
    return text


def _base(target: Target, have: int, digest: str) -> tuple[int, Slice] | None:
    """What the target holds, if we still know it; otherwise it gets the whole.

    A number alone does not say it: a database that was restored counts the lost numbers anew.
    """
    newest = heads.refresh()
    if newest is None or have > newest.number:
        return None
    if (head := heads.recent(have)) is not None:
        slice = head.slice(target.kind, target.name)
        return (have, slice) if digest in ("", slice.hash) else None
    # Long ago, but it may be what it should run all the same.
    slice = newest.slice(target.kind, target.name)
    if digest:
        same = digest == slice.hash
    else:
        same = TargetState.objects.filter(target=target, revision=have, hash=slice.hash).exists()
    return (have, slice) if same else None


async def _serve(stream: Stream, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    ping_seconds = rows.STREAM_PING_SECONDS.read()
    said = time.monotonic()
    # So that the reader sees at once that it is connected.
    await _say(send, events.PING)
    while (reason := stream.over(time.monotonic(), time.time())) is None:
        stream.woken.clear()
        now = time.monotonic()
        event = stream.next_event(hub.encoded, hub.live_gateways, now) if hub.encoded else None
        if event is None:
            ping_due = said + ping_seconds - now
            patience = stream.patience_seconds(now)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, ping_due if patience is None else min(ping_due, patience))):
                    await stream.woken.wait()
            if time.monotonic() < said + ping_seconds:
                continue
            event = events.PING
        await _say(send, event)
        said = time.monotonic()
    log.info("the stream of %s %s ends: %s", stream.kind, stream.name, reason)


async def _say(send: Send, event: bytes) -> None:
    await send({"type": "http.response.body", "body": event, "more_body": True})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
