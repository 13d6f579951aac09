"""What the gateway's engines say of themselves right now: their metrics pages, read every second.

Only the names that a decision needs are read (wire/engine_pages). Each engine is read by a task of its own, so that a
slow one delays no other; a look is bounded in time and bytes, and a page is taken whole or not at all.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

import aiohttp
from msgspec import UNSET

from gateway.view import View
from policy.kv_ledger import EngineLook, others_tokens
from wire.engine_pages.names import METRICS_PATHS, NAMES
from wire.engine_pages.numbers import CAPACITY, readings
from wire.engine_pages.scan import NotMetrics, Scan
from wire.engine_pages.served_model import of_served_model
from wire.snapshot import Engine

log = logging.getLogger("headworks.gateway")

_RUNNING, _WAITING, _USAGE = "requests_running", "requests_waiting", "kv_cache_usage_ratio"
_STARTED = "process_start_time_seconds"
_SIGNALS = frozenset({_RUNNING, _WAITING, _USAGE, CAPACITY, _STARTED})
# Eighty times a real vLLM's; 64 ranks of an engine take half of it.
_PAGE_BYTES = 4 * 2**20
# Looks at many engines begin together, spread over the first interval, and stay spread.
_JITTER = 0.1


class Held(NamedTuple):
    """What this gateway has at an engine: tokens reserved, sequences sent and not ended."""

    reserved_tokens: int
    sequences: int


class LookRow(NamedTuple):
    """How the looks at an engine go, for the metrics page. `age_seconds`: None before the first."""

    pool: str
    engine: str
    age_seconds: float | None
    failures: int
    others_tokens: int | None


class _NotRead(Exception):
    """A page that the engine does not give, or not as it should; the message names no address."""


class _Watched:
    """One engine from look to look."""

    def __init__(self, name: str, engine: Engine) -> None:
        self.name, self.engine = name, engine
        self.look: EngineLook | None = None
        self.failures = 0
        # Since when its port has refused each connection.
        self.refuses_since_ms: int | None = None
        self.task: asyncio.Task[None] | None = None
        self._failing = self._away = False
        self._started_seconds: float | None = None

    def failed(self, error: Exception, at_ms: int) -> None:
        self.failures += 1
        refused = isinstance(error, aiohttp.ClientConnectorError) and isinstance(error.os_error, ConnectionRefusedError)
        self.refuses_since_ms = (self.refuses_since_ms or at_ms) if refused else None
        # Nobody was there: as while it starts again. One that merely answers late may be busy.
        self._away = self._away or isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError))
        if not self._failing:
            log.warning("engine %s: %s", self.name, _said(error))
        self._failing = True

    def take(self, at_ms: int, numbers: dict[str, float], before: Held, after: Held) -> bool:
        """Keep a look; whether it shows that the engine has started again since the one before."""
        if self._failing:
            log.info("engine %s: its metrics page is read again", self.name)
        first, self.look = self.look is None, self._look(at_ms, numbers, before, after)
        started, known = numbers.get(_STARTED), self._started_seconds
        restarted = self._away if started is None or known is None else started != known
        self._failing = self._away = False
        self.refuses_since_ms = None
        self._started_seconds = known if started is None else started
        return restarted and not first

    def _look(self, at_ms: int, numbers: dict[str, float], before: Held, after: Held) -> EngineLook:
        told = numbers.get(CAPACITY)
        configured = None if self.engine.kv_capacity_tokens is UNSET else self.engine.kv_capacity_tokens
        capacity, usage = told or configured, numbers.get(_USAGE)
        return EngineLook(
            at_ms,
            running=_whole(numbers.get(_RUNNING)),
            waiting=_whole(numbers.get(_WAITING)),
            kv_used_tokens=None if usage is None or capacity is None else round(usage * capacity),
            kv_capacity_tokens=_whole(told),
            # The page is of some moment in between. What cannot have been on it for sure is not taken for ours.
            own_reserved_tokens=min(before.reserved_tokens, after.reserved_tokens),
            own_sequences=min(before.sequences, after.sequences),
        )

    def stop(self) -> asyncio.Task[None] | None:
        if self.task is not None:
            self.task.cancel()
        return self.task


class EngineWatch:
    """Looks at all engines of a configuration. `held(engine)` is asked what this gateway has there meanwhile.

    `on_look(engine)` hears of each look, `on_restart(engine)` of one that shows that the engine has started again: what
    it had compiled or cached is gone. `on_gone(engine)` hears of each look that finds its port closed, once it has been
    for `gone_seconds` (0: never). Make it inside a running event loop; `now_ms` is monotonic.
    """

    def __init__(
        self,
        http: aiohttp.ClientSession,
        now_ms: Callable[[], int],
        interval_seconds: float,
        stale_seconds: float,
        gone_seconds: float = 0,
    ) -> None:
        self.held: Callable[[str], Held] = lambda _: Held(0, 0)
        self.on_look: Callable[[str], None] = lambda _: None
        self.on_restart: Callable[[str], None] = lambda _: None
        self.on_gone: Callable[[str], None] = lambda _: None
        self._http, self._now_ms, self._gone_seconds = http, now_ms, gone_seconds
        self._interval_seconds, self._stale_seconds = interval_seconds, stale_seconds
        self._watched: dict[str, _Watched] = {}

    def configure(self, view: View) -> None:
        """Watch the engines of a view. One that is another than before begins without a look."""
        before, self._watched = self._watched, {}
        for name, engine in view.snapshot.engines.items():
            if engine.kind not in NAMES:
                continue
            known = before.get(name)
            if known is not None and _is_same(known.engine, engine):
                self._watched[name] = before.pop(name)
                known.engine = engine
            else:
                watched = self._watched[name] = _Watched(name, engine)
                watched.task = asyncio.create_task(self._watch(watched), name=f"watch {name}")
        for gone in before.values():
            gone.stop()

    def look(self, engine: str) -> EngineLook | None:
        """The last look at an engine, however old; None before the first, and of a kind without such a page."""
        watched = self._watched.get(engine)
        return None if watched is None else watched.look

    def stale(self, engine: str) -> bool:
        """Whether an engine whose page tells of its KV cache has not been read for too long, or never yet."""
        watched = self._watched.get(engine)
        if watched is None or not NAMES[watched.engine.kind].keys() >= {_USAGE, CAPACITY}:
            return False
        look = watched.look
        if look is None:
            return True
        tells = look.kv_used_tokens is not None or look.kv_capacity_tokens is not None
        return tells and self._now_ms() - look.at_ms > 1000 * self._stale_seconds

    def rows(self) -> list[LookRow]:
        return list(self._rows(self._now_ms()))

    def _rows(self, now_ms: int) -> Iterator[LookRow]:
        for name, watched in self._watched.items():
            look = watched.look
            age_seconds = None if look is None else (now_ms - look.at_ms) / 1000
            others = None if look is None or look.kv_used_tokens is None else others_tokens(look)
            yield LookRow(watched.engine.pool, name, age_seconds, watched.failures, others)

    async def close(self) -> None:
        tasks = [task for watched in self._watched.values() if (task := watched.stop()) is not None]
        self._watched = {}
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, watched: _Watched) -> None:
        least, most = 0.0, 1.0
        while True:
            await self._look(watched)
            await asyncio.sleep(self._interval_seconds * random.uniform(least, most))  # noqa: S311 - spreads load
            least, most = 1 - _JITTER, 1 + _JITTER

    async def _look(self, watched: _Watched) -> None:
        before = self.held(watched.name)
        try:
            # A look that took longer would be stale when it came.
            async with asyncio.timeout(self._stale_seconds):
                numbers = await self._numbers(watched.engine)
            self._take(watched, numbers, before)
        except (aiohttp.ClientError, OSError, UnicodeError, NotMetrics, _NotRead) as error:
            self._fail(watched, error)
        except Exception as error:
            # Neither what one engine answers nor who hears of it must end the watch.
            log.exception("the look at engine %s failed", watched.name)
            self._fail(watched, error)

    def _fail(self, watched: _Watched, error: Exception) -> None:
        now_ms = self._now_ms()
        watched.failed(error, now_ms)
        since_ms = watched.refuses_since_ms
        if self._gone_seconds and since_ms is not None and now_ms - since_ms >= 1000 * self._gone_seconds:
            self.on_gone(watched.name)

    def _take(self, watched: _Watched, numbers: dict[str, float], before: Held) -> None:
        if watched.take(self._now_ms(), numbers, before, self.held(watched.name)):
            log.info("engine %s has started again", watched.name)
            self.on_restart(watched.name)
        self.on_look(watched.name)

    async def _numbers(self, engine: Engine) -> dict[str, float]:
        """What the page says, by canonical name."""
        headers = {"Accept-Encoding": "identity"}
        if engine.api_key is not UNSET:
            headers["Authorization"] = f"Bearer {engine.api_key}"
        url = engine.url + METRICS_PATHS[engine.kind]
        async with self._http.get(url, headers=headers, allow_redirects=False) as response:
            if response.status != 200:
                raise _NotRead(f"its metrics page answered {response.status}")
            if response.headers.get("Content-Encoding", "identity") != "identity":
                raise _NotRead("its metrics page came packed, which was not asked for")
            media_type = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
            scan = Scan(engine.kind, media_type, signals=_SIGNALS)
            read_bytes = 0
            async for chunk in response.content.iter_any():
                read_bytes += len(chunk)
                if read_bytes > _PAGE_BYTES:
                    raise _NotRead(f"its metrics page is longer than {_PAGE_BYTES} bytes")
                scan.feed(chunk)
        lines = of_served_model(scan.end(), engine.served_model)
        return {reading.name: reading.value for reading in readings(engine.kind, lines)}


def _is_same(one: Engine, other: Engine) -> bool:
    """Whether what was read of one holds for the other: who is cordoned, or has another key, is still the same."""
    return (one.url, one.kind, one.served_model) == (other.url, other.kind, other.served_model)


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _said(error: Exception) -> str:
    """Why a page could not be read, for the log, which names engines and not their addresses."""
    if isinstance(error, (NotMetrics, _NotRead)):
        return str(error)
    return f"its metrics page could not be read: {type(error).__name__}"
