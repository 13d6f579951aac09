"""The last stage: place the request on an engine, pass its answer through, settle on what was used."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from typing import Literal

import aiohttp
from msgspec import UNSET

from gateway.exchange import Exchange
from gateway.pools import Placement
from gateway.refusals import Refused
from gateway.silence import SilenceWatch
from gateway.usage import GIVEN_UP, NotAnAnswer, StreamReader, failure_in, given_up, usage_of_answer
from policy.adapters import asked_as
from policy.breaker import Outcome
from policy.engine_priority import engine_priority

log = logging.getLogger("headworks.gateway.relay")
_ERROR_BODY_BYTES = 64 * 1024
_ERROR_MESSAGE_CHARACTERS = 2_000
# Statuses that say something of this request alone; another engine would answer the same.
_CLIENTS_FAULT = (400, 413, 415, 422)
_BUSY = (408, 429, 503)
_NO_SUCH_PATH = (404, 405, 501)
_TOLD = {
    "engine_unreachable": "the engine could not be reached",
    "engine_overloaded": "the engine has no capacity now",
    "engine_error": "the engine failed while it served the request",
}


class EngineFailed(Exception):
    """An engine did not serve a request that another one might serve."""

    def __init__(self, reason: Literal["engine_unreachable", "engine_overloaded", "engine_error"], said: str) -> None:
        super().__init__(said)
        self.reason = reason
        self.engine = self.pool = ""


class TooLarge(EngineFailed):
    """An answer that is larger than what is held in memory of one."""


async def serve(x: Exchange) -> None:
    """One engine, and if it fails before the first byte, one other."""
    x.gateway.retries.earn()
    try:
        async with asyncio.timeout(x.deadline - time.monotonic()):
            await _serve(x)
    except TimeoutError:
        own = "the client's own time (X-Request-Timeout-Ms, or what its library says)"
        whose = own if x.deadline_is_clients else "the gateway's longest time"
        raise Refused("deadline_exceeded", f"{whose} is over; ask for less, or allow more time") from None


async def _serve(x: Exchange) -> None:
    try:
        await _attempt(x, await x.gateway.pools.place(x))
    except EngineFailed as first:
        other = None if x.begun else _another_place(x, first)
        if other is None:
            raise _refusal(x, first) from None
        x.gateway.metrics.retry(first.pool)
        x.note(attempts=2)
        try:
            await _attempt(x, other)
        except EngineFailed as second:
            raise _refusal(x, second) from None


def _another_place(x: Exchange, failure: EngineFailed) -> Placement | None:
    # What reached no engine was no load for any: it takes its place as if it were the first.
    costs = failure.reason != "engine_unreachable"
    if costs and x.gateway.retries.is_empty:
        return None
    try:
        other = x.gateway.pools.place_again(x, avoid=failure.engine)
    except Refused:
        return None
    if costs:
        x.gateway.retries.spend()
    return other


def _refusal(x: Exchange, failure: EngineFailed) -> Refused:
    wait = x.gateway.limits.capacity_retry_seconds
    return Refused(failure.reason, _TOLD[failure.reason], retry_after_seconds=wait)


async def _attempt(x: Exchange, placement: Placement) -> None:
    x.placement = placement
    outcome: Outcome = "ignored"
    late = _watch_first_token(x, placement)
    try:
        await _exchange_unless_gone(x, placement)
        outcome = "success"
    except EngineFailed as failure:
        outcome = "failure"
        failure.engine, failure.pool = placement.state.name, placement.pool
        log.warning("engine %s: %s: %s", failure.engine, failure.reason, failure)
        raise
    except asyncio.CancelledError:
        if x.ask.generates and not x.ask.stream and x.first_byte_at is None:
            # Of a stream it is known that nothing has come.
            x.estimated_output_tokens = placement.unseen_output(x.ask.sequences, x.max_tokens, x.gateway.now_ms())
        # A client that gives up early says nothing of the engine; the gateway's own limit does.
        if not x.begun and not x.deadline_is_clients and time.monotonic() >= x.deadline:
            outcome = "failure"
        raise
    finally:
        if late is not None:
            late.cancel()
        placement.end(outcome, x.gateway.now_ms())


def _watch_first_token(x: Exchange, placement: Placement) -> asyncio.TimerHandle | None:
    """The breaker hears of a first token that takes longer than its `timeout_ms` when it does, not at the end.

    The request goes on. Of a whole answer nobody sees the first token.
    """
    timeout_ms = x.view.snapshot.pools[placement.pool].breaker.timeout_ms
    if not timeout_ms or not x.ask.stream:
        return None

    def look() -> None:
        if not x.begun:
            placement.tell("timeout", x.gateway.now_ms())

    return asyncio.get_running_loop().call_later(timeout_ms / 1000, look)


async def _exchange_unless_gone(x: Exchange, placement: Placement) -> None:
    """An engine that is stopped may close its port and leave its connections open, silent, for ever."""
    attempts = placement.state.attempts
    attempt = asyncio.timeout(None)
    try:
        async with attempt:
            attempts[attempt] = x
            await _exchange_with(x, placement)
    except TimeoutError:
        if not attempt.expired():
            raise
        raise EngineFailed("engine_unreachable", "its port is closed, and it has not begun to answer") from None
    finally:
        attempts.pop(attempt, None)


async def _exchange_with(x: Exchange, placement: Placement) -> None:
    engine = placement.engine
    headers = {
        "Content-Type": "application/json",
        "Accept-Encoding": "identity",
        "X-Request-Id": x.gateway.upstream_request_id(x.request_id),
    }
    if engine.api_key is not UNSET:
        headers["Authorization"] = f"Bearer {engine.api_key}"
    priority = engine_priority(engine.kind, x.priority_class, x.view.snapshot.priority_classes)
    name = asked_as(x.model, x.view.snapshot.pools[placement.pool], engine)
    body = x.ask.for_engine(name, x.max_tokens, priority)
    url = engine.url.rstrip("/") + x.ask.api.path
    x.sent_at = x.sent_at or time.monotonic()
    reached_another, x.reached_engine = x.reached_engine, True
    try:
        response = await x.gateway.http.post(url, data=body, headers=headers, allow_redirects=False)
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        x.reached_engine = reached_another
        raise EngineFailed("engine_unreachable", _said(error, placement)) from None
    except (aiohttp.ClientError, OSError) as error:
        raise EngineFailed("engine_error", _said(error, placement)) from None
    complete = False
    try:
        if response.status != 200:
            await _raise_for(response, placement)
        if x.ask.stream and response.content_type == "text/event-stream":
            await _pass_stream(x, response, placement)
        else:
            await _pass_whole(x, response, placement)
        complete = True
    finally:
        # Whatever ends this early, the engine learns of it at once: closing the connection aborts generation.
        if complete:
            response.release()
        else:
            if x.client_left and x.reader is not None:
                _count_unread(x, x.reader, response)
            response.close()


async def _pass_whole(x: Exchange, response: aiohttp.ClientResponse, placement: Placement) -> None:
    limit = x.gateway.limits.max_answer_bytes
    try:
        body = await _read_bounded(response, limit, placement)
    except TooLarge:
        if x.ask.generates:
            raise
        # What is generated is bounded; how many vectors there are is for the client to say.
        message = f"the answer is larger than {limit} bytes; send fewer inputs at once"
        raise Refused("answer_too_large", message, param=x.ask.api.text_field) from None
    if given_up(body):
        raise _failure(*GIVEN_UP, placement)
    if b'"error"' in body and (failure := failure_in(body)):
        raise _failure(*failure, placement)
    try:
        usage = usage_of_answer(body)
    except NotAnAnswer as error:
        raise EngineFailed("engine_error", f"its answer is no JSON object: {error}") from None
    await x.end_heartbeat()
    if x.headers_sent:
        raise EngineFailed("engine_error", "it answered a stream with something else")
    x.first_byte_at = x.last_byte_at = time.monotonic()
    x.usage = usage
    if usage is None:
        x.estimated_output_tokens = min(-(-len(body) // 4), x.max_tokens * x.ask.sequences)
    if x.ask.generates:
        placement.answered(x.used_tokens()[1], x.ask.sequences, x.gateway.now_ms())
    x.settle()
    await x.answer_json(200, body)


async def _pass_stream(x: Exchange, response: aiohttp.ClientResponse, placement: Placement) -> None:
    reader = StreamReader(hide_usage=x.ask.api.forces_usage and not x.ask.wants_usage, endpoint=x.endpoint)
    last = b""
    with SilenceWatch(x.gateway.limits.stream_silence_seconds, response.close) as silence:
        try:
            async for chunk in response.content.iter_any():
                silence.heard()
                events = reader.feed(chunk)
                if response.content.at_eof() and reader.failure is None:
                    # They leave with the end of the stream.
                    last = events
                    break
                await _pass_events(x, reader, events)
                if reader.failure is not None:
                    # Its own words may hold its address: the stream ends with an event of ours.
                    raise _failure(*reader.failure, placement)
                if x.begun:
                    # What opens a stream may come long before the prefill has its turn.
                    silence.wait()
        except (aiohttp.ClientError, OSError) as error:
            if silence.gave_up:
                raise EngineFailed("engine_error", f"its stream was silent for {silence.limit_seconds:g} s") from None
            raise EngineFailed("engine_error", f"its stream broke off: {_said(error, placement)}") from None
    rest = reader.finish()
    if reader.failure is not None:
        await _pass_events(x, reader, last)
        raise _failure(*reader.failure, placement)
    if last:
        await _begin(x, reader)
    if not x.begun:
        raise EngineFailed("engine_error", "its stream ended before the first event")
    placement.answered(x.used_tokens()[1], x.ask.sequences, x.gateway.now_ms(), x.body_write_seconds)
    x.settle()
    await x.end_stream(last + rest)


async def _pass_events(x: Exchange, reader: StreamReader, events: bytes) -> None:
    if events:
        await _begin(x, reader)
        await x.stream(events)


async def _begin(x: Exchange, reader: StreamReader) -> None:
    """Something of the answer is here."""
    if not x.begun:
        x.reader = reader
        x.first_byte_at = time.monotonic()
        if x.placement is not None:
            x.placement.first_token(x.gateway.now_ms())
        await x.begin_stream()
    x.last_byte_at = time.monotonic()


def _count_unread(x: Exchange, reader: StreamReader, response: aiohttp.ClientResponse) -> None:
    """Tokens that had come when their client was gone: nobody will have them."""
    before = reader.generated_events
    with contextlib.suppress(aiohttp.ClientError, OSError):
        reader.feed(response.content.read_nowait())
    x.tokens_after_cancel = reader.generated_events - before


async def _raise_for(response: aiohttp.ClientResponse, placement: Placement) -> None:
    """Turn an engine's refusal into ours. Its own words are kept only where they speak of the request."""
    body = await _read_bounded(response, _ERROR_BODY_BYTES, placement)
    message, _ = failure_in(body) or (f"the engine answered {response.status}", None)
    # A model that an engine does not know is its fault; a path is the request's, whose client must open no breaker.
    if response.status in _NO_SUCH_PATH and "model" not in message.lower():
        raise Refused("api_not_served", "the engines of this model do not serve this API")
    raise _failure(message, response.status, placement)


def _failure(message: str, status: int | None, placement: Placement) -> Refused | EngineFailed:
    words = placement.state.redacted(message)[:_ERROR_MESSAGE_CHARACTERS]
    if status in _CLIENTS_FAULT:
        return Refused("engine_rejected", words or "the engine found the request invalid")
    said = words if status is None else f"{status}: {words}"
    return EngineFailed("engine_overloaded" if status in _BUSY else "engine_error", said)


async def _read_bounded(response: aiohttp.ClientResponse, limit: int, placement: Placement) -> bytes:
    parts: list[bytes] = []
    size = 0
    try:
        async for chunk in response.content.iter_any():
            size += len(chunk)
            if size > limit:
                raise TooLarge("engine_error", f"its answer is larger than {limit} bytes")
            parts.append(chunk)
    except (aiohttp.ClientError, OSError) as error:
        raise EngineFailed("engine_error", f"its answer broke off: {_said(error, placement)}") from None
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _said(error: Exception, placement: Placement) -> str:
    """An error in words for the log, which names engines, not their addresses.

    A connection error spells the address it tried, resolved or not, so of that only the system's own words are kept.
    """
    if isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
        words = os.strerror(cause.errno) if cause.errno and cause.errno > 0 else cause.strerror
        return f"{type(error).__name__}: {words}"
    return f"{type(error).__name__}: {placement.state.redacted(str(error))}"
