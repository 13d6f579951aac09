"""Asks an engine of the fleet for the embedding of a question, in a short time or not at all."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from typing import Annotated, Literal

import aiohttp
import msgspec
from msgspec import UNSET, Meta, Struct

from gateway.caches.vectors import Vector, unit_vector
from gateway.view import View
from wire.snapshot import Engine

log = logging.getLogger("headworks.gateway.caches")
_DIMENSIONS_MAX = 16_384
_ANSWER_BYTES_MAX = 1024 * 1024
Trouble = Literal["no_engine", "unreachable", "slow", "bad_answer"]


class _Row(Struct):
    embedding: Annotated[list[float], Meta(min_length=1, max_length=_DIMENSIONS_MAX)]


class _Answer(Struct):
    data: Annotated[list[_Row], Meta(min_length=1, max_length=1)]


_decoder = msgspec.json.Decoder(_Answer)


class _NoVector(Exception):
    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble)
        self.trouble = trouble


class Embedder:
    """`may_ask(engine)`: whether it stands well. `trouble` hears of each vector that was not to be had, and why.

    An engine that gave none is left alone for `pause_seconds`.
    """

    def __init__(
        self,
        http: aiohttp.ClientSession,
        may_ask: Callable[[View, str], bool],
        now_ms: Callable[[], int],
        timeout_seconds: float,
        pause_seconds: float,
        trouble: Callable[[str, Trouble], None],
    ) -> None:
        self._http, self._may_ask, self._now_ms, self._trouble = http, may_ask, now_ms, trouble
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        self._pause_ms = int(pause_seconds * 1000)
        self._paused_until_ms: dict[str, int] = {}
        self._turns = itertools.count()

    async def vector(self, view: View, model: str, text: str) -> Vector | None:
        """The unit vector of a text by an embedding model; None where no engine gives one in time."""
        name = self._engine(view, model)
        if name is None:
            self._trouble(model, "no_engine")
            return None
        try:
            return await self._ask(view.snapshot.engines[name], text)
        except _NoVector as failure:
            self._pause(name)
            self._trouble(model, failure.trouble)
            log.warning("engine %s gave no embedding: %s", name, failure.trouble)
            return None

    def _engine(self, view: View, model: str) -> str | None:
        """One after another of the model's engines that may be asked."""
        now_ms = self._now_ms()
        able = [
            name
            for pool, row in view.snapshot.pools.items()
            if row.model == model
            for name in view.engines_of[pool]
            if self._paused_until_ms.get(name, 0) <= now_ms
            and not view.snapshot.engines[name].cordoned
            and self._may_ask(view, name)
        ]
        return able[next(self._turns) % len(able)] if able else None

    def _pause(self, name: str) -> None:
        now_ms = self._now_ms()
        # Engines that are configured no more are forgotten by their time.
        self._paused_until_ms = {each: until for each, until in self._paused_until_ms.items() if until > now_ms}
        self._paused_until_ms[name] = now_ms + self._pause_ms

    async def _ask(self, engine: Engine, text: str) -> Vector:
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if engine.api_key is not UNSET:
            headers["Authorization"] = f"Bearer {engine.api_key}"
        body = msgspec.json.encode({"model": engine.served_model, "input": text, "encoding_format": "float"})
        url = f"{engine.url.rstrip('/')}/v1/embeddings"
        try:
            async with self._http.post(
                url, data=body, headers=headers, timeout=self._timeout, allow_redirects=False
            ) as response:
                if response.status != 200:
                    raise _NoVector("bad_answer")
                return _vector_in(await _read(response))
        except TimeoutError:
            raise _NoVector("slow") from None
        except (aiohttp.ClientError, OSError):
            raise _NoVector("unreachable") from None


async def _read(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > _ANSWER_BYTES_MAX:
            raise _NoVector("bad_answer")
    return bytes(body)


def _vector_in(body: bytes) -> Vector:
    try:
        numbers = _decoder.decode(body).data[0].embedding
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise _NoVector("bad_answer") from None
    vector = unit_vector(numbers)
    if vector is None:
        raise _NoVector("bad_answer")
    return vector
