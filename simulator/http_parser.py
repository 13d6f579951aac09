"""Reads HTTP/1.1 requests out of a byte stream. No I/O.

The engine is the peer in the gateway's benchmark, so that it must cost less than a general server does; this
reads what an engine's clients send (RFC 9112) and refuses the rest by name.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_HEAD_BYTES = 32 * 1024
_HEX_DIGITS = frozenset(b"0123456789abcdefABCDEF")


class BadHttp(ValueError):
    """The bytes are no request that can be answered; the connection cannot go on. `status` is the answer's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request. Header names are lower case; `path` is without the query."""

    method: bytes
    path: bytes
    headers: dict[bytes, bytes]
    body: bytes
    keep_alive: bool
    query: bytes = b""


@dataclass(frozen=True, slots=True)
class _Head:
    method: bytes
    path: bytes
    headers: dict[bytes, bytes]
    body_bytes: int | None
    keep_alive: bool
    query: bytes


class RequestParser:
    """Feed it bytes as they come, cut anywhere; `next_request` gives whole requests in order."""

    def __init__(self, max_body_bytes: int) -> None:
        self._max_body_bytes = max_body_bytes
        self._buffer = bytearray()
        self._head: _Head | None = None
        self._chunks = bytearray()

    @property
    def buffered_bytes(self) -> int:
        return len(self._buffer)

    @property
    def wants_continue(self) -> bool:
        """A head has come that waits for `100 Continue` before it sends its body."""
        return (
            self._head is not None
            and not self._buffer
            and not self._chunks
            and self._head.headers.get(b"expect", b"").lower() == b"100-continue"
        )

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next_request(self) -> HttpRequest | None:
        """The next whole request, or None until more bytes come.

        Raises: BadHttp.
        """
        if self._head is None:
            self._head = self._read_head()
            if self._head is None:
                return None
        head = self._head
        body = self._read_chunked() if head.body_bytes is None else self._read_sized(head.body_bytes)
        if body is None:
            return None
        self._head = None
        return HttpRequest(head.method, head.path, head.headers, body, head.keep_alive, head.query)

    def _read_head(self) -> _Head | None:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0 and len(self._buffer) <= MAX_HEAD_BYTES:
            return None
        if end < 0 or end > MAX_HEAD_BYTES:
            raise BadHttp(431, f"the request's head is longer than {MAX_HEAD_BYTES} bytes")
        lines = bytes(self._buffer[:end]).split(b"\r\n")
        del self._buffer[: end + 4]
        try:
            method, target, version = lines[0].split(b" ")
        except ValueError:
            raise BadHttp(400, "the first line must be: METHOD TARGET HTTP/1.1") from None
        if version != b"HTTP/1.1":
            raise BadHttp(505, "only HTTP/1.1 is served")
        headers: dict[bytes, bytes] = {}
        for line in lines[1:]:
            name, colon, value = line.partition(b":")
            if not colon or not name or name != name.strip():
                raise BadHttp(400, "a header line must be NAME: VALUE, without white space around the name")
            name = name.lower()
            if name in headers and name in (b"content-length", b"transfer-encoding", b"host"):
                raise BadHttp(400, f"the header {name.decode()} must occur once")
            headers[name] = value.strip()
        keep_alive = headers.get(b"connection", b"").lower() != b"close"
        path, _, query = target.partition(b"?")
        return _Head(method, path, headers, self._body_bytes(headers), keep_alive, query)

    def _body_bytes(self, headers: dict[bytes, bytes]) -> int | None:
        """The body's length, or None when it comes in chunks."""
        length, coding = headers.get(b"content-length"), headers.get(b"transfer-encoding")
        if coding is not None:
            if length is not None or coding.lower() != b"chunked":
                raise BadHttp(400, "transfer-encoding must be chunked, and then without content-length")
            return None
        if length is None:
            return 0
        if not length.isdigit():
            raise BadHttp(400, "content-length must be a whole number")
        if len(length) > 18 or int(length) > self._max_body_bytes:
            raise self._too_large()
        return int(length)

    def _read_sized(self, size: int) -> bytes | None:
        if len(self._buffer) < size:
            return None
        body = bytes(self._buffer[:size])
        del self._buffer[:size]
        return body

    def _read_chunked(self) -> bytes | None:
        while True:
            line_end = self._buffer.find(b"\r\n")
            if line_end < 0:
                if len(self._buffer) > 1024:
                    raise BadHttp(400, "a chunk's size line is longer than 1024 bytes")
                return None
            digits = bytes(self._buffer[:line_end]).partition(b";")[0].strip()
            if not digits or len(digits) > 12 or not _HEX_DIGITS.issuperset(digits):
                raise BadHttp(400, "a chunk must begin with its size in hexadecimal digits")
            size, start = int(digits, 16), line_end + 2
            if size == 0:
                return self._read_end(start)
            if len(self._chunks) + size > self._max_body_bytes:
                raise self._too_large()
            if len(self._buffer) < start + size + 2:
                return None
            if self._buffer[start + size : start + size + 2] != b"\r\n":
                raise BadHttp(400, "a chunk must end where its size says, with CRLF")
            self._chunks += self._buffer[start : start + size]
            del self._buffer[: start + size + 2]

    def _read_end(self, start: int) -> bytes | None:
        if len(self._buffer) < start + 2:
            return None
        if self._buffer[start : start + 2] != b"\r\n":
            raise BadHttp(400, "trailers after the last chunk are not taken")
        del self._buffer[: start + 2]
        body, self._chunks = bytes(self._chunks), bytearray()
        return body

    def _too_large(self) -> BadHttp:
        return BadHttp(413, f"the body is larger than {self._max_body_bytes} bytes")
