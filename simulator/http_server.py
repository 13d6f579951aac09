"""A small HTTP/1.1 server on asyncio.

An application is a function that takes an `Exchange` and answers it, at once or later.
It tells a client's leaving the moment the kernel does: `Exchange.on_disconnect` is called, whether the answer
streams, waits or has not begun.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import Callable
from http import HTTPStatus
from typing import cast

import msgspec

from simulator.http_parser import MAX_HEAD_BYTES, BadHttp, HttpRequest, RequestParser

# Above any prompt that a model's context holds, below what would make one process swap.
MAX_BODY_BYTES = 8 * 1024 * 1024
# A connection without a request for this long is closed, also one that sends its request slowly.
IDLE_SECONDS = 75.0
SWEEP_SECONDS = 5.0
JSON, EVENT_STREAM = b"application/json", b"text/event-stream; charset=utf-8"

_COMMON = b"\r\nserver: headworks-simulator\r\nx-headworks-simulated: true\r\n"
_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}".encode() + _COMMON for status in HTTPStatus}
LAST_CHUNK = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def error_body(status: int, kind: str, message: str, param: str | None = None) -> bytes:
    """An error in the shape of vLLM's OpenAI server."""
    return msgspec.json.encode({"error": {"message": message, "type": kind, "param": param, "code": status}})


class Exchange:
    """One request and its answer. Writing after the client has left does nothing."""

    __slots__ = ("_connection", "on_disconnect", "open", "request")

    def __init__(self, connection: Connection, request: HttpRequest) -> None:
        self._connection = connection
        self.request = request
        self.open = True
        self.on_disconnect: Callable[[], None] | None = None

    @property
    def from_loopback(self) -> bool:
        return self._connection.from_loopback

    def answer(self, status: int, body: bytes, content_type: bytes = JSON, headers: bytes = b"") -> None:
        """Answer whole. `headers` are further lines, each ended by CRLF."""
        if not self.open:
            return
        self._connection.write(
            b"%bcontent-type: %b\r\ncontent-length: %d\r\n%b%b\r\n%b"
            % (_STATUS_LINES[status], content_type, len(body), self._closing, headers, body)
        )
        self._end()

    def start_stream(self, first_chunks: bytes = b"") -> None:
        """Begin a stream of server-sent events under status 200; `first_chunks` leave in the same segment."""
        if not self.open:
            return
        self._connection.write(
            b"%bcontent-type: %b\r\ntransfer-encoding: chunked\r\ncache-control: no-cache\r\n%b\r\n%b"
            % (_STATUS_LINES[200], EVENT_STREAM, self._closing, first_chunks)
        )

    def answer_stream(self, chunks: bytes) -> None:
        """Answer with a stream that is complete, its last chunk included, in one write."""
        self.start_stream(chunks)
        if self.open:
            self._end()

    def write_chunks(self, chunks: bytes) -> None:
        """Send bytes that are already in chunks (see `chunk`)."""
        if self.open:
            self._connection.write(chunks)

    def end_stream(self, last_chunks: bytes = b"") -> None:
        if self.open:
            self._connection.write(last_chunks + LAST_CHUNK)
            self._end()

    def disconnected(self) -> None:
        self.open = False
        if self.on_disconnect is not None:
            self.on_disconnect()

    @property
    def _closing(self) -> bytes:
        return b"" if self.request.keep_alive else b"connection: close\r\n"

    def _end(self) -> None:
        self.open = False
        self._connection.exchange_ended(self.request.keep_alive)


Application = Callable[[Exchange], None]


class Connection(asyncio.Protocol):
    """One client's connection: one exchange at a time, what is pipelined behind it waits in the parser."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._parser = RequestParser(MAX_BODY_BYTES)
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self.from_loopback = False
        self.idle_since: float | None = server.now()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.from_loopback = bool(peer) and ipaddress.ip_address(peer[0]).is_loopback
        self._server.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._server.closed(self)
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.disconnected()

    def data_received(self, data: bytes) -> None:
        self._parser.feed(data)
        if self._exchange is None:
            self._serve()
        elif self._parser.buffered_bytes > MAX_BODY_BYTES + MAX_HEAD_BYTES:
            self.abort()

    def write(self, data: bytes) -> None:
        # Not bounded by flow control: an answer is at most a model's context long, and vLLM buffers it as well.
        if self._transport is not None:
            self._transport.write(data)

    def exchange_ended(self, keep_alive: bool) -> None:
        self._exchange = None
        self.idle_since = self._server.now()
        if not keep_alive:
            self.close()
        elif self._parser.buffered_bytes:
            # From the loop: an application that answers at once must not nest as deep as a client pipelines.
            asyncio.get_running_loop().call_soon(self._serve)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _serve(self) -> None:
        if self._exchange is not None or self._transport is None or self._transport.is_closing():
            return
        try:
            request = self._parser.next_request()
        except BadHttp as error:
            request = HttpRequest(b"", b"", {}, b"", keep_alive=False)
            Exchange(self, request).answer(error.status, error_body(error.status, "BadRequestError", str(error)))
            return
        if request is None:
            if self._parser.wants_continue:
                self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            return
        self.idle_since = None
        self._exchange = Exchange(self, request)
        self._server.application(self._exchange)


class Server:
    """Listens and keeps the connections; closes the idle ones."""

    def __init__(self, application: Application) -> None:
        self.application = application
        self._connections: set[Connection] = set()
        self._all_closed = asyncio.Event()
        self.now = asyncio.get_running_loop().time
        self._listening: asyncio.Server | None = None
        self._sweep: asyncio.TimerHandle | None = None

    async def listen(self, host: str, port: int) -> int:
        """Start; returns the port, which the system chose when `port` is 0."""
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(lambda: Connection(self), host, port, backlog=2048)
        self._close_idle()
        address: tuple[str, int] = self._listening.sockets[0].getsockname()[:2]
        return address[1]

    def opened(self, connection: Connection) -> None:
        self._connections.add(connection)
        self._all_closed.clear()

    def closed(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._all_closed.set()

    async def close(self, flush_seconds: float) -> None:
        """Stop listening and close every connection; what is written has `flush_seconds` to leave."""
        if self._sweep is not None:
            self._sweep.cancel()
        if self._listening is not None:
            self._listening.close()
        for connection in list(self._connections):
            connection.close()
        if self._connections:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_closed.wait(), flush_seconds)

    def _close_idle(self) -> None:
        latest = self.now() - IDLE_SECONDS
        for connection in list(self._connections):
            if connection.idle_since is not None and connection.idle_since < latest:
                connection.abort()
        self._sweep = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._close_idle)
