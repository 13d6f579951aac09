"""The gateway's way to the Redis that all gateways share, and whether it is there.

A Redis that is away or slow costs a request nothing: whoever finds it so calls `failed`, everybody then goes by
`alive`, and this alone looks for it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import random
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from gateway.tasks import end

log = logging.getLogger("headworks.gateway.redis")
# Also for a TLS handshake; never on a request's way.
_CONNECT_SECONDS = 1.0
_LOOK_SECONDS = (0.2, 0.5)
# Lost so soon for being slow it is looked for half as often each time, down to this.
_SOON_SECONDS = 10.0
_SLOW_SECONDS = 5.0
_SLOW_MAX = 5
_PROBE = "headworks:probe"
_PROBE_MS = 1_000
_FORM = "give redis://host:port/number or rediss://host:port/number"


def redis_url(text: str) -> str:
    """Raises: ValueError."""
    try:
        url = urlsplit(text)
        # Read for its check.
        _ = url.port
    except ValueError:
        raise ValueError(_FORM) from None
    if url.scheme not in ("redis", "rediss") or not url.hostname:
        raise ValueError(_FORM)
    try:
        ConnectionPool.from_url(text)
    except (ValueError, TypeError):
        raise ValueError(_FORM) from None
    return text


class RedisLink:
    """`client` is None where no Redis is configured; `alive` says whether it answered last, and in time.

    `answer_seconds`: how long an answer may take before the Redis counts as away. Make it inside a running event loop.
    """

    def __init__(self, url: str, answer_seconds: float, unix_ms: Callable[[], int]) -> None:
        self.answer_seconds = answer_seconds
        self.alive = False
        # Why it is away, in words without its address.
        self.error = "it was not reached yet"
        # When it was lost, by its own clock.
        self.lost_at_ms = 0
        self._unix_ms = unix_ms
        self._offset_ms = 0
        self._scripts: list[str] = []
        self._on_up: list[Callable[[], None]] = []
        self._on_down: list[Callable[[], None]] = []
        self._lost = asyncio.Event()
        self._found_at, self._slow = 0.0, 0
        self._is_said = False
        self._task: asyncio.Task[None] | None = None
        self.client: Redis | None = None
        if url:
            self.client = Redis.from_url(url, socket_connect_timeout=_CONNECT_SECONDS, retry=Retry(NoBackoff(), 0))

    def uses(self, script: str, on_up: Callable[[], None], on_down: Callable[[], None]) -> str:
        """Load a Lua script whenever the Redis is found, then call `on_up`. The script's SHA-1, for EVALSHA."""
        self._scripts.append(script)
        self._on_up.append(on_up)
        self._on_down.append(on_down)
        return hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()

    def start(self) -> None:
        """Look for it, until `close`; once all that use it have said so."""
        if self.client is not None:
            self._task = asyncio.create_task(self._watch(self.client), name="redis")

    async def close(self) -> None:
        self.alive = False
        if self._task is not None:
            await end(self._task)
        if self.client is not None:
            await self.client.aclose()

    def clock_ms(self) -> int:
        """Unix time by the clock of the Redis, so that gateways whose clocks differ agree on hours and days."""
        return self._unix_ms() + self._offset_ms

    def heard(self, redis_unix_ms: int) -> None:
        """The time that an answer carried."""
        self._offset_ms = redis_unix_ms - self._unix_ms()

    def failed(self, error: BaseException) -> None:
        """It did not answer, not in time, or not what it should."""
        if not self.alive:
            return
        self.alive, self.lost_at_ms = False, self.clock_ms()
        self._say(error)
        # One that is slow again and again, though it answers when it is looked for, costs requests a wait each time.
        is_slow = isinstance(error, TimeoutError) and time.monotonic() - self._found_at < _SOON_SECONDS
        self._slow = min(self._slow + 1, _SLOW_MAX) if is_slow else 0
        for tell in self._on_down:
            tell()
        self._lost.set()

    async def _watch(self, client: Redis) -> None:
        while True:
            self._lost.clear()
            try:
                await self._look(client)
            except (RedisError, OSError, TimeoutError) as error:
                self._not_found(error)
            except Exception as error:
                log.exception("the Redis cannot be used")
                self._not_found(error)
            # Gateways that lost it together do not come back in one instant.
            pause = random.uniform(*_LOOK_SECONDS)  # noqa: S311
            with contextlib.suppress(TimeoutError):
                if self.alive:
                    await asyncio.wait_for(self._lost.wait(), pause)
            if not self.alive:
                await asyncio.sleep(min(_SLOW_SECONDS, pause * 2**self._slow))

    async def _look(self, client: Redis) -> None:
        if self.alive:
            await self._ask_time(client)
            return
        async with asyncio.timeout(_CONNECT_SECONDS):
            # Connections to one that is gone would fail one by one, and each take the link down again.
            await client.connection_pool.disconnect(inuse_connections=False)
            # One that takes no writes, as a replica or a full one, is of no use.
            await client.set(_PROBE, b"", px=_PROBE_MS)
            for script in self._scripts:
                await client.script_load(script)
        await self._ask_time(client)
        self.alive, self._is_said, self._found_at = True, False, time.monotonic()
        log.info("Redis answers, limits are counted together with the other gateways")
        for tell in self._on_up:
            tell()

    async def _ask_time(self, client: Redis) -> None:
        # Once it is found, requests notice by themselves when it is slow; a look alone may meet a moment in which this
        # process stood still.
        async with asyncio.timeout(_CONNECT_SECONDS if self.alive else self.answer_seconds):
            seconds, microseconds = await client.time()
        self.heard(seconds * 1000 + microseconds // 1000)

    def _not_found(self, error: Exception) -> None:
        if self.alive:
            self.failed(error)
        else:
            self._say(error)

    def _say(self, error: BaseException) -> None:
        if isinstance(error, TimeoutError):
            self.error = f"no answer within {self.answer_seconds * 1000:g} ms"
        elif isinstance(error, OSError):
            self.error = error.strerror or type(error).__name__
        else:
            # redis-py's own words may hold an address; its names say enough.
            self.error = type(error).__name__
        if not self._is_said:
            self._is_said = True
            log.warning("Redis is away, limits are held by this gateway's share of them: %s", self.error)
