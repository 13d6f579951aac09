"""A client of HTTP/2 that does what a test says with each of its streams."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, Event, ResponseReceived, StreamEnded, StreamReset


class Http2Stream:
    """One request and what has come of its answer."""

    def __init__(self, connection: Http2Connection, number: int) -> None:
        self._connection, self._number = connection, number
        self.headers: dict[str, str] = {}
        self.body = b""
        self.ended = False
        self.was_reset = False
        self._news = asyncio.Event()

    @property
    def status(self) -> int:
        return int(self.headers.get(":status", 0))

    def heard(self, event: Event) -> None:
        if isinstance(event, ResponseReceived):
            self.headers.update({name.decode(): value.decode() for name, value in event.headers or ()})
        elif isinstance(event, DataReceived):
            self.body += event.data or b""
        elif isinstance(event, StreamEnded):
            self.ended = True
        elif isinstance(event, StreamReset):
            self.ended = self.was_reset = True
        self._news.set()

    async def until(self, text: bytes, timeout_s: float = 15) -> None:
        """Until the answer's body holds `text`."""
        async with asyncio.timeout(timeout_s):
            while text not in self.body:
                assert not self.ended, self.body
                await self._next()

    async def end(self, timeout_s: float = 15) -> bytes:
        """The whole body."""
        async with asyncio.timeout(timeout_s):
            while not self.ended:
                await self._next()
        return self.body

    async def _next(self) -> None:
        await self._news.wait()
        self._news.clear()

    def reset(self) -> None:
        """Give this stream up, and it alone."""
        self._connection.h2.reset_stream(self._number, ErrorCodes.CANCEL)
        self._connection.flush()


class Http2Connection(asyncio.Protocol):
    """One connection of many streams; flow control windows are opened as data comes."""

    def __init__(self) -> None:
        self.h2 = H2Connection(H2Configuration(client_side=True, header_encoding=None))
        self._streams: dict[int, Http2Stream] = {}
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.h2.initiate_connection()
        self.flush()

    def data_received(self, data: bytes) -> None:
        for event in self.h2.receive_data(data):
            number = getattr(event, "stream_id", None)
            if isinstance(event, DataReceived):
                self.h2.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id or 0)
            if number in self._streams:
                self._streams[number].heard(event)
        self.flush()

    def flush(self) -> None:
        self.transport.write(self.h2.data_to_send())

    def ask(self, path: str, body: bytes, key: str, headers: dict[str, str] | None = None, *, complete: bool = True,
            length: int | None = None) -> Http2Stream:  # fmt: skip
        """POST; with `complete` unset the stream's body stays open. `length`: what it says that the body has."""
        number = self.h2.get_next_available_stream_id()
        stream = self._streams[number] = Http2Stream(self, number)
        own = {
            ":method": "POST", ":path": path, ":scheme": "https", ":authority": "gateway",
            "authorization": f"Bearer {key}", "content-type": "application/json",
            "content-length": str(len(body) if length is None else length),
        }  # fmt: skip
        fields = own | {name.lower(): value for name, value in (headers or {}).items()}
        self.h2.send_headers(number, list(fields.items()))
        self.h2.send_data(number, body, end_stream=complete)
        self.flush()
        return stream


@asynccontextmanager
async def http2_connection(port: int, tls: ssl.SSLContext | None = None) -> AsyncIterator[Http2Connection]:
    """By ALPN over TLS, by prior knowledge without it."""
    if tls is not None:
        tls.set_alpn_protocols(["h2"])
    loop = asyncio.get_running_loop()
    hostname = "127.0.0.1" if tls else None
    transport, connection = await loop.create_connection(
        Http2Connection, "127.0.0.1", port, ssl=tls, server_hostname=hostname
    )
    try:
        if tls is not None:
            assert transport.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
        yield connection
    finally:
        transport.close()
