"""What gateways tell each other through channels of the Redis that they share, heard for as long as it is there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from gateway.redis_link import RedisLink

_QUIET_SECONDS: Final = 1.0
_AGAIN_SECONDS: Final = 0.2
# How many of the channels are heard from now on.
Began = Callable[[int], Awaitable[None]]
Hear = Callable[[str, bytes], None]


async def follow(link: RedisLink, client: Redis, channels: tuple[str, ...], began: Began, hear: Hear) -> None:
    """Hear the channels until cancelled; after a loss, of which `began(0)` tells, as soon as the Redis is found again.

    From `began` on nothing of a channel is missed: what was told before is asked for there.
    """
    while True:
        # What is wrong is noticed, and said, by the link.
        with contextlib.suppress(RedisError, OSError, TimeoutError):
            if link.alive:
                async with client.pubsub() as subscription:
                    await subscription.subscribe(*channels)
                    await _listen(link, subscription, began, hear)
        await began(0)
        await asyncio.sleep(_AGAIN_SECONDS)


async def _listen(link: RedisLink, subscription: PubSub, began: Began, hear: Hear) -> None:
    """Until nothing more is to be heard: one that is quiet is asked, and has as long again to answer."""
    asked = False
    while link.alive:
        heard = await subscription.get_message(timeout=_QUIET_SECONDS)
        if heard is None:
            if asked:
                return
            await subscription.ping()
            asked = True
            continue
        asked = False
        if heard["type"] == "subscribe":
            await began(heard["data"])
        elif heard["type"] == "message":
            hear(heard["channel"].decode(), heard["data"])
