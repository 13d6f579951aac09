"""`python -m bench.support.viewers URL SECONDS`: people with the overview open, as their browsers behave.

Session cookies come on standard input, one a viewer. Each opens the page and its stream; the panels are asked for at
the stream's events and by their own clocks, one request of a panel at a time. Prints a line once all have begun, and
one of JSON with what was answered when the time is over.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections import Counter

import aiohttp

COOKIE = "headworks_session"
PANELS = {"/overview-panel/": 10.0, "/overview-lately/": 30.0}
# Nobody opens the page at the same moment as the others.
_SPREAD_SECONDS = 10.0


class Viewer:
    def __init__(self, client: aiohttp.ClientSession, seen: Counter[str]) -> None:
        self._client, self._seen = client, seen
        self._wanted = {path: asyncio.Event() for path in PANELS}
        self._revision: int | None = None

    async def look(self) -> None:
        page = await self._get("/overview/")
        found = re.search(r'data-stream="([^"]+)"', page)
        if found is None:
            raise RuntimeError("the overview names no stream")
        await asyncio.gather(self._follow(found[1]), *(self._refresh(path) for path in PANELS))

    async def _get(self, path: str) -> str:
        async with self._client.get(path) as answer:
            text = await answer.text()
            if answer.status != 200:
                raise RuntimeError(f"{path} answers {answer.status}")
            self._seen[path] += 1
            return text

    async def _follow(self, path: str) -> None:
        async with self._client.get(path, timeout=aiohttp.ClientTimeout(total=None)) as stream:
            async for line in stream.content:
                if line.startswith(b"data: "):
                    self._seen["events"] += 1
                    self._take(json.loads(line.removeprefix(b"data: ")))

    def _take(self, event: dict[str, object]) -> None:
        self._wanted["/overview-panel/"].set()
        if event.get("revision") != self._revision:
            self._revision = event.get("revision")  # type: ignore[assignment]
            self._wanted["/overview-lately/"].set()

    async def _refresh(self, path: str) -> None:
        await self._get(path)
        while True:
            try:
                async with asyncio.timeout(PANELS[path]):
                    await self._wanted[path].wait()
            except TimeoutError:
                pass
            self._wanted[path].clear()
            await self._get(path)


async def watch(url: str, seconds: float, cookies: list[str]) -> None:
    seen: Counter[str] = Counter()
    clients = [
        aiohttp.ClientSession(url, cookies={COOKIE: cookie}, connector=aiohttp.TCPConnector(limit=6))
        for cookie in cookies
    ]
    looking: list[asyncio.Task[None]] = []
    for client in clients:
        looking.append(asyncio.create_task(Viewer(client, seen).look()))
        await asyncio.sleep(_SPREAD_SECONDS / len(cookies))
    print("looking", flush=True)
    seen.clear()
    begun = time.monotonic()
    await asyncio.wait(looking, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for task in looking:
        if task.done():
            task.result()
            raise RuntimeError("a stream ended")
        task.cancel()
    print(json.dumps({"seconds": time.monotonic() - begun, **seen}), flush=True)
    await asyncio.gather(*looking, return_exceptions=True)
    for client in clients:
        await client.close()


if __name__ == "__main__":
    asyncio.run(watch(sys.argv[1], float(sys.argv[2]), sys.stdin.read().split()))
