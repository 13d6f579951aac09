"""An engine's HTTP pages, read within bounds of time and size."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Literal

import aiohttp

from gpu_agent.engines.addresses import connector
from gpu_agent.engines.keys import Key

_NO_LIMIT = aiohttp.ClientTimeout(total=None)
# Below the 5 s after which vLLM's server closes idle connections, so that none is closed while a request is sent.
_KEEP_ALIVE_SECONDS = 2
# Packing costs both sides more than it saves on one machine, and could unpack to anything.
_HEADERS = {"Accept-Encoding": "identity"}


# Of JSON, which becomes twenty times its size where it is all brackets; the longest, vLLM's of its server, has 100 KB.
DOCUMENT_BYTES = 256 * 1024

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
        self._session = _session(here_only=False)
        # Made for the first key that no other machine may get.
        self._own_session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        await self._session.close()
        if self._own_session is not None:
            await self._own_session.close()

    def deadline(self) -> float:
        """When a look that begins now must have ended."""
        return asyncio.get_running_loop().time() + self._timeout_seconds

    async def check(self, url: str, deadline: float) -> None:
        """Raises PageUnavailable unless `url` answers 200."""
        async with self.open(url, deadline):
            pass

    async def read(self, url: str, deadline: float) -> bytes:
        """The whole page. Raises: PageUnavailable."""
        return await self._read(url, deadline, self._limit_bytes)

    async def document(self, url: str, deadline: float) -> bytes:
        """A whole page of JSON, at most DOCUMENT_BYTES. Raises: PageUnavailable."""
        return await self._read(url, deadline, min(DOCUMENT_BYTES, self._limit_bytes))

    async def _read(self, url: str, deadline: float, limit_bytes: int) -> bytes:
        async with self._opened(url, deadline, limit_bytes) as page:
            return b"".join([chunk async for chunk in page.chunks()])

    async def ask(self, url: str, question: bytes, deadline: float, key: Key | None = None) -> tuple[int, bytes]:
        """POST a question in JSON: the status and the body of its answer. Raises: PageUnavailable."""
        headers, session = {"Content-Type": "application/json"}, self._session
        if key is not None and key.text:
            headers["Authorization"] = f"Bearer {key.text}"
            session = self._here_only() if key.here_only else session
        async with self._answer("POST", url, deadline, headers, question, session) as response:
            page = Page(response, min(DOCUMENT_BYTES, self._limit_bytes))
            return response.status, b"".join([chunk async for chunk in page.chunks()])

    def open(self, url: str, deadline: float) -> AbstractAsyncContextManager[Page]:
        """Raises, also for what is done within: PageUnavailable."""
        return self._opened(url, deadline, self._limit_bytes)

    @asynccontextmanager
    async def _opened(self, url: str, deadline: float, limit_bytes: int) -> AsyncIterator[Page]:
        async with self._answer("GET", url, deadline) as response:
            if response.status != 200:
                raise PageUnavailable(f"answered {response.status}", status=response.status)
            yield Page(response, limit_bytes)

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        url: str,
        deadline: float,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        session: aiohttp.ClientSession | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        try:
            async with (
                asyncio.timeout_at(deadline),
                (session or self._session).request(
                    method, url, headers=headers, data=body, allow_redirects=False
                ) as response,
            ):
                yield response
        except TimeoutError as error:
            raise PageUnavailable("no answer in time", "unreachable") from error
        # UnicodeError: a host that cannot be a name in DNS.
        except (aiohttp.ClientError, OSError, UnicodeError) as error:
            raise PageUnavailable(_said(error), _reach(error)) from error

    def _here_only(self) -> aiohttp.ClientSession:
        self._own_session = self._own_session or _session(here_only=True)
        return self._own_session


def _session(*, here_only: bool) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=connector(here_only=here_only, keepalive_timeout=_KEEP_ALIVE_SECONDS, limit=0),
        timeout=_NO_LIMIT,
        cookie_jar=aiohttp.DummyCookieJar(),
        headers=_HEADERS,
        auto_decompress=False,
    )


def _said(error: Exception) -> str:
    """aiohttp speaks of TLS where there is none, and says no more of a refusal than that it failed."""
    if isinstance(error, aiohttp.ClientConnectorError) and not isinstance(error, aiohttp.ClientSSLError):
        number = error.os_error.errno
        # DNS has numbers below 0; several addresses that all failed have none.
        why = os.strerror(number) if number and number > 0 else error.os_error.strerror or error.os_error
        return f"Cannot connect to {error.host}:{error.port}: {why}"
    return str(error) or type(error).__name__


def _reach(error: Exception) -> Reach:
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, ConnectionRefusedError):
        return "refused"
    # A connection that never stood, and was not reset: no route, no such name, no TLS.
    never_stood = isinstance(error, (aiohttp.ClientConnectorError, aiohttp.InvalidURL, UnicodeError))
    return "unreachable" if never_stood and not isinstance(cause, ConnectionError) else "answered"
