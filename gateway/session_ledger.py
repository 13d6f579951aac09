"""Sessions as all gateways count them together, on one Redis: a session's next call may come in anywhere.

A call asks once before it runs, and is told of when it has ended. Nothing here decides: a gateway judges by the counts
(`policy.sessions`). While the Redis is away each gateway goes by what it has seen itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import logging
import uuid
from collections.abc import Coroutine
from importlib.resources import files
from typing import NamedTuple, cast

import msgspec
from redis.exceptions import RedisError

from gateway.redis_link import RedisLink
from policy.sessions import NOTHING, Ended, Spent
from wire.snapshot import SessionLimits

log = logging.getLogger("headworks.gateway.sessions")
SCRIPT = files("gateway").joinpath("session_ledger.lua").read_text()
# What waits to be told; more than a Redis that is there ever has.
_TELLING_MAX = 10_000
_LAST_SECONDS = 1.0
_UNREADABLE = b"unreadable"


class Closing(NamedTuple):
    """Why a session is closed, and the limits that it is closed under."""

    ended: Ended
    limits: SessionLimits


class Standing(NamedTuple):
    """A session at all gateways, without the call that asks."""

    used: Spent
    running: Spent
    closed: Closing | None


_closing = msgspec.json.Decoder(Closing)


class Held(NamedTuple):
    """A lease on the Redis."""

    key: str
    lease: str
    idle_ms: int


class SessionLedger:
    """`lease_ms`: what a gateway that dies had reserved lapses after it. Make it before the link starts."""

    def __init__(self, link: RedisLink, lease_ms: int) -> None:
        self._link, self._lease_ms = link, lease_ms
        self._gateway = uuid.uuid4().hex
        self._numbers = itertools.count()
        self._telling: set[asyncio.Task[None]] = set()
        # Tenants of whom it was said that a session cannot be read.
        self._said: set[str] = set()
        self._sha = link.uses(SCRIPT, _nothing, _nothing)

    @property
    def alive(self) -> bool:
        return self._link.alive

    async def take(self, tenant: str, session_id: str, most: Spent, idle_ms: int) -> tuple[Standing, Held] | None:
        """Reserve `most` in the session; None where the Redis gave no answer in time, or holds what no gateway wrote.

        Settle what is held.
        """
        name = hashlib.sha256(session_id.encode()).hexdigest()
        held = Held(f"headworks:session:{{{tenant}}}:{name}", f"{self._gateway}:{next(self._numbers)}", idle_ms)
        call = asyncio.ensure_future(self._call("take", held, most.tokens, most.cost_micros, self._lease_ms, ""))
        try:
            await asyncio.wait((call,), timeout=self._link.answer_seconds)
        except asyncio.CancelledError:
            self._tell(self._undo(call, held))
            raise
        if not call.done():
            # It may count all the same, late.
            self._tell(self._undo(call, held))
            self._link.failed(TimeoutError())
            return None
        try:
            answer = call.result()
        except (RedisError, OSError) as error:
            self._link.failed(error)
            return None
        if answer == _UNREADABLE:
            self._say(tenant, held.key)
            return None
        return _read(answer), held

    def settle(self, held: Held, taken: Spent, closed: Closing | None = None) -> None:
        """Replace a reservation by what was taken, soon. What a Redis that is away is not told of lapses there."""
        if self.alive:
            self._tell(self._settle(held, taken, closed))

    async def close(self) -> None:
        """Tell what is not told yet."""
        if self._telling:
            await asyncio.wait(self._telling, timeout=_LAST_SECONDS)

    async def _settle(self, held: Held, taken: Spent, closed: Closing | None) -> None:
        said = "" if closed is None else msgspec.json.encode(closed).decode()
        try:
            async with asyncio.timeout(self._link.answer_seconds):
                await self._call("settle", held, taken.tokens, taken.cost_micros, taken.iterations, said)
        except (RedisError, OSError, TimeoutError) as error:
            self._link.failed(error)

    async def _undo(self, call: asyncio.Future[bytes], held: Held) -> None:
        with contextlib.suppress(RedisError, OSError):
            await call
            await self._settle(held, NOTHING, None)

    def _say(self, tenant: str, key: str) -> None:
        if tenant not in self._said:
            self._said.add(tenant)
            log.warning(
                "a session of tenant %s at the Redis cannot be read: this gateway goes by what it has seen of it until "
                "the key %s is put right or deleted",
                *(tenant, key),
            )

    def _tell(self, telling: Coroutine[object, object, None]) -> None:
        if len(self._telling) >= _TELLING_MAX:
            telling.close()
            return
        task = asyncio.ensure_future(telling)
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _call(self, what: str, held: Held, tokens: int, cost_micros: int, number: int, closed: str) -> bytes:
        client = self._link.client
        if client is None:
            raise RuntimeError("a ledger needs a Redis")
        arguments = (what, held.lease, tokens, cost_micros, number, held.idle_ms, closed)
        return cast("bytes", await client.evalsha(self._sha, 1, held.key, *arguments))


def _read(answer: bytes) -> Standing:
    *numbers, closed = answer.split(b" ", 6)
    counts = list(map(int, numbers))
    closing = None
    with contextlib.suppress(msgspec.MsgspecError):
        # One of another version says nothing to this one.
        closing = _closing.decode(closed) if closed else None
    return Standing(Spent(*counts[:3]), Spent(*counts[3:]), closing)


def _nothing() -> None:
    """Sessions need no other care when the Redis comes or goes."""
