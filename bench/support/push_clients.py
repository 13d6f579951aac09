"""The targets of `bench.config_push`: many config streams in one process that verify, acknowledge and note when.

`python -m bench.support.push_clients URL` reads one target a line from standard input (its token),
writes `ready` once each has its first slice, and follows the streams until SIGTERM. Its last line is a JSON object:
`applied`, a list of [revision, Unix time in ms], and `cpu_seconds`.
"""

from __future__ import annotations

import asyncio
import json
import resource
import signal
import sys
import time

import aiohttp
import msgspec
import uvloop

from wire.messages import Ack, LastKnownGood, PatchEvent, SnapshotEvent, decode_sse
from wire.slices import next_slice
from wire.sse import SseParser

EVENT_LIMIT_BYTES = 64 << 20
# As an agent: at most so long between two tries.
RETRY_SECONDS = 1.0


class Clients:
    def __init__(self, url: str, tokens: list[str]) -> None:
        self._url, self._tokens = url, tokens
        self._waiting = len(tokens)
        self.ready = asyncio.Event()
        self.applied: list[tuple[int, int]] = []

    async def run(self) -> None:
        # No keep-alive limit: each stream holds its connection.
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
            asyncio.TaskGroup() as tasks,
        ):
            for token in self._tokens:
                tasks.create_task(self._follow(session, {"Authorization": f"Bearer {token}"}))

    async def _follow(self, session: aiohttp.ClientSession, headers: dict[str, str]) -> None:
        held: LastKnownGood | None = None
        timeout = aiohttp.ClientTimeout(total=None, sock_read=40)
        while True:
            url = f"{self._url}/config/stream?have={held.revision if held else 0}"
            async with session.get(url, headers=headers, timeout=timeout) as response:
                response.raise_for_status()
                parser = SseParser(EVENT_LIMIT_BYTES)
                async for chunk in response.content.iter_any():
                    for event in parser.feed(chunk):
                        message = decode_sse(event.name, event.data)
                        if isinstance(message, SnapshotEvent | PatchEvent):
                            if held is None:
                                self._count_ready()
                            held = next_slice(held, message)
                            await self._acknowledge(session, headers, held)
            await asyncio.sleep(RETRY_SECONDS)

    def _count_ready(self) -> None:
        self._waiting -= 1
        if self._waiting == 0:
            self.ready.set()

    async def _acknowledge(self, session: aiohttp.ClientSession, headers: dict[str, str], held: LastKnownGood) -> None:
        now_ms = time.time_ns() // 1_000_000
        self.applied.append((held.revision, now_ms))
        body = msgspec.json.encode(Ack(held.revision, hash=held.hash, applied_at=now_ms))
        async with session.post(f"{self._url}/config/ack", headers=headers, data=body) as response:
            response.raise_for_status()


async def follow(url: str, tokens: list[str]) -> list[tuple[int, int]]:
    clients = Clients(url, tokens)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    running = asyncio.create_task(clients.run())
    ready = asyncio.create_task(clients.ready.wait())
    await asyncio.wait((running, ready), return_when=asyncio.FIRST_COMPLETED)
    if not running.done():
        print("ready", flush=True)
        stop = asyncio.create_task(ended.wait())
        await asyncio.wait((running, stop), return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        running.result()
    running.cancel()
    return clients.applied


def main() -> int:
    tokens = sys.stdin.read().split()
    applied = uvloop.run(follow(sys.argv[1], tokens))
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"applied": applied, "cpu_seconds": usage.ru_utime + usage.ru_stime}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
