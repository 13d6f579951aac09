"""A web server for a few small pages: GET and HEAD, one request a connection, every step bounded.

aiohttp.web would do as well, for 2.3 MB of an agent's 60; this is for 0.1.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus
from typing import NamedTuple, NoReturn

log = logging.getLogger("headworks.agent.page")
_HEAD_BYTES = 8 << 10
# Of a request and its answer together. A page of 10,000 series takes a fraction of a second.
_CONNECTION_SECONDS = 10.0
_CONNECTIONS = 32
_BIND_AGAIN_SECONDS = 5.0
_REQUEST_LINE = re.compile(rb"([A-Z]{1,16}) (/[!-~]{0,2000}) HTTP/1\.([01])")
_HEADERS = "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n"


class Request(NamedTuple):
    """`path` is without its `query`. `authorization`: the header's value, or empty. `here`: it came by loopback."""

    path: str
    authorization: bytes
    query: str = ""
    here: bool = False


class Answer(NamedTuple):
    """`body`: whole, or in pieces between which other work goes on."""

    status: HTTPStatus
    media_type: str
    body: bytes | Iterable[bytes]


class Later(NamedTuple):
    """An answer that is waited for, and comes within so many seconds."""

    answer: Awaitable[Answer]
    limit_seconds: float


class _BadRequest(Exception):
    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


class PageServer:
    """`answer` is asked in the event loop, and answers at once, or says how long it takes."""

    def __init__(self, host: str, port: int, answer: Callable[[Request], Answer | Later]) -> None:
        self._host, self._port, self._answer = host, port, answer
        self._connections: set[asyncio.Task[None]] = set()
        # Those whose request has not come yet, oldest first.
        self._unasked: dict[asyncio.StreamWriter, None] = {}

    async def run(self) -> NoReturn:
        """Serve until cancelled. An address that is taken is tried again: it keeps nothing else from being done."""
        told = False
        while True:
            try:
                server = await asyncio.start_server(self._connected, self._host, self._port, limit=_HEAD_BYTES)
            except OSError as error:
                if not told:
                    log.error("no page is served at %s port %d yet: %s", self._host, self._port, error)
                told = True
                await asyncio.sleep(_BIND_AGAIN_SECONDS)
                continue
            log.info("pages are served at %s port %d", self._host, self._port)
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                server.close()
                for connection in self._connections:
                    connection.cancel()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or (len(self._connections) >= _CONNECTIONS and not self._make_room()):
            writer.transport.abort()
            return
        self._connections.add(task)
        self._unasked[writer] = None
        try:
            async with asyncio.timeout(_CONNECTION_SECONDS) as deadline:
                await self._serve(reader, writer, deadline)
                writer.close()
                await writer.wait_closed()
        except asyncio.CancelledError:
            # The end of the server. Of a task that ends as cancelled, Python 3.11 logs a defect.
            log.debug("a connection ended with the server")
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            # A slow client, or one that left.
            log.debug("a connection ended before its answer did")
        except Exception:
            log.exception("a page failed")
        finally:
            self._connections.discard(task)
            self._unasked.pop(writer, None)
            writer.transport.abort()

    def _make_room(self) -> bool:
        """End the connection that has asked nothing for the longest: whoever holds many open keeps nobody out."""
        oldest = next(iter(self._unasked), None)
        if oldest is None:
            return False
        del self._unasked[oldest]
        oldest.transport.abort()
        return True

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, deadline: asyncio.Timeout
    ) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            self._unasked.pop(writer, None)
            method, minor, request = _read(head)
            request = request._replace(here=_is_loopback(writer))
        except asyncio.LimitOverrunError:
            answer = _refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            method, minor = "GET", 0
        except _BadRequest as error:
            answer = _refusal(error.status)
            method, minor = "GET", 0
        else:
            given = self._answer(request)
            if isinstance(given, Later):
                deadline.reschedule(asyncio.get_running_loop().time() + given.limit_seconds + _CONNECTION_SECONDS)
                given = await given.answer
            answer = given
        # Before HTTP/1.1 the end of the connection is the end of what comes in pieces.
        chunked = minor == 1 and not isinstance(answer.body, bytes)
        writer.write(_head(answer, chunked=chunked))
        if method == "HEAD":
            return
        for piece in [answer.body] if isinstance(answer.body, bytes) else answer.body:
            # An empty chunk would be the end.
            if piece:
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
                await writer.drain()
                await asyncio.sleep(0)
        if chunked:
            writer.write(b"0\r\n\r\n")


def _read(head: bytes) -> tuple[str, int, Request]:
    """Method, minor version and request. A body is never read, so that no header about one matters."""
    first, *others = head[:-4].split(b"\r\n")
    line = _REQUEST_LINE.fullmatch(first)
    if line is None:
        raise _BadRequest(HTTPStatus.BAD_REQUEST)
    method = line[1].decode()
    if method not in ("GET", "HEAD"):
        raise _BadRequest(HTTPStatus.METHOD_NOT_ALLOWED)
    headers = {name.lower(): value.strip() for name, _, value in (other.partition(b":") for other in others)}
    path, _, query = line[2].decode().partition("?")
    return method, int(line[3]), Request(path, headers.get(b"authorization", b""), query)


def _is_loopback(writer: asyncio.StreamWriter) -> bool:
    peer = writer.get_extra_info("peername")
    # None: it has gone by now.
    return peer is not None and ipaddress.ip_address(str(peer[0]).partition("%")[0]).is_loopback


def _refusal(status: HTTPStatus) -> Answer:
    return Answer(status, "text/plain", f"{status.phrase}\n".encode())


def _head(answer: Answer, *, chunked: bool) -> bytes:
    status = answer.status
    lines = f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {answer.media_type}\r\n{_HEADERS}"
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        lines += "Allow: GET, HEAD\r\n"
    if status == HTTPStatus.UNAUTHORIZED:
        lines += "WWW-Authenticate: Bearer\r\n"
    if isinstance(answer.body, bytes):
        lines += f"Content-Length: {len(answer.body)}\r\n"
    elif chunked:
        lines += "Transfer-Encoding: chunked\r\n"
    return f"{lines}\r\n".encode()
