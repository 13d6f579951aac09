"""HTTP calls that change an engine, and what is asked of it to know whether they did."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import aiohttp
import msgspec
from yarl import URL

from gpu_agent.acts.outcome import NotDone, failed
from gpu_agent.acts.tools import EngineWork
from gpu_agent.engines.addresses import connector
from gpu_agent.engines.keys import EngineKeys, KeyUnusable
from wire.messages import UNREADABLE

T = TypeVar("T")
# A list of models with some hundred adapters.
_ANSWER_LIMIT_BYTES = 1 << 20
_SAID_CHARACTERS = 300
_HIDDEN = b"***"
_ERROR_BYTES = 200


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes

    @property
    def said(self) -> str:
        """The status, and the beginning of what was said, on one line."""
        text = " ".join(self.body[: 4 * _SAID_CHARACTERS].decode("utf-8", "replace").split())
        printable = "".join(each for each in text if each.isprintable())
        return f"{self.status} {printable[:_SAID_CHARACTERS]}".strip()


class EngineCalls:
    """Calls to one engine. Every one raises NotDone (`engine_unreachable`, `engine_refused`).

    The key of the node's policy goes to paths under /v1 alone: others ask for none.
    """

    def __init__(self, session: aiohttp.ClientSession, name: str, url: str, keys: EngineKeys) -> None:
        self._session, self._name, self._url, self._keys = session, name, url, keys

    async def get(self, path: str) -> Answer:
        return await self._call("GET", path)

    async def post(self, path: str, *, query: Mapping[str, str] | None = None, body: Any = None) -> Answer:
        return await self._call("POST", path, query, body)

    async def must(self, path: str, *, query: Mapping[str, str] | None = None, body: Any = None) -> Answer:
        """A POST that the engine must answer by a status of success."""
        answer = await self.post(path, query=query, body=body)
        if not 200 <= answer.status < 300:
            raise failed("engine_refused", f"{path} answered {answer.said}")
        return answer

    async def read(self, path: str, kind: type[T], *, absent: NotDone | None = None) -> T:
        """A page as JSON of that type. `absent` is raised where there is no such page."""
        answer = await self.get(path)
        if answer.status == 404 and absent is not None:
            raise absent
        try:
            if answer.status == 200:
                return msgspec.json.decode(answer.body, type=kind)
        except UNREADABLE as error:
            raise failed("engine_refused", f"{path} answered what cannot be read: {error}") from error
        raise failed("engine_refused", f"{path} answered {answer.said}")

    async def stream(self, path: str, body: Any) -> float:
        """POST what is answered piece by piece, and read all of it: the seconds until the first piece came."""
        begun_seconds = time.monotonic()
        async with self._opened("POST", path, body=body) as (response, key):
            first = await response.content.readany()
            took_seconds = time.monotonic() - begun_seconds
            answered = first + await _bounded(response)
            answered = answered.replace(key.encode(), _HIDDEN) if key else answered
        # vLLM tells of an error that comes after its headers in the stream itself.
        if response.status != 200 or not first or b'"error"' in answered[:_ERROR_BYTES]:
            raise failed("engine_refused", f"{path} answered {Answer(response.status, answered).said}")
        return took_seconds

    async def _call(self, method: str, path: str, query: Mapping[str, str] | None = None, body: Any = None) -> Answer:
        async with self._opened(method, path, query, body) as (response, key):
            answered = await _bounded(response)
            # An engine may repeat what it was sent.
            return Answer(response.status, answered.replace(key.encode(), _HIDDEN) if key else answered)

    @asynccontextmanager
    async def _opened(
        self, method: str, path: str, query: Mapping[str, str] | None = None, body: Any = None
    ) -> AsyncIterator[tuple[aiohttp.ClientResponse, str]]:
        """The answer, and the key that was sent for it."""
        key = await self._key() if path.startswith("/v1/") else ""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            # Encoded by its writer: the name of a model may hold what a path may not.
            url = URL(self._url + path, encoded=True)
            async with self._session.request(
                method, url, params=query, json=body, headers=headers, allow_redirects=False
            ) as response:
                yield response, key
        # UnicodeError: a host that cannot be a name in DNS.
        except (aiohttp.ClientError, OSError, UnicodeError) as error:
            raise failed("engine_unreachable", f"{path}: {str(error) or type(error).__name__}") from error

    async def _key(self) -> str:
        try:
            return (await self._keys.read(self._name, self._url)).text
        except KeyUnusable as error:
            raise failed("engine_refused", str(error)) from error


@asynccontextmanager
async def engine_calls(work: EngineWork) -> AsyncIterator[EngineCalls]:
    """For one act: its connections end with it. Deadlines are the caller's."""
    async with aiohttp.ClientSession(
        connector=connector(here_only=work.policy.url is None),
        timeout=aiohttp.ClientTimeout(total=None),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"Accept-Encoding": "identity"},
        auto_decompress=False,
    ) as session:
        yield EngineCalls(session, work.name, work.engine.url, work.tools.keys)


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > _ANSWER_LIMIT_BYTES:
            raise failed("engine_refused", f"{response.url.path} answered more than {_ANSWER_LIMIT_BYTES} bytes")
    return bytes(body)
