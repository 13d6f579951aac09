"""An engine's HTTP pages, read within bounds of time and size."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

_NO_LIMIT = aiohttp.ClientTimeout(total=None)
# Below the 5 s after which vLLM's server closes idle connections, so that none is closed while a request is sent.
_KEEP_ALIVE_SECONDS = 2


class PageUnavailable(Exception):
    """A page that could not be read; the message says why."""


class EnginePages:
    """Reads pages of engines. Holds no credentials: what an engine answers is not trusted.

    `deadline` is a time of the event loop's clock, as `deadline` gives it for one look at an engine.
    """

    def __init__(self, *, timeout_seconds: float, limit_bytes: int) -> None:
        self._timeout_seconds = timeout_seconds
        self._limit_bytes = limit_bytes
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(keepalive_timeout=_KEEP_ALIVE_SECONDS),
            timeout=_NO_LIMIT,
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def close(self) -> None:
        await self._session.close()

    def deadline(self) -> float:
        """When a look that begins now must have ended."""
        return asyncio.get_running_loop().time() + self._timeout_seconds

    async def check(self, url: str, deadline: float) -> None:
        """Raises PageUnavailable unless `url` answers 200."""
        async with self._open(url, deadline):
            pass

    async def read(self, url: str, deadline: float) -> bytes:
        """The whole page. Raises: PageUnavailable."""
        return b"\n".join([line async for line in self.lines(url, deadline)])

    async def lines(self, url: str, deadline: float) -> AsyncIterator[bytes]:
        """The page line by line, so that a long one is never held whole. Raises: PageUnavailable."""
        async with self._open(url, deadline) as response:
            read_bytes, rest = 0, b""
            async for chunk in response.content.iter_any():
                read_bytes += len(chunk)
                if read_bytes > self._limit_bytes:
                    raise PageUnavailable(f"answered more than {self._limit_bytes} bytes")
                *ended, rest = (rest + chunk).split(b"\n")
                for line in ended:
                    yield line
            yield rest

    @asynccontextmanager
    async def _open(self, url: str, deadline: float) -> AsyncIterator[aiohttp.ClientResponse]:
        try:
            async with asyncio.timeout_at(deadline), self._session.get(url, allow_redirects=False) as response:
                if response.status != 200:
                    raise PageUnavailable(f"answered {response.status}")
                yield response
        except TimeoutError as error:
            raise PageUnavailable("no answer in time") from error
        except (aiohttp.ClientError, OSError) as error:
            raise PageUnavailable(str(error) or type(error).__name__) from error
