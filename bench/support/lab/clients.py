"""The lab's clients: kinds of visits that come at a steady rate, from a thread of their own, and how they fared."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, NamedTuple

import aiohttp
import msgspec

from simulator.pathologies.asks import Ask, Draw, Visit
from simulator.tokenizer import Words

_DATA, _DONE = b"data: ", b"data: [DONE]"
_KEPT = 50_000
_PATIENCE_SECONDS = 30.0


class _Event(msgspec.Struct):
    choices: list[msgspec.Raw] = []


_event = msgspec.json.Decoder(_Event).decode


@dataclass(frozen=True)
class Kind:
    """One kind of client: whose key it has, what it asks, how often it comes.

    `ttft_seconds`, `tpot_seconds`, `whole_seconds`: what an answer must keep to be good; a stream the first two.
    `resends`: how often a request is sent again that was refused or left, `resend_seconds` after each time, whatever
    Retry-After says. `gives_way`: it is of a class that is turned away first, and comes again until it is served: its
    refusals are no loss, and it is no part of goodput.
    """

    tenant: str
    visit: Visit
    visits_per_second: float
    ttft_seconds: float = 2.0
    tpot_seconds: float = 0.1
    whole_seconds: float = 60.0
    resends: int = 0
    resend_seconds: float = 0.1
    most_at_once: int = 400
    gives_way: bool = False


class Ended(NamedTuple):
    """One request: when it was sent, of which kind, and how it ended: good, late, left, cut, or a status and reason."""

    sent_at: float
    kind: str
    ending: str


@dataclass(eq=False)
class _Open:
    """A request under way."""

    sent_at: float
    kind: str
    has_begun: bool = False


def good_part(endings: Counter[str]) -> float:
    """The part of these that is good; 0 of none."""
    return endings["good"] / max(1, endings.total())


class Clients:
    """Runs kinds of clients against one gateway. Times are those of time.monotonic()."""

    def __init__(self, url: str, keys: Mapping[str, Sequence[str]], words: Words, seed: int = 1) -> None:
        self._url, self._keys, self._words, self._seed = url, keys, words, seed
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="clients", daemon=True)
        self.ended: deque[Ended] = deque(maxlen=_KEPT)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._under_way: set[_Open] = set()
        self._http: aiohttp.ClientSession | None = None

    def __enter__(self) -> Clients:
        self._thread.start()
        self._do(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def start(self, kinds: Mapping[str, Kind]) -> None:
        for name, kind in kinds.items():
            self._do(self._start(name, kind))

    def stop(self, names: Iterable[str]) -> None:
        """What is under way is left where it stands."""
        for name in names:
            self._do(self._stop(name))

    def endings(self, since: float, until: float, kinds: Iterable[str]) -> Counter[str]:
        """How the requests of these kinds that were sent in that time ended; `open`: those that have not."""
        wanted = set(kinds)

        def is_of_them(each: Ended | _Open) -> bool:
            return since <= each.sent_at < until and each.kind in wanted

        is_open = sum(map(is_of_them, self._under_way.copy()))
        return Counter(each.ending for each in list(self.ended) if is_of_them(each)) + Counter({"open": is_open})

    def goodput(self, since: float, until: float, kinds: Iterable[str]) -> float:
        """The part of what was sent in that time that was answered well; 0 of nothing."""
        return good_part(self.endings(since, until, kinds))

    def left_from_before(self, moment: float, may_run: Collection[str] = ()) -> int:
        """Requests that were sent before it and have not ended; of kinds that `may_run` those without a token yet."""
        return sum(
            each.sent_at < moment and not (each.has_begun and each.kind in may_run) for each in self._under_way.copy()
        )

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        future: Future[None] = asyncio.run_coroutine_threadsafe(work, self._loop)
        future.result(30)

    async def _open(self) -> None:
        timeout = aiohttp.ClientTimeout(total=None)
        self._http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout)

    async def _close(self) -> None:
        for name in list(self._running):
            await self._stop(name)
        if self._http is not None:
            await self._http.close()

    async def _start(self, name: str, kind: Kind) -> None:
        self._running[name] = asyncio.create_task(self._come(name, kind))

    async def _stop(self, name: str) -> None:
        if (task := self._running.pop(name, None)) is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _come(self, name: str, kind: Kind) -> None:
        """Visits at almost even distances: how many come in a time is no matter of luck."""
        rng = random.Random(f"{self._seed}:{name}")
        due, number = time.monotonic() + min(1.0, rng.random() / kind.visits_per_second), 0
        visits: set[asyncio.Task[None]] = set()
        try:
            while True:
                await asyncio.sleep(due - time.monotonic())
                # A machine that was busy for a while is not made busier by what it missed.
                due = max(due, time.monotonic() - 1) + rng.uniform(0.7, 1.3) / kind.visits_per_second
                number += 1
                if len(visits) < kind.most_at_once:
                    asked, key = kind.visit(Draw(rng, self._words, number)), rng.choice(self._keys[kind.tenant])
                    task = asyncio.create_task(self._visit(name, kind, asked, key))
                    visits.add(task)
                    task.add_done_callback(visits.discard)
        finally:
            for task in visits:
                task.cancel()
            await asyncio.gather(*visits, return_exceptions=True)

    async def _visit(self, name: str, kind: Kind, asks: Iterable[Ask], key: str) -> None:
        """One ask after another; who is refused for good gives up."""
        for ask in asks:
            for _ in range(kind.resends + 1):
                sent = _Open(time.monotonic(), name)
                self._under_way.add(sent)
                try:
                    ending = await self._ask(kind, ask, key, sent)
                finally:
                    self._under_way.discard(sent)
                self.ended.append(Ended(sent.sent_at, name, ending))
                if ending[0] not in "45" and ending != "left":
                    break
                await asyncio.sleep(kind.resend_seconds if kind.resends else 0)
            else:
                return

    async def _ask(self, kind: Kind, ask: Ask, key: str, sent: _Open) -> str:
        if self._http is None:
            raise RuntimeError("the clients are not open")
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json",
                   **ask.headers}  # fmt: skip
        try:
            async with asyncio.timeout(ask.leave_after_seconds or _PATIENCE_SECONDS):
                async with self._http.post(
                    self._url + ask.path, data=msgspec.json.encode(ask.body), headers=headers
                ) as answer:
                    if answer.status != 200:
                        told = msgspec.json.decode(await answer.read())
                        return f"{answer.status} {told['error']['code']}"
                    if answer.content_type == "text/event-stream":
                        return await _read(answer, sent, kind)
                    await answer.read()
                    return "good" if time.monotonic() - sent.sent_at <= kind.whole_seconds else "late"
        except TimeoutError:
            return "left"
        except (aiohttp.ClientError, msgspec.DecodeError, KeyError):
            return "cut"


async def _read(answer: aiohttp.ClientResponse, sent: _Open, kind: Kind) -> str:
    first = last = 0.0
    tokens, ended = 0, False
    async for line in answer.content:
        if line.startswith(_DONE):
            ended = True
        elif line.startswith(_DATA) and _event(line[len(_DATA) :]).choices:
            last = time.monotonic()
            tokens += 1
            first = first or last
            sent.has_begun = True
    if not tokens or not ended:
        return "cut"
    kept = first - sent.sent_at <= kind.ttft_seconds and last - first <= kind.tpot_seconds * max(1, tokens - 1)
    return "good" if kept else "late"
