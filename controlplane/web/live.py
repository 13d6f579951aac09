"""`GET /live`: server-sent events for open pages. What they say is computed once a change, however many look."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus
from importlib import import_module

import msgspec
from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.db import close_old_connections
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from controlplane.configs.events import PING
from controlplane.configs.hub import hub
from controlplane.core.models import User
from controlplane.web.access import of_whole_fleet
from controlplane.web.convergence import summary

log = logging.getLogger(__name__)

# A person sees no difference below this.
GATHER_SECONDS = 0.1
# A target is lost by saying nothing, so time alone changes the state too.
LOOK_AT_LEAST_EVERY_SECONDS = 5.0
# How soon a browser comes back.
OPENING = b"retry: 500\n\n"
PING_SECONDS = 10.0
# The log-in is looked at as often: a session that ended or was revoked ends its streams.
LOOK_SECONDS = 5.0
# The browser then comes back by itself.
STREAM_SECONDS = 300.0

_sessions = import_module(settings.SESSION_ENGINE)


class Board:
    """The newest summary, read by one task for all streams of this process, and only while there are any.

    `read` gives the summary (it may use the database); `watch` an event that is set whenever it may have changed, or
    the process is about to end, which `ending` tells.
    """

    def __init__(
        self,
        read: Callable[[], object],
        watch: Callable[[], AbstractAsyncContextManager[asyncio.Event]],
        ending: Callable[[], bool],
    ) -> None:
        self._read, self._watch, self.ending = read, watch, ending
        self._event = b""
        self._viewers = 0
        # Made for the first viewer, on the event loop that serves it.
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def viewed(self) -> AsyncIterator[None]:
        """Keep the summary fresh while the block runs."""
        self._viewers += 1
        if self._task is None:
            self._changed = asyncio.Condition()
            self._task = asyncio.create_task(self._look())
        try:
            yield
        finally:
            self._viewers -= 1
            if self._viewers == 0 and self._task is not None:
                self._task.cancel()
                self._task, self._event = None, b""

    async def after(self, known: bytes, timeout_seconds: float) -> bytes | None:
        """The newest event, once it is another than `known`; None at the time limit, or once the process ends."""
        try:
            async with asyncio.timeout(timeout_seconds), self._changed:
                await self._changed.wait_for(lambda: self.ending() or self._event not in (known, b""))
                return None if self.ending() else self._event
        except TimeoutError:
            return None

    async def _look(self) -> None:
        async with self._watch() as woken:
            while not self.ending():
                woken.clear()
                try:
                    event = await sync_to_async(self._encoded, thread_sensitive=False)()
                except Exception:
                    # The database is away, say: pages stand still meanwhile, and go on with it.
                    log.exception("the state of the targets cannot be read")
                    event = self._event
                if event != self._event:
                    async with self._changed:
                        self._event = event
                        self._changed.notify_all()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_AT_LEAST_EVERY_SECONDS):
                        await woken.wait()
                # What comes in close succession, as the acks of one revision do, makes one event.
                await asyncio.sleep(GATHER_SECONDS)
            async with self._changed:
                self._changed.notify_all()

    def _encoded(self) -> bytes:
        try:
            return b"event: convergence\ndata: " + msgspec.json.encode(self._read()) + b"\n\n"
        finally:
            close_old_connections()


board = Board(summary, hub.watch, lambda: hub.draining)


@require_GET
async def live(request: HttpRequest) -> HttpResponse | StreamingHttpResponse:
    """The stream of one browser. A log-in is needed; without one EventSource does not try again."""
    user = await sync_to_async(logged_in, thread_sensitive=False)(request)
    if user is None:
        return log_in_first()
    if user.tenants is not None:
        return not_of_whole_fleet(user)
    return stream_of(_events(request))


def logged_in(request: HttpRequest) -> User | None:
    """Whose log-in the session of the request is, as the database says now: streams ask again and again."""
    request.session = _sessions.SessionStore(request.session.session_key)
    try:
        user = get_user(request)
        return user if isinstance(user, User) else None
    finally:
        close_old_connections()


def log_in_first() -> HttpResponse:
    return HttpResponse(_("Log in first."), status=HTTPStatus.UNAUTHORIZED, content_type="text/plain; charset=utf-8")


def not_of_whole_fleet(user: User) -> HttpResponse:
    text = of_whole_fleet(user.tenants or ())
    return HttpResponse(text, status=HTTPStatus.FORBIDDEN, content_type="text/plain; charset=utf-8")


def stream_of(events: AsyncIterator[bytes]) -> StreamingHttpResponse:
    """Server-sent events that nothing between here and the browser keeps back."""
    response = StreamingHttpResponse(events, content_type="text/event-stream")
    response["Cache-Control"] = "no-store"
    response["X-Accel-Buffering"] = "no"
    return response


async def _events(request: HttpRequest) -> AsyncIterator[bytes]:
    looked = time.monotonic()
    ends = looked + STREAM_SECONDS
    known = b""
    async with board.viewed():
        yield OPENING
        while (left := ends - time.monotonic()) > 0 and not board.ending():
            event = await board.after(known, min(PING_SECONDS, left))
            known = event or known
            if time.monotonic() - looked >= LOOK_SECONDS:
                looked = time.monotonic()
                # Whoever has another role or is limited to some tenants meanwhile has no log-in left.
                if await sync_to_async(logged_in, thread_sensitive=False)(request) is None:
                    return
            yield event or PING
