"""The targets of `bench.config_push`: many config streams in one process that verify, acknowledge and note when.

`python -m bench.support.push_clients URL ...` reads one target a line from standard input (its token), writes `ready`
once each has its first slice, and follows the streams until SIGTERM. One that breaks goes on at the next URL. The last
line is a JSON object: `applied`, a list of [revision, Unix time in ms]; `held`, the hash that each target holds;
`breaks`, how many streams or acknowledgements failed; `patch_bytes`, a list of [revision, bytes]; and `cpu_seconds`.
"""

from __future__ import annotations

import asyncio
import itertools
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
# Longer than three pings of a stream.
SILENCE_SECONDS = 40.0


class Client:
    """One target: its slice, and whether the control plane knows that it has it."""

    def __init__(self, token: str) -> None:
        self.headers = {"Authorization": f"Bearer {token}"}
        self.held: LastKnownGood | None = None
        self.acknowledged = False


class Clients:
    def __init__(self, urls: list[str], tokens: list[str]) -> None:
        self._urls = urls
        self._clients = [Client(token) for token in tokens]
        self._waiting = len(tokens)
        self.ready = asyncio.Event()
        self.applied: list[tuple[int, int]] = []
        self.breaks = 0
        self.patch_bytes: list[tuple[int, int]] = []

    def held(self) -> list[str]:
        return [client.held.hash for client in self._clients if client.held is not None]

    async def run(self) -> None:
        # No keep-alive limit: each stream holds its connection.
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
            asyncio.TaskGroup() as tasks,
        ):
            for number, client in enumerate(self._clients):
                tasks.create_task(self._stay(session, client, number))

    async def _stay(self, session: aiohttp.ClientSession, client: Client, number: int) -> None:
        for turn in itertools.count(number):
            try:
                await self._follow(session, client, self._urls[turn % len(self._urls)])
            except (aiohttp.ClientError, TimeoutError):
                self.breaks += 1
            await asyncio.sleep(RETRY_SECONDS)

    async def _follow(self, session: aiohttp.ClientSession, client: Client, url: str) -> None:
        if client.held is not None and not client.acknowledged:
            await self._acknowledge(session, client, client.held, url)
        have = client.held.revision if client.held else 0
        timeout = aiohttp.ClientTimeout(total=None, sock_read=SILENCE_SECONDS)
        stream = session.get(f"{url}/config/stream?have={have}", headers=client.headers, timeout=timeout)
        async with stream as response:
            response.raise_for_status()
            parser = SseParser(EVENT_LIMIT_BYTES)
            async for chunk in response.content.iter_any():
                for event in parser.feed(chunk):
                    message = decode_sse(event.name, event.data)
                    if isinstance(message, PatchEvent):
                        self.patch_bytes.append((message.revision, len(event.data)))
                    if isinstance(message, SnapshotEvent | PatchEvent):
                        if client.held is None:
                            self._count_ready()
                        client.held = next_slice(client.held, message)
                        self.applied.append((client.held.revision, time.time_ns() // 1_000_000))
                        await self._acknowledge(session, client, client.held, url)

    def _count_ready(self) -> None:
        self._waiting -= 1
        if self._waiting == 0:
            self.ready.set()

    async def _acknowledge(self, session: aiohttp.ClientSession, client: Client, held: LastKnownGood, url: str) -> None:
        client.acknowledged = False
        body = msgspec.json.encode(Ack(held.revision, hash=held.hash, applied_at=time.time_ns() // 1_000_000))
        timeout = aiohttp.ClientTimeout(total=SILENCE_SECONDS)
        async with session.post(f"{url}/config/ack", headers=client.headers, data=body, timeout=timeout) as response:
            response.raise_for_status()
        client.acknowledged = True


async def follow(urls: list[str], tokens: list[str]) -> Clients:
    clients = Clients(urls, tokens)
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
    return clients


def main() -> int:
    clients = uvloop.run(follow(sys.argv[1:], sys.stdin.read().split()))
    usage = resource.getrusage(resource.RUSAGE_SELF)
    told = {
        "applied": clients.applied,
        "held": clients.held(),
        "breaks": clients.breaks,
        "patch_bytes": clients.patch_bytes,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
    }
    print(json.dumps(told), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
