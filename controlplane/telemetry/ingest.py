"""`POST /prometheus/api/v1/write` as a small ASGI application beside Django, which would start a thread a body."""

from __future__ import annotations

import asyncio
import io
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, TypeVar

from django.core.handlers.asgi import ASGIRequest
from django.db import Error, connections
from django.http import HttpResponse

from controlplane.core.asgi import Application, Receive, Send, send_whole
from controlplane.core.errors import Refused, TooLarge, problem_response
from controlplane.telemetry import receiver
from controlplane.telemetry import settings_rows as rows
from controlplane.telemetry.metrics import REFUSED_BODIES, SAMPLES, WRITER_REFUSED_BODIES, WRITER_SAMPLES
from controlplane.telemetry.ownership import WRITER
from controlplane.telemetry.refusals import Busy
from controlplane.telemetry.store.writer import Owner

log = logging.getLogger(__name__)

PATH = "/prometheus/api/v1/write"
# Of remote write 2.0, whose senders look for them in every answer.
_SAMPLES_WRITTEN = "X-Prometheus-Remote-Write-Samples-Written"
_NOT_WRITTEN = {f"X-Prometheus-Remote-Write-{what}-Written": "0" for what in ("Histograms", "Exemplars")}
# A body is some 100 KB: a writer that takes longer has lost its connection.
_BODY_SECONDS = 30.0
# Bodies in hand; the rest are told to come again, so that memory is bounded.
_IN_HAND_MAX = 64
# Of one writer: however slowly its bodies come, there is room for others.
_IN_HAND_OF_ONE_MAX = 32
# As many bytes as so many of the largest bodies have.
_LARGEST_IN_HAND_MAX = 4
# Most of a write is waiting: for the database, the disk, an external server.
_threads = ThreadPoolExecutor(max_workers=8, thread_name_prefix="remote-write")

T = TypeVar("T")


class Left(Exception):
    """The writer closed the connection within its body."""


class _InHand:
    """What is being taken now: bodies, of all writers and of each, and the bytes of them that came. Of one event loop.

    Every method raises Busy where there is no room for more.
    """

    def __init__(self) -> None:
        self._bodies: Counter[Owner] = Counter()
        self._bytes: Counter[Owner] = Counter()
        self._all = 0

    @contextmanager
    def body(self) -> Iterator[None]:
        if self._all >= _IN_HAND_MAX:
            raise Busy("too many writes at once; send again")
        self._all += 1
        try:
            yield
        finally:
            self._all -= 1

    @contextmanager
    def body_of(self, writer: Owner, limit_bytes: int) -> Iterator[Callable[[int], None]]:
        """To be told the size of each part that comes. `limit_bytes`: of all bodies together; of one writer's, half."""
        if self._bodies[writer] >= _IN_HAND_OF_ONE_MAX:
            raise Busy("too many writes of this writer at once; send again")
        size = 0

        def came(more: int) -> None:
            nonlocal size
            if self._bytes[writer] + more > limit_bytes // 2 or self._bytes.total() + more > limit_bytes:
                raise Busy("too many large writes at once; send again")
            size += more
            self._bytes[writer] += more

        self._bodies[writer] += 1
        try:
            yield came
        finally:
            self._bodies[writer] -= 1
            self._bytes[writer] -= size


def with_remote_write(site: Application) -> Application:
    """`site`, with remote writes answered here instead."""
    in_hand = _InHand()

    async def application(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != PATH:
            await site(scope, receive, send)
            return
        try:
            with in_hand.body():
                await send_whole(send, await _written(scope, receive, in_hand))
        except Busy as busy:
            await send_whole(send, _refusal(busy))
        except Left:
            pass

    return application


async def _written(scope: dict[str, Any], receive: Receive, in_hand: _InHand) -> HttpResponse:
    limit_bytes = rows.METRICS_BODY_MAX_BYTES.read()
    owner = None
    try:
        source = await _in_thread(lambda: receiver.authenticated(ASGIRequest(scope, io.BytesIO())))
        owner = source.owner
        with in_hand.body_of(owner, _LARGEST_IN_HAND_MAX * limit_bytes) as came:
            body = await _body(receive, limit_bytes, came)
            samples = await _in_thread(lambda: receiver.take(source, body))
    except Refused as refused:
        return _refusal(refused, owner)
    except Error as error:
        log.error("a write could not be checked: %s", error)
        return _refusal(Busy("the database does not answer now; send again"), owner)
    SAMPLES.inc(samples)
    if owner.kind == WRITER:
        WRITER_SAMPLES.labels(owner.name).inc(samples)
    return HttpResponse(status=HTTPStatus.NO_CONTENT, headers={**_NOT_WRITTEN, _SAMPLES_WRITTEN: str(samples)})


def _refusal(refused: Refused, owner: Owner | None = None) -> HttpResponse:
    """`owner`: who writes, where that is known."""
    REFUSED_BODIES.labels(refused.code).inc()
    if owner is not None and owner.kind == WRITER:
        WRITER_REFUSED_BODIES.labels(owner.name, refused.code).inc()
    return problem_response(refused)


async def _in_thread(work: Callable[[], T]) -> T:
    def run() -> T:
        try:
            return work()
        finally:
            connections.close_all()

    return await asyncio.get_running_loop().run_in_executor(_threads, run)


async def _body(receive: Receive, limit_bytes: int, came: Callable[[int], None]) -> bytes:
    """Raises TooLarge, Busy (too slow: nothing is wrong with the body; or what `came` raises), Left."""
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
                came(len(part))
                parts.append(part)
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError:
        raise Busy(f"the body did not come within {_BODY_SECONDS:g} s; send it again") from None
