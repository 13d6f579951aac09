"""Feedback finds the gateway that gave the answer, by a channel of the Redis that all gateways share.

Each gateway keeps its own answers, and a client's next call may come in anywhere. A gateway that does not remember the
request asks the others, and the one that does acts. While the Redis is away the client is told that nobody knows it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec import Struct
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.feedback import Feedback, Told
from gateway.redis_channels import follow
from gateway.redis_link import RedisLink
from gateway.tasks import end
from wire.messages import UNREADABLE
from wire.snapshot import Name

log = logging.getLogger("headworks.gateway.feedback")
Apply = Callable[[str, Feedback], Awaitable[Told | None]]

_CHANNEL: Final = "headworks:feedback"
# That one, and each gateway's own for the answers.
_CHANNELS = 2
_ANSWER_SECONDS = 1.0
# Asked at once, by and of one gateway: whoever sends ids that nobody knows costs the others no more.
_ASKING_MAX = 64


class _Asked(Struct):
    gateway: str
    number: int
    tenant: Name
    feedback: Feedback


class _Answer(Struct):
    number: int
    told: Told | None


_asked_decoder, _answer_decoder = msgspec.json.Decoder(_Asked), msgspec.json.Decoder(_Answer)


@dataclass(slots=True)
class _Asking:
    """`others`: how many gateways were asked; None until that is known."""

    answer: asyncio.Future[Told | None]
    unknown: int = 0
    others: int | None = None

    def heard(self, told: Told | None) -> None:
        if told is not None and not self.answer.done():
            self.answer.set_result(told)
        self.unknown += told is None
        self.look()

    def look(self) -> None:
        if self.others is not None and self.unknown >= self.others and not self.answer.done():
            self.answer.set_result(None)


class SharedFeedback:
    """Asks the other gateways (`ask`), and answers theirs by `apply`.

    Make it inside a running event loop, before the link starts.
    """

    def __init__(self, link: RedisLink, apply: Apply) -> None:
        self._link, self._apply = link, apply
        self._me = uuid.uuid4().hex
        self._numbers = itertools.count()
        self._asking: dict[int, _Asking] = {}
        self._answering: set[asyncio.Task[None]] = set()
        # Only who listens hears answers.
        self._listening = False
        self._listener: asyncio.Task[None] | None = None
        if link.client is not None:
            self._listener = asyncio.create_task(self._follow(link.client), name="feedback")

    async def ask(self, tenant: str, feedback: Feedback) -> Told | None:
        """What the gateway that remembers the request says; None where none does, or none can be asked."""
        client = self._link.client
        if client is None or not self._listening or len(self._asking) >= _ASKING_MAX:
            return None
        number, asking = next(self._numbers), _Asking(asyncio.get_running_loop().create_future())
        self._asking[number] = asking
        asked = _Asked(self._me, number, tenant, feedback)
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                listeners = await client.publish(_CHANNEL, msgspec.json.encode(asked))
                # This gateway is one of them.
                asking.others = listeners - 1
                asking.look()
                return await asking.answer
        except TimeoutError:
            return None
        except (RedisError, OSError) as error:
            self._link.failed(error)
            return None
        finally:
            del self._asking[number]

    async def close(self) -> None:
        await end(*self._answering, *([self._listener] if self._listener else []))

    async def _follow(self, client: Redis) -> None:
        async def began(channels: int) -> None:
            self._listening = channels == _CHANNELS

        def hear(channel: str, data: bytes) -> None:
            try:
                self._hear(client, channel, data)
            except UNREADABLE:
                log.warning("what was heard of feedback was not understood")

        await follow(self._link, client, (_CHANNEL, f"{_CHANNEL}:{self._me}"), began, hear)

    def _hear(self, client: Redis, channel: str, data: bytes) -> None:
        if channel != _CHANNEL:
            answer = _answer_decoder.decode(data)
            if asking := self._asking.get(answer.number):
                asking.heard(answer.told)
            return
        asked = _asked_decoder.decode(data)
        if asked.gateway == self._me or len(self._answering) >= _ASKING_MAX:
            return
        task = asyncio.create_task(self._answer(client, asked))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answer(self, client: Redis, asked: _Asked) -> None:
        told = await self._apply(asked.tenant, asked.feedback)
        with contextlib.suppress(RedisError, OSError, TimeoutError):
            async with asyncio.timeout(_ANSWER_SECONDS):
                answer = msgspec.json.encode(_Answer(asked.number, told))
                await client.publish(f"{_CHANNEL}:{asked.gateway}", answer)
