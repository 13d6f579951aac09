"""Clients that ask and leave, over each version of HTTP and in each way."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager

from tests.gateway.fleet import KEYS
from tests.gateway.http2 import Http2Connection, http2_connection

PATH = "/v1/chat/completions"


class Leaver(ABC):
    """One request of the tenant alpha, and no wish to see its answer."""

    @abstractmethod
    async def ask(self, port: int, body: bytes, *, complete: bool = True) -> None:
        """Send it; unless `complete`, half of its body."""

    @abstractmethod
    async def leave(self) -> None: ...

    @abstractmethod
    async def close(self) -> None:
        """What is left to close after it has left."""


class ClosesHttp1(Leaver):
    async def ask(self, port: int, body: bytes, *, complete: bool = True) -> None:
        _, self._writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"POST {PATH} HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer {KEYS['alpha']}\r\n"
        part = body if complete else body[: len(body) // 2]
        self._writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + part)

    async def leave(self) -> None:
        self._writer.close()

    async def close(self) -> None:
        await self._writer.wait_closed()


class _Http2(Leaver):
    async def ask(self, port: int, body: bytes, *, complete: bool = True) -> None:
        self._open: AbstractAsyncContextManager[Http2Connection] = http2_connection(port)
        self._connection = await self._open.__aenter__()
        part = body if complete else body[: len(body) // 2]
        self._stream = self._connection.ask(PATH, part, KEYS["alpha"], complete=complete, length=len(body))

    async def close(self) -> None:
        await self._open.__aexit__(None, None, None)


class ResetsHttp2(_Http2):
    """Its connection stays."""

    async def leave(self) -> None:
        self._stream.reset()


class ClosesHttp2(_Http2):
    async def leave(self) -> None:
        self._connection.transport.close()


LEAVERS: tuple[type[Leaver], ...] = (ClosesHttp1, ResetsHttp2, ClosesHttp2)
