"""`GET /dashboards/live`: new points of a layer's charts as server-sent events, each with its moment as the event's id.

A browser that comes back says the last id it has seen, and is sent what came after: no gap, and no point twice. The
same stream brings new marks, and what `controlplane.web.live` tells all pages: a page has one stream.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable

import msgspec
from asgiref.sync import sync_to_async
from django.db import close_old_connections
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.utils.translation import get_language
from django.views.decorators.http import require_GET

from controlplane.configs.events import PING
from controlplane.web.live import board, log_in_first, logged_in, not_of_whole_fleet, stream_of
from dashboards.asked import Asked
from dashboards.figures import newer_points
from dashboards.hosts import hosts_of
from dashboards.marks import News
from dashboards.readings import now_ms, reading_of
from dashboards.shared import Shared

# How soon a browser comes back.
OPENING = b"retry: 1000\n\n"
# The log-in is looked at as often: a session that ended or was revoked ends its streams.
LOOK_SECONDS = 5.0
# The browser then comes back by itself. A stream must not hold a process that wants to restart for ever.
STREAM_SECONDS = 300.0
_KEPT_EVENTS = 64
# Of a moment in ms until the year 2286.
_MOMENT_MAX_DIGITS = 13

_events: Shared[bytes] = Shared(_KEPT_EVENTS)


@require_GET
async def live(request: HttpRequest) -> HttpResponse | StreamingHttpResponse:
    """The stream of one browser: `after` is the moment (Unix ms) of the newest point that it has.

    A log-in is needed; without one EventSource does not try again.
    """
    user = await sync_to_async(logged_in, thread_sensitive=False)(request)
    if user is None:
        return log_in_first()
    if user.tenants is not None:
        return not_of_whole_fleet(user)
    asked = Asked.of(request.GET.dict())
    known = _moment(request.headers.get("Last-Event-ID")) or _moment(request.GET.get("after"))
    return stream_of(_stream(request, asked, known, get_language() or ""))


async def _stream(request: HttpRequest, asked: Asked, known_ms: int, language: str) -> AsyncIterator[bytes]:
    ends = time.monotonic() + STREAM_SECONDS
    news, told = News(dict(asked.only), language), b""
    since_ms = max(known_ms, asked.span.first_ms(asked.newest_ms))
    async with board.viewed():
        yield OPENING
        looked = time.monotonic()
        while time.monotonic() < ends and not board.ending():
            newest_ms = asked.newest_ms
            if newest_ms > known_ms:
                yield await _event(asked, known_ms, newest_ms)
                known_ms = newest_ms
            if news.due(now_ms()):
                yield await sync_to_async(_freed, thread_sensitive=False)(news.event, since_ms, now_ms()) or PING
                since_ms = now_ms()
            event = await _wait(told, asked)
            if time.monotonic() - looked >= LOOK_SECONDS:
                looked = time.monotonic()
                # Whoever has another role or is limited to some tenants meanwhile has no log-in left.
                if await sync_to_async(logged_in, thread_sensitive=False)(request) is None:
                    return
            if event is not None:
                told = event
                yield event


async def _event(asked: Asked, known_ms: int, newest_ms: int) -> bytes:
    """What came after `known_ms`, at most one span of it; made once for all who miss the same."""
    step_ms = asked.span.step_ms
    first_ms = max(known_ms // step_ms * step_ms + step_ms, asked.span.first_ms(newest_ms))
    return await _events.aget((asked, first_ms, newest_ms), lambda: _freed(event, asked, first_ms, newest_ms))


def event(asked: Asked, first_ms: int, newest_ms: int) -> bytes:
    """The points from `first_ms` to `newest_ms`, both included."""
    reading = reading_of(asked.layer, asked.only, asked.span, first_ms, newest_ms, hosts_of(asked.only))
    points = newer_points({chart.name: asked.lines(reading, chart) for chart in asked.layer.charts}, reading.times_ms)
    return b"id: %d\nevent: points\ndata: %b\n\n" % (newest_ms, msgspec.json.encode(points))


async def _wait(told: bytes, asked: Asked) -> bytes | None:
    """Until the next point may be there, the log-in wants a look, or the process is about to end: None.

    Or until all pages are told something else than `told`: that.
    """
    until_ms = min(asked.span.next_at_ms(now_ms()), now_ms() + LOOK_SECONDS * 1000)
    return await board.after(told, max(0.0, until_ms - now_ms()) / 1000)


def _freed(action: Callable[..., bytes], *arguments: object) -> bytes:
    """In a thread that keeps no connection to the database: there are far fewer of these than viewers."""
    try:
        return action(*arguments)
    finally:
        close_old_connections()


def _moment(text: str | None) -> int:
    """A moment that an address or a browser names, or 0."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) <= _MOMENT_MAX_DIGITS else 0
