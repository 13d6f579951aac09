"""Streams that are asked for whether or not earlier ones were answered, each judged by what its user saw.

Arrivals are a Poisson process, as of users who know nothing of each other: a slow server meets a growing load.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import aiohttp
import msgspec

from simulator.tokenizer import Words
from simulator.traffic import Tenant, draw_request

T = TypeVar("T")
_DATA, _DONE = b"data: ", b"data: [DONE]"


class _Event(msgspec.Struct):
    choices: list[msgspec.Raw] = []


_event = msgspec.json.Decoder(_Event).decode


@dataclass(frozen=True)
class Promise:
    """What an answer must keep to be of use, and how long a user waits for its first token."""

    ttft_seconds: float
    tpot_seconds: float
    patience_seconds: float


@dataclass
class Seen:
    """What came of the requests that were sent in `seconds`. `endings`: `good`, `late`, `left`, `cut`, or a status."""

    seconds: float
    endings: Counter[str] = field(default_factory=Counter)
    ttfts: list[float] = field(default_factory=list)
    output_tokens: int = 0

    @property
    def goodput(self) -> float:
        """Requests a second that kept the promise."""
        return self.endings["good"] / self.seconds

    @property
    def p95_ttft_ms(self) -> float:
        """Of those that had a first token; 0 where none had."""
        return sorted(self.ttfts)[len(self.ttfts) * 95 // 100] * 1000 if self.ttfts else 0.0


class OpenLoad:
    """Clients of servers on this machine, which are asked in turn."""

    def __init__(self, ports: Sequence[int], tenant: Tenant, words: Words, promise: Promise) -> None:
        self._urls = itertools.cycle([f"http://127.0.0.1:{port}" for port in ports])
        self._tenant, self._words, self._promise = tenant, words, promise

    async def offer(self, rate_per_second: float, warm_up_seconds: float, seconds: float, seed: int) -> Seen:
        """Requests that come at that rate; those of the warm-up are not counted. Returns when all have ended."""
        seen, unseen = Seen(seconds), Seen(warm_up_seconds)
        rng = random.Random(seed)
        begun = due = time.monotonic()
        timeout = aiohttp.ClientTimeout(total=None)
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as http,
            asyncio.TaskGroup() as tasks,
        ):
            while (due := due + rng.expovariate(rate_per_second)) < begun + warm_up_seconds + seconds:
                body = draw_request(self._tenant, self._words, rng)
                await asyncio.sleep(due - time.monotonic())
                counted = seen if due >= begun + warm_up_seconds else unseen
                tasks.create_task(self._ask(http, next(self._urls) + body.path, body.body, counted))
        return seen

    async def offer_while(self, rate_per_second: float, doing: Awaitable[T], seed: int) -> tuple[Seen, T]:
        """Requests that come at that rate until `doing` has ended; what came of all of them, and its result."""
        seen = Seen(0)
        rng = random.Random(seed)
        begun = due = time.monotonic()
        task = asyncio.ensure_future(doing)
        timeout = aiohttp.ClientTimeout(total=None)
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as http,
            asyncio.TaskGroup() as tasks,
        ):
            while not task.done():
                due += rng.expovariate(rate_per_second)
                body = draw_request(self._tenant, self._words, rng)
                await asyncio.sleep(due - time.monotonic())
                tasks.create_task(self._ask(http, next(self._urls) + body.path, body.body, seen))
            seen.seconds = time.monotonic() - begun
        return seen, await task

    async def _ask(self, http: aiohttp.ClientSession, url: str, body: bytes, seen: Seen) -> None:
        headers = {"Authorization": f"Bearer {self._tenant.key}", "Content-Type": "application/json"}
        sent = time.monotonic()
        try:
            async with asyncio.timeout(self._promise.patience_seconds) as patience:
                async with http.post(url, data=body, headers=headers) as answer:
                    if answer.status == 200:
                        ending = await self._read(answer, sent, seen, patience)
                    else:
                        ending = f"{answer.status} {msgspec.json.decode(await answer.read())['error']['code']}"
        except TimeoutError:
            ending = "left"
        except aiohttp.ClientError:
            ending = "cut"
        seen.endings[ending] += 1

    async def _read(self, answer: aiohttp.ClientResponse, sent: float, seen: Seen, patience: asyncio.Timeout) -> str:
        first = last = 0.0
        tokens, ended = 0, False
        async for line in answer.content:
            if line.startswith(_DONE):
                ended = True
            elif line.startswith(_DATA) and _event(line[len(_DATA) :]).choices:
                last = time.monotonic()
                tokens += 1
                if tokens == 1:
                    first = last
                    patience.reschedule(None)
        if not tokens or not ended:
            return "cut"
        seen.ttfts.append(first - sent)
        seen.output_tokens += tokens
        kept = first - sent <= self._promise.ttft_seconds and last - first <= self._promise.tpot_seconds * tokens
        return "good" if kept else "late"
