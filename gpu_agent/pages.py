"""An engine's HTTP pages, read within bounds of time and size."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

# Below the 5 s after which vLLM's server closes idle connections, so that none is closed while a request is sent.
_KEEP_ALIVE_SECONDS = 2


class PageUnavailable(Exception):
    """A page that could not be read; the message says why."""


class EnginePages:
    """Reads pages of engines. Holds no credentials: what an engine answers is not trusted."""

    def __init__(self, *, timeout_seconds: float, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(keepalive_timeout=_KEEP_ALIVE_SECONDS),
            timeout=aiohttp.ClientTimeout(total=timeout_seconds),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def close(self) -> None:
        await self._session.close()

    async def check(self, url: str) -> None:
        """Raises PageUnavailable unless `url` answers 200."""
        async with self._open(url):
            pass

    async def read(self, url: str) -> bytes:
        """The whole page. Raises: PageUnavailable."""
        return b"\n".join([line async for line in self.lines(url)])

    async def lines(self, url: str) -> AsyncIterator[bytes]:
        """The page line by line, so that a long one is never held whole. Raises: PageUnavailable."""
        async with self._open(url) as response:
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
    async def _open(self, url: str) -> AsyncIterator[aiohttp.ClientResponse]:
        try:
            async with self._session.get(url, allow_redirects=False) as response:
                if response.status != 200:
                    raise PageUnavailable(f"answered {response.status}")
                yield response
        except TimeoutError as error:
            raise PageUnavailable("no answer in time") from error
        except (aiohttp.ClientError, OSError) as error:
            raise PageUnavailable(str(error) or type(error).__name__) from error
