"""One request and its answer: what the stages learn of it, and the ASGI messages that carry it."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from typing import TYPE_CHECKING, Any

from gateway.errors import error_body, error_event
from gateway.heartbeat import COMMENT, Heartbeat
from gateway.measure import PromptSize
from gateway.notes import Note
from gateway.quotas import Header, QuotaLease, retry_after
from gateway.refusals import Refused
from gateway.usage import StreamReader, Usage
from gateway.view import View
from policy.asks import ENDPOINTS, Ask, Endpoint
from policy.routing import RouteResult
from wire.snapshot import Model, Tenant

if TYPE_CHECKING:
    from gateway.batches.line_run import LineRun
    from gateway.caches.caches import CacheUse
    from gateway.cascade import Small
    from gateway.pools import Placement
    from gateway.schemas import UsedSchema
    from gateway.sessions import SessionLease
    from gateway.state import Gateway

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}")
_NOT_MEASURED = PromptSize(0, "", 0)
_NOT_ROUTED = RouteResult("", "", (), "")
_JSON: Header = (b"content-type", b"application/json")
_STREAM_HEADERS: tuple[Header, ...] = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    # nginx would hold events back.
    (b"x-accel-buffering", b"no"),
)
# By their version the official clients sleep over a longer Retry-After, or pass it over and come again at once.
_WORTH_WAITING_SECONDS = 60
_EVENT_ENDS = (b"\n\n", b"\n\r\n")


class ClientLeft(Exception):
    """The client closed its side before the answer was complete."""


class Exchange:
    """State of one request. The stages of the pipeline fill it from top to bottom."""

    def __init__(self, gateway: Gateway, view: View, scope: Message, receive: Receive, send: Send) -> None:
        self.gateway, self.view, self.scope = gateway, view, scope
        self._receive, self._send = receive, send
        self.arrived = time.monotonic()
        self.headers: dict[bytes, bytes] = {}
        self.request_id = b""
        # A line of a batch: nobody sent it, and no key names its tenant.
        self.line: LineRun | None = None
        # identify
        self.tenant_name = ""
        self.tenant: Tenant
        self.priority_class = ""
        self.deadline = self.arrived + gateway.limits.max_request_seconds
        self.deadline_is_clients = False
        # read, measure
        self.endpoint: Endpoint
        self.body_hash = 0
        self.ask: Ask
        # Where the client called it by an alias, `ask.model` is that.
        self.model_name = ""
        self.model: Model
        self.size = _NOT_MEASURED
        # check_session
        self.session: SessionLease | None = None
        self.session_output_tokens: int | None = None
        # answer_from_cache
        self.cache: CacheUse | None = None
        # route, bound_output
        self.route = _NOT_ROUTED
        self.max_tokens = 0
        self.max_tokens_note = ""
        # plan_cascade, ask_small_first: what is asked of a small model, and what its answer used that was not given
        self.small: Small | None = None
        self.small_tokens = 0
        self.cascade_note = b""
        # check_schema
        self.schemas: list[UsedSchema] = []
        # take_quota, serve
        self.lease: QuotaLease | None = None
        self.placement: Placement | None = None
        self.sent_at: float | None = None
        self.reached_engine = False
        self.reader: StreamReader | None = None
        self.usage: Usage | None = None
        self.estimated_output_tokens = 0
        self.first_byte_at: float | None = None
        self.last_byte_at: float | None = None
        # Each stage that was entered, in order, with the numbers that it weighed (`note`).
        self.notes: list[Note] = []
        # the answer
        self.body_is_read = False
        self.body_read_seconds = self.body_write_seconds = 0.0
        self.tokens_after_cancel = 0
        # Hears every part of a successful answer as it is sent: one that is to be kept.
        self.on_part: Callable[[bytes], None] | None = None
        # Something of the answer was sent; heartbeats alone leave another engine, or an error, possible.
        self.begun = False
        self.headers_sent = False
        self.client_left = False
        self._heartbeat: Heartbeat | None = None
        self._watcher: asyncio.Future[Message] | None = None

    def noting(self, stage: str) -> Note:
        """Note that a stage is entered, and how long it takes."""
        note = Note(stage)
        self.notes.append(note)
        return note

    def note(self, **numbers: int) -> None:
        """Numbers that the stage which runs has weighed, for the log of decisions."""
        if self.notes:
            self.notes[-1].numbers.update(numbers)

    def read_headers(self) -> None:
        """Index the request's headers. Raises: Refused (`headers_too_large`, `bad_header`)."""
        raw = self.scope["headers"]
        self.headers = dict(raw)
        asked = self.headers.get(b"x-request-id")
        self.request_id = asked if asked and _REQUEST_ID.fullmatch(asked) else uuid.uuid4().hex.encode()
        size = sum(len(name) + len(value) for name, value in raw)
        limit = self.gateway.limits.max_header_bytes
        if size > limit:
            raise Refused("headers_too_large", f"the headers are {size} bytes; at most {limit} are taken")
        if asked is not None and asked != self.request_id:
            raise Refused("bad_header", "X-Request-Id must be 1 to 128 letters, digits or any of . _ : / + = -")

    async def read_body(self) -> bytes:
        """Raises: Refused (`body_too_large`, `body_too_slow`), ClientLeft."""
        limits = self.gateway.limits
        declared = self.headers.get(b"content-length", b"")
        if declared.isdigit() and int(declared) > limits.max_body_bytes:
            raise _too_large(limits.max_body_bytes)
        begun = time.monotonic()
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(limits.body_timeout_seconds):
                while True:
                    message = await self._receive()
                    if message["type"] == "http.disconnect":
                        # Its client may be there still: a body that is no HTTP looks the same from here.
                        await self.refuse(Refused("bad_json", "the body broke off, or is not as HTTP has it"))
                        raise ClientLeft
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > limits.max_body_bytes:
                        raise _too_large(limits.max_body_bytes)
                    if not message.get("more_body"):
                        self.body_is_read = True
                        return parts[0] if len(parts) == 1 else b"".join(parts)
        except TimeoutError:
            seconds = limits.body_timeout_seconds
            raise Refused("body_too_slow", f"the body did not arrive within {seconds:g} s") from None
        finally:
            self.body_read_seconds = time.monotonic() - begun

    async def body_parts(self) -> AsyncIterator[bytes]:
        """The body as it comes, for one that is passed on. Raises: Refused (`body_too_slow`), ClientLeft."""
        seconds = self.gateway.limits.body_timeout_seconds
        while not self.body_is_read:
            try:
                async with asyncio.timeout(seconds):
                    message = await self._receive()
            except TimeoutError:
                raise Refused("body_too_slow", f"nothing of the body has come for {seconds:g} s") from None
            if message["type"] == "http.disconnect":
                raise ClientLeft
            self.body_is_read = not message.get("more_body")
            if part := message.get("body", b""):
                yield part

    def cancel_when_client_leaves(self) -> None:
        """From now on a disconnect cancels this request's task, wherever it stands. Call it after the body is read."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a request is served in a task")

        def left(watcher: asyncio.Future[Message]) -> None:
            if not watcher.cancelled():
                self.client_left = True
                task.cancel()

        self._watcher = asyncio.ensure_future(self._receive())
        self._watcher.add_done_callback(left)

    def start_heartbeat(self) -> None:
        """From now on a stream that is quiet for `heartbeat_seconds`, the wait for its first event included, says so.

        With the first comment the status 200 is sent: a refusal that comes later is an event.
        """
        self._heartbeat = Heartbeat(self.gateway.limits.heartbeat_seconds, self.arrived, self._beat)

    async def _beat(self) -> None:
        await self._send_stream_head()
        await self._send({"type": "http.response.body", "body": COMMENT, "more_body": True})

    def stop_watching(self) -> None:
        """From now on a disconnect cancels nothing: when the last message is sent the server reports one by itself.

        A last message that the client does not read must therefore be bounded by who sends it: the request's deadline
        for a whole answer, `refuse` for an error.
        """
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            # The server's futures are unknown to the collector: a ring with one of them in it would never be freed.
            watcher.cancel()

    def close(self) -> None:
        """The request has ended: nothing watches its client or sends to it any more.

        Nor may anything that it holds lead back to it: the collector may come late (`collector`), and bodies are long.
        """
        self.stop_watching()
        heartbeat, self._heartbeat = self._heartbeat, None
        if heartbeat is not None:
            heartbeat.cut()

    async def answer(self, status: int, headers: Iterable[Header], body: bytes) -> None:
        """A whole answer in one go. One to a stream must first see that no heartbeat has begun it (`end_heartbeat`)."""
        self.stop_watching()
        if status == 200 and self.on_part is not None:
            self.on_part(body)
        self.begun = True
        begun = time.monotonic()
        try:
            await self._send_head(status, (*headers, (b"content-length", b"%d" % len(body))))
            await self._send({"type": "http.response.body", "body": body, "more_body": False})
        finally:
            self.body_write_seconds = time.monotonic() - begun

    async def answer_parts(self, status: int, headers: Iterable[Header], parts: AsyncIterator[bytes]) -> None:
        """An answer that is passed on as it comes. Where `parts` break off, so does it: its length is not kept."""
        self.begun = True
        await self._send_head(status, headers)
        async for part in parts:
            await self._send({"type": "http.response.body", "body": part, "more_body": True})
        self.stop_watching()
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def answer_json(self, status: int, body: bytes, headers: Iterable[Header] = ()) -> None:
        await self.answer(status, (_JSON, *self.own_headers(), *headers), body)

    async def begin_stream(self) -> None:
        """Something of a stream's answer is about to be sent. Only the first call counts."""
        self.begun = True
        await self._between_heartbeats()
        await self._send_stream_head()

    async def stream(self, data: bytes) -> None:
        """Send whole events, or a part of one that is too long to be held back."""
        if self.on_part is not None:
            self.on_part(data)
        heartbeat = self._heartbeat
        if heartbeat is not None:
            if heartbeat.beating is not None:
                await self._between_heartbeats()
            heartbeat.quiet_since = None
        begun = time.monotonic()
        try:
            await self._send({"type": "http.response.body", "body": data, "more_body": True})
        finally:
            now = time.monotonic()
            self.body_write_seconds += now - begun
        if heartbeat is not None and data.endswith(_EVENT_ENDS):
            heartbeat.quiet_since = now

    async def end_stream(self, last: bytes = b"") -> None:
        await self.end_heartbeat()
        self.stop_watching()
        if last and self.on_part is not None:
            self.on_part(last)
        begun = time.monotonic()
        try:
            await self._send({"type": "http.response.body", "body": last, "more_body": False})
        finally:
            self.body_write_seconds += time.monotonic() - begun

    async def end_heartbeat(self) -> None:
        """No comment is sent any more. `headers_sent` says from now on whether a stream was begun by one."""
        if self._heartbeat is not None:
            await self._heartbeat.stop()

    async def _between_heartbeats(self) -> None:
        if self._heartbeat is not None and self._heartbeat.beating is not None:
            await self._heartbeat.beating

    async def refuse(self, refused: Refused) -> None:
        """Answer with an error: OpenAI's shape, or an event of the same shape in a stream that has begun.

        No deadline stands above this. A client that reads nothing for `last_send_seconds` is given up, so that it holds
        neither its place nor a drain.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.gateway.limits.last_send_seconds):
                await self._send_refusal(refused)

    async def _send_refusal(self, refused: Refused) -> None:
        await self.end_heartbeat()
        # It may be refused before its endpoint is looked up.
        endpoint, request_id = ENDPOINTS.get(self.scope["path"]), self.request_id.decode()
        if self.headers_sent:
            events_before = self.reader.events if self.reader else 0
            await self.end_stream(error_event(refused, endpoint, request_id, events_before))
            return
        headers: list[Header] = [*refused.headers]
        if refused.row.retry:
            headers.append((b"retry-after", b"%d" % retry_after(refused.retry_after_seconds)))
        if refused.retry_after_seconds > _WORTH_WAITING_SECONDS:
            headers.append((b"x-should-retry", b"false"))
        if self._must_close():
            headers.append((b"connection", b"close"))
        await self.answer_json(refused.row.status, error_body(refused, endpoint, request_id), headers)

    def _must_close(self) -> bool:
        """HTTP/1.1 only (RFC 9113, 8.2.2): a connection with an unread body in it is of no more use."""
        unread = not self.body_is_read and self.scope["method"] == "POST"
        return (unread or self.gateway.draining) and bool(self.scope["http_version"].startswith("1"))

    def own_headers(self) -> list[Header]:
        """The headers that every answer carries, refusals included."""
        headers: list[Header] = [(b"x-request-id", self.request_id), self.view.revision_header]
        if self.tenant_name:
            headers += self.gateway.quotas.headers(self.tenant_name)
        if self.size is not _NOT_MEASURED:
            headers.append((b"x-headworks-prompt-tokens", f"{self.size.tokens};source={self.size.source}".encode()))
        if self.cache is not None and self.cache.header:
            headers.append((b"x-headworks-cache", self.cache.header))
        if self.max_tokens_note:
            headers.append((b"x-headworks-max-tokens", f"{self.max_tokens};reason={self.max_tokens_note}".encode()))
        if self.cascade_note:
            headers.append((b"x-headworks-cascade", self.cascade_note))
        return headers

    def used_tokens(self) -> tuple[int, int]:
        """(prompt, output) tokens to settle on: the engine's own numbers, else what was measured and counted.

        Never more than contexts hold: one answer of an engine that tells rubbish must not use up a tenant's day.
        """
        if self.sent_at is None:
            return (0, 0) if self.usage is None else (self.usage.prompt_tokens, self.usage.completion_tokens)
        prompt_tokens, output_tokens = self._told_tokens()
        context = self.model.max_context_tokens
        return min(prompt_tokens, context * self.ask.inputs), min(output_tokens, context * self.ask.sequences)

    def _told_tokens(self) -> tuple[int, int]:
        if self.usage is not None:
            return self.usage.prompt_tokens, self.usage.completion_tokens
        if self.reader is not None:
            return self.reader.used_tokens(self.size.tokens)
        return self.size.tokens, self.estimated_output_tokens

    def settle(self) -> None:
        """Give the quota back but for what was used. Only the first call counts."""
        if self.lease is not None and not self.lease.settled:
            self.lease.settle(sum(self.used_tokens()) + self.small_tokens, reached_engine=self.reached_engine)
        if self.session is not None:
            self.session.settle(*self.used_tokens(), counts=self.reached_engine or self.begun)

    async def _send_stream_head(self) -> None:
        if not self.headers_sent:
            await self._send_head(200, (*_STREAM_HEADERS, *self.own_headers()))

    async def _send_head(self, status: int, headers: Iterable[Header]) -> None:
        self.headers_sent = True
        await self._send({"type": "http.response.start", "status": status, "headers": list(headers)})


def _too_large(limit: int) -> Refused:
    return Refused("body_too_large", f"the body is larger than {limit} bytes")
