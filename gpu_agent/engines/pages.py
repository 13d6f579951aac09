"""An engine's HTTP pages, read within bounds of time and size."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Literal

import aiohttp

_NO_LIMIT = aiohttp.ClientTimeout(total=None)
# Below the 5 s after which vLLM's server closes idle connections, so that none is closed while a request is sent.
_KEEP_ALIVE_SECONDS = 2
# Packing costs both sides more than it saves on one machine, and could unpack to anything.
_HEADERS = {"Accept-Encoding": "identity"}


# What a page that could not be read says of its engine: nobody listens there, nobody answers, or something is wrong.
Reach = Literal["refused", "unreachable", "answered"]


class PageUnavailable(Exception):
    """A page that could not be read; the message says why. `status`: of the answer, where there was one; else 0."""

    def __init__(self, message: str, reach: Reach = "answered", status: int = 0) -> None:
        super().__init__(message)
        self.reach, self.status = reach, status


class Page:
    """An answer of status 200 whose body is still to be read. `media_type` is without parameters; empty: not said."""

    def __init__(self, response: aiohttp.ClientResponse, limit_bytes: int) -> None:
        self._response, self._limit_bytes = response, limit_bytes
        self.media_type = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes. Raises: PageUnavailable."""
        coding = self._response.headers.get("Content-Encoding", "identity")
        if coding != "identity":
            raise PageUnavailable(f"answered in Content-Encoding {coding[:20]!r}, which was not asked for")
        read_bytes = 0
        async for chunk in self._response.content.iter_any():
            read_bytes += len(chunk)
            if read_bytes > self._limit_bytes:
                raise PageUnavailable(f"answered more than {self._limit_bytes} bytes")
            yield chunk


class EnginePages:
    """Reads pages of engines. Holds no credentials, and keeps none given: what an engine answers is not trusted.

    `deadline` is a time of the event loop's clock, as `deadline` gives it for one look at an engine.
    """

    def __init__(self, *, timeout_seconds: float, limit_bytes: int) -> None:
        self._timeout_seconds = timeout_seconds
        self._limit_bytes = limit_bytes
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(keepalive_timeout=_KEEP_ALIVE_SECONDS, limit=0),
            timeout=_NO_LIMIT,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=_HEADERS,
            auto_decompress=False,
        )

    async def close(self) -> None:
        await self._session.close()

    def deadline(self) -> float:
        """When a look that begins now must have ended."""
        return asyncio.get_running_loop().time() + self._timeout_seconds

    async def check(self, url: str, deadline: float) -> None:
        """Raises PageUnavailable unless `url` answers 200."""
        async with self.open(url, deadline):
            pass

    async def read(self, url: str, deadline: float) -> bytes:
        """The whole page. Raises: PageUnavailable."""
        async with self.open(url, deadline) as page:
            return b"".join([chunk async for chunk in page.chunks()])

    async def ask(self, url: str, question: bytes, deadline: float, bearer: str = "") -> tuple[int, bytes]:
        """POST a question in JSON: the status and the body of its answer. Raises: PageUnavailable."""
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {bearer}"} if bearer else {})}
        async with self._answer("POST", url, deadline, headers, question) as response:
            page = Page(response, self._limit_bytes)
            return response.status, b"".join([chunk async for chunk in page.chunks()])

    @asynccontextmanager
    async def open(self, url: str, deadline: float) -> AsyncIterator[Page]:
        """Raises, also for what is done within: PageUnavailable."""
        async with self._answer("GET", url, deadline) as response:
            if response.status != 200:
                raise PageUnavailable(f"answered {response.status}", status=response.status)
            yield Page(response, self._limit_bytes)

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        url: str,
        deadline: float,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        try:
            async with (
                asyncio.timeout_at(deadline),
                self._session.request(method, url, headers=headers, data=body, allow_redirects=False) as response,
            ):
                yield response
        except TimeoutError as error:
            raise PageUnavailable("no answer in time", "unreachable") from error
        # UnicodeError: a host that cannot be a name in DNS.
        except (aiohttp.ClientError, OSError, UnicodeError) as error:
            raise PageUnavailable(str(error) or type(error).__name__, _reach(error)) from error


def _reach(error: Exception) -> Reach:
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, ConnectionRefusedError):
        return "refused"
    # A connection that never stood, and was not reset: no route, no such name, no TLS.
    never_stood = isinstance(error, (aiohttp.ClientConnectorError, aiohttp.InvalidURL, UnicodeError))
    return "unreachable" if never_stood and not isinstance(cause, ConnectionError) else "answered"
