"""`python -m bench.support.stream_clients`: hold many streams open, and say how late their events come.

Against `bench.support.drip_engine`, whose events carry the time of their sending. Prints one JSON line when all streams
have begun, and one with the figures when `--seconds` are over.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from array import array
from pathlib import Path

import uvloop

from bench.support.drip_engine import many_files
from bench.support.http_load import request_bytes

_MARK = b'"sent_ns":'
# Opened together at most: a listening socket takes so many.
_AT_ONCE = 100
_BEGIN_SECONDS = 60


class Streams:
    """What all connections have seen."""

    def __init__(self) -> None:
        self.delays_ns = array("q")
        self.measures = False
        self.cut = 0


class Stream(asyncio.Protocol):
    def __init__(self, request: bytes, all_of_them: Streams) -> None:
        self._request, self._all = request, all_of_them
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.write(self._request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        now_ns = time.monotonic_ns()
        at = data.find(_MARK)
        if at < 0:
            if data.startswith(b"HTTP/1.1 ") and not data.startswith(b"HTTP/1.1 200"):
                self._fail(data)
            return
        if not self.begun.done():
            self.begun.set_result(None)
        if self._all.measures:
            # Of events that come together the first one has waited longest.
            begin = at + len(_MARK)
            self._all.delays_ns.append(now_ns - int(data[begin : data.index(b"}", begin)]))

    def connection_lost(self, error: Exception | None) -> None:
        self._all.cut += 1
        self._fail(b"cut")

    def _fail(self, said: bytes) -> None:
        if not self.begun.done():
            self.begun.set_exception(ConnectionError(said[:500].decode(errors="replace")))


async def hold(options: argparse.Namespace) -> None:
    request = request_bytes(options.path, options.body.read_bytes(), sys.stdin.readline().strip())
    loop = asyncio.get_running_loop()
    streams = Streams()
    held: list[asyncio.BaseTransport] = []
    left = options.streams
    while left:
        count = min(_AT_ONCE, left)
        pairs = await asyncio.gather(
            *(loop.create_connection(lambda: Stream(request, streams), "127.0.0.1", options.port) for _ in range(count))
        )
        held += [transport for transport, _ in pairs]
        async with asyncio.timeout(_BEGIN_SECONDS):
            await asyncio.gather(*(stream.begun for _, stream in pairs))
        left -= count
    print(json.dumps({"streams": len(held)}), flush=True)
    streams.measures = True
    await asyncio.sleep(options.seconds)
    streams.measures = False
    delays_ms = sorted(delay / 1e6 for delay in streams.delays_ns)
    figures = {
        "events_per_second": len(delays_ms) / options.seconds,
        "p50_ms": delays_ms[len(delays_ms) // 2],
        "p99_ms": delays_ms[len(delays_ms) * 99 // 100],
        "max_ms": delays_ms[-1],
        "cut": streams.cut,
    }
    for transport in held:
        transport.close()
    print(json.dumps(figures), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True, help="on 127.0.0.1")
    parser.add_argument("--path", required=True)
    parser.add_argument("--body", type=Path, required=True, help="file with the request's body; the key comes on stdin")
    parser.add_argument("--streams", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    many_files()
    uvloop.run(hold(parser.parse_args()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
