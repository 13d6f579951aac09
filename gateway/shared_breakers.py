"""Breakers that open at one gateway open at the others, by a channel of the Redis that all share.

A hash beside the channel tells a gateway that comes later what is open; it goes with the last cooldown in it. Until
when a breaker is open is kept by the clock of the Redis, for clocks of gateways differ. While the Redis is away each
gateway goes by what it sees itself.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable
from typing import Final, cast, get_args

from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.pools.breakers import Kind
from gateway.redis_channels import follow
from gateway.redis_link import RedisLink
from gateway.tasks import end
from policy.breaker import State

log = logging.getLogger("headworks.gateway.breakers")
# (kind, name, state, until when it is open: Unix milliseconds of this machine's clock)
Change = Callable[[Kind, str, State, int], None]

_KEY: Final = "headworks:breakers"
_CHANNEL: Final = "headworks:breakers:changes"
_TELL_SECONDS = 1.0
_KINDS = get_args(Kind)
_STATES = get_args(State)
# KEYS: the hash. ARGV: `kind name`, its state, for how long it is open, who says so, the channel. A second cooldown
# never shortens the first, and nobody closes what another one has just opened.
_SCRIPT = """
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
-- Written over by somebody else: what is open stands at the gateways, and is told again when it opens again.
if redis.call('TYPE', KEYS[1]).ok ~= 'hash' then redis.call('DEL', KEYS[1]) end
local open = redis.call('HGETALL', KEYS[1])
for i = 1, #open, 2 do
  local ends = tonumber(string.match(open[i + 1], '^(%d+) %S+$')) or 0
  if ends <= now then redis.call('HDEL', KEYS[1], open[i]) end
end
local until_ms, who = now + ARGV[3], ARGV[4]
local held = redis.call('HGET', KEYS[1], ARGV[1])
local held_until, holder = string.match(held or '0 -', '^(%d+) (%S+)$')
held_until = tonumber(held_until) or 0
if ARGV[2] == 'open' then
  if held_until > until_ms then until_ms, who = held_until, holder end
  redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f %s', until_ms, who))
  if redis.call('PTTL', KEYS[1]) < until_ms - now then
    redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', until_ms))
  end
else
  if held and holder ~= who then return 0 end
  redis.call('HDEL', KEYS[1], ARGV[1])
end
redis.call('PUBLISH', ARGV[5], string.format('%s %s %.0f %s', ARGV[1], ARGV[2], until_ms, ARGV[4]))
return 1
"""


class SharedBreakers:
    """Tells changes of this gateway's breakers (`on_change`) and hands over those of others (`apply_remote`).

    Make it inside a running event loop, before the link starts.
    """

    def __init__(self, link: RedisLink, unix_ms: Callable[[], int], apply_remote: Change) -> None:
        self._link, self._unix_ms, self._apply_remote = link, unix_ms, apply_remote
        self._me = uuid.uuid4().hex
        # The newest change of each that is not told yet, and what this gateway has opened; by configured names alone.
        self._waiting: dict[tuple[Kind, str], tuple[State, int]] = {}
        self._opened: dict[tuple[Kind, str], int] = {}
        self._wake, self._found = asyncio.Event(), asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        if link.client is not None:
            self._sha = link.uses(_SCRIPT, self._on_up, self._found.clear)
            self._tasks = [
                asyncio.create_task(self._tell(link.client), name="breakers-told"),
                asyncio.create_task(self._follow(link.client), name="breakers-heard"),
            ]

    def on_change(self, kind: Kind, name: str, state: State, until_unix_ms: int) -> None:
        """A breaker of this gateway has changed. A cooldown that ends is known to all: `half_open` is not told."""
        if not self._tasks or state == "half_open":
            return
        self._forget_ended()
        if state == "open":
            self._opened[kind, name] = until_unix_ms
        else:
            self._opened.pop((kind, name), None)
        self._waiting[kind, name] = (state, until_unix_ms)
        self._wake.set()

    async def close(self) -> None:
        await end(*self._tasks)

    def _on_up(self) -> None:
        """It may have lost what it was told."""
        self._forget_ended()
        for breaker, until_ms in self._opened.items():
            self._waiting.setdefault(breaker, ("open", until_ms))
        self._found.set()
        self._wake.set()

    def _forget_ended(self) -> None:
        now_ms = self._unix_ms()
        self._opened = {breaker: until_ms for breaker, until_ms in self._opened.items() if until_ms > now_ms}

    async def _tell(self, client: Redis) -> None:
        while True:
            await self._wake.wait()
            await self._found.wait()
            self._wake.clear()
            while self._waiting and self._link.alive:
                breaker, (state, until_ms) = next(iter(self._waiting.items()))
                try:
                    async with asyncio.timeout(_TELL_SECONDS):
                        await self._tell_one(client, breaker, state, until_ms)
                except (RedisError, OSError, TimeoutError) as error:
                    self._link.failed(error)
                    self._wake.set()
                    break
                if self._waiting.get(breaker) == (state, until_ms):
                    del self._waiting[breaker]

    async def _tell_one(self, client: Redis, breaker: tuple[Kind, str], state: State, until_ms: int) -> None:
        for_ms = max(0, until_ms - self._unix_ms())
        if state == "open" and not for_ms:
            return
        told = client.evalsha(self._sha, 1, _KEY, " ".join(breaker), state, str(for_ms), self._me, _CHANNEL)
        await cast("Awaitable[object]", told)

    async def _follow(self, client: Redis) -> None:
        async def began(channels: int) -> None:
            if channels:
                # From here on nothing is missed, and what was before stands in the hash.
                await self._catch_up(client)

        await follow(self._link, client, (_CHANNEL,), began, lambda _, data: self._hear(data.split(b" ")))

    async def _catch_up(self, client: Redis) -> None:
        async with asyncio.timeout(_TELL_SECONDS):
            held = await cast("Awaitable[dict[bytes, bytes]]", client.hgetall(_KEY))
        for breaker, cooldown in held.items():
            until_ms, _, who = cooldown.partition(b" ")
            self._hear([*breaker.split(b" "), b"open", until_ms, who])

    def _hear(self, parts: list[bytes]) -> None:
        """`kind name state until who`; anything else was not sent by a gateway."""
        words = [part.decode(errors="replace") for part in parts]
        if len(words) != 5 or not words[3].isdecimal() or len(words[3]) > 15:
            log.warning("a change of a breaker was not understood")
            return
        if words[0] not in _KINDS or words[2] not in _STATES or words[4] == self._me:
            return
        until_ms = int(words[3]) - self._link.clock_ms() + self._unix_ms()
        self._apply_remote(cast("Kind", words[0]), words[1], cast("State", words[2]), until_ms)
