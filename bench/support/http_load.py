"""`python -m bench.support.http_load`: send requests over kept connections, and say how long each took.

Each request is the given body with `########` replaced by a random number, so that no cache on the way answers for the
work that is measured.

A lean HTTP/1.1 client in a process of its own, so that what it costs is not counted to what it measures. It reads
the answer to its end (Content-Length or chunked) and prints one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import cast

import uvloop

_HEAD_END = b"\r\n\r\n"
_PLACE = b"########"


class Connection(asyncio.Protocol):
    """One kept connection with one request in flight."""

    def __init__(self) -> None:
        self._buffer = b""
        self._answer: asyncio.Future[int] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport is one without being derived from it.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        status = complete_answer(self._buffer)
        if status is not None and self._answer is not None:
            self._buffer = b""
            self._answer.set_result(status)

    def connection_lost(self, error: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError("the server closed the connection within an answer"))

    async def send(self, request: bytes) -> int:
        """The status of the answer, once all of it is here."""
        if self._transport is None:
            raise ConnectionError("not connected")
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def complete_answer(data: bytes) -> int | None:
    """The status, if `data` is one whole HTTP/1.1 answer."""
    head, mark, body = data.partition(_HEAD_END)
    if not mark:
        return None
    status = int(head[9:12])
    lower = head.lower()
    _, found, rest = lower.partition(b"\r\ncontent-length:")
    if found:
        return status if len(body) >= int(rest.split(b"\r\n", 1)[0]) else None
    return status if body.endswith(b"0\r\n\r\n") else None


async def worker(port: int, request: bytes, until: float, pause_seconds: float, statuses: Counter[int]) -> list[float]:
    """Latencies in seconds. Between answers it rests a random time of mean `pause_seconds` (0: not at all)."""
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(Connection, "127.0.0.1", port)
    dice = random.Random()
    latencies: list[float] = []
    before, place, after = request.partition(_PLACE)
    if pause_seconds:
        await asyncio.sleep(dice.uniform(0, pause_seconds))
    while time.perf_counter() < until:
        unique = b"%08d" % dice.randrange(10**8) if place else b""
        begun = time.perf_counter()
        statuses[await connection.send(before + unique + after)] += 1
        latencies.append(time.perf_counter() - begun)
        if pause_seconds:
            await asyncio.sleep(dice.expovariate(1 / pause_seconds))
    connection.close()
    return latencies


def request_bytes(path: str, body: bytes, key: str) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    )
    return f"{head}Authorization: Bearer {key}\r\n\r\n".encode() + body


async def load(options: argparse.Namespace) -> dict[str, object]:
    request = request_bytes(options.path, options.body.read_bytes(), sys.stdin.readline().strip())
    statuses: Counter[int] = Counter()
    begun = time.perf_counter()
    until = begun + options.seconds
    pause_seconds = options.pause_ms / 1000
    workers = [worker(options.port, request, until, pause_seconds, statuses) for _ in range(options.connections)]
    latencies = sorted(latency for each in await asyncio.gather(*workers) for latency in each)
    seconds = time.perf_counter() - begun
    return {
        "requests": len(latencies),
        "requests_per_second": len(latencies) / seconds,
        "p50_ms": latencies[len(latencies) // 2] * 1000,
        "p99_ms": latencies[len(latencies) * 99 // 100] * 1000,
        "statuses": {str(status): count for status, count in statuses.items()},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True, help="on 127.0.0.1")
    parser.add_argument("--path", required=True)
    parser.add_argument("--body", type=Path, required=True, help="file with the request's body; the key comes on stdin")
    parser.add_argument("--connections", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--pause-ms", type=float, default=0, help="mean rest between two requests of a connection")
    print(json.dumps(uvloop.run(load(parser.parse_args()))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
