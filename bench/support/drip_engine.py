"""`python -m bench.support.drip_engine`: an engine whose streams never end, each event with the time of its sending.

Each stream's first event comes at once, then one every `--every-ms`, the streams spread over that time. Times are
CLOCK_MONOTONIC in nanoseconds, which all processes of a machine share.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import resource
import sys
import time
from typing import cast

import uvloop

from simulator.http_server import chunk

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_WELL = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


class Dripping(asyncio.Protocol):
    """One connection: a stream for a POST, a bare 200 for anything else (health, models)."""

    def __init__(self, every_seconds: float) -> None:
        self._every_seconds = every_seconds
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        if data.startswith(b"POST"):
            self._transport.write(_HEAD)
            self._drip()
            # The second event finds each stream its place in the round.
            self._loop.call_later(random.uniform(0, self._every_seconds), self._go_on)
        elif data.startswith(b"GET"):
            self._transport.write(_WELL)

    def _go_on(self) -> None:
        if self._transport is not None:
            self._drip()
            self._loop.call_later(self._every_seconds, self._go_on)

    def _drip(self) -> None:
        if self._transport is not None:
            said = b'data: {"choices":[{"index":0,"delta":{"content":" word"}}],"sent_ns":%d}\n\n' % time.monotonic_ns()
            self._transport.write(chunk(said))


def many_files() -> None:
    """As many sockets as the system lets a process have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def serve(options: argparse.Namespace) -> None:
    server = await asyncio.get_running_loop().create_server(
        lambda: Dripping(options.every_ms / 1000), "127.0.0.1", options.port, backlog=4096
    )
    await server.serve_forever()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True, help="on 127.0.0.1")
    parser.add_argument("--every-ms", type=float, required=True)
    many_files()
    uvloop.run(serve(parser.parse_args()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
