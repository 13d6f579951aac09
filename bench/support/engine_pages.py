"""`python -m bench.support.engine_pages PAGE COUNT`: so many engines that answer as vLLM does, and do nothing.

Each listens on a port of its own of 127.0.0.1; the ports are printed in one line. PAGE is the file of their /metrics.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

_PLAIN, _JSON = b"text/plain; version=0.0.4; charset=utf-8", b"application/json"


def answer(content_type: bytes, body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b" % (content_type, len(body), body)


class Engine(asyncio.Protocol):
    """One connection, kept alive. A GET has no body, so a request ends with its head."""

    def __init__(self, answers: dict[bytes, bytes]) -> None:
        self._answers = answers
        self._read = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        *heads, self._read = (self._read + data).split(b"\r\n\r\n")
        for head in heads:
            self._transport.write(self._answers[head.split(b" ", 2)[1]])


async def serve(page: bytes, count: int) -> None:
    answers = {
        b"/health": answer(_PLAIN, b""),
        b"/version": answer(_JSON, b'{"version":"0.32.0"}'),
        b"/metrics": answer(_PLAIN, page),
    }
    loop = asyncio.get_running_loop()
    servers = [await loop.create_server(lambda: Engine(answers), "127.0.0.1", 0) for _ in range(count)]
    print(*(server.sockets[0].getsockname()[1] for server in servers), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]).read_bytes(), int(sys.argv[2])))
