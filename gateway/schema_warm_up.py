"""Engines that have started are asked for the schemas that their pool uses, before clients wait for them to compile.

One request of one token for each, at the lowest priority, and no tenant's. An engine that fails at it is left alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import aiohttp
import msgspec
from msgspec import UNSET, Raw

from gateway import settings
from policy.asks import APIS, Endpoint
from policy.engine_priority import engine_priority
from wire.snapshot import Engine

if TYPE_CHECKING:
    from gateway.state import Gateway
    from gateway.view import View

log = logging.getLogger("headworks.gateway.schemas")
_PROMPT = "."


class WarmUpRequest(NamedTuple):
    """`fields` constrain the answer, in the form of chat completions."""

    endpoint: Endpoint
    fields: dict[str, Raw]


class WarmUp:
    """`known_of(pool)`: the schemas of a pool, the most used first."""

    def __init__(self, gateway: Gateway, known_of: Callable[[str], list[WarmUpRequest]]) -> None:
        self._gateway, self._known_of = gateway, known_of
        self._seconds = settings.SCHEMA_WARM_UP_SECONDS.read()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._met: dict[str, str] = {}

    def configure(self, view: View) -> None:
        """Forget engines that are no longer there."""
        self._met = {name: url for name, url in self._met.items() if name in view.snapshot.engines}

    def looked(self, engine: str) -> None:
        """An engine answers. One that is new in the configuration has compiled nothing for this gateway yet."""
        view = self._gateway.view
        row = None if view is None else view.snapshot.engines.get(engine)
        if row is not None and self._met.get(engine) != row.url:
            self._met[engine] = row.url
            self.started(engine)

    def started(self, engine: str) -> None:
        """Begin with an engine that has started, afresh where it was being warmed up."""
        if (running := self._tasks.pop(engine, None)) is not None:
            running.cancel()
            self._gateway.pools.set_warming(engine, False)
        view = self._gateway.view
        row = None if view is None else view.snapshot.engines.get(engine)
        if view is None or row is None or not self._seconds or not (known := self._known_of(row.pool)):
            return
        worst = engine_priority(row.kind, "", view.snapshot.priority_classes)
        fields = {} if worst is None else {"priority": worst + 1}
        task = asyncio.create_task(self._warm_up(engine, row, known, fields), name=f"warm up {engine}")
        self._tasks[engine] = task
        self._gateway.pools.set_warming(engine, True)
        task.add_done_callback(lambda done: self._ended(engine, done))

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, engine: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(engine) is task:
            del self._tasks[engine]
            self._gateway.pools.set_warming(engine, False)

    async def _warm_up(self, name: str, engine: Engine, known: list[WarmUpRequest], fields: dict[str, Any]) -> None:
        done = 0
        try:
            async with asyncio.timeout(self._seconds):
                for request in known:
                    await self._ask(engine, request, fields)
                    self._gateway.metrics.warmed_schema(engine.pool)
                    done += 1
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            log.warning(
                "engine %s has compiled %d of %d known schemas; then: %s", name, done, len(known), type(error).__name__
            )
        else:
            log.info("engine %s has compiled %d known schemas", name, done)

    async def _ask(self, engine: Engine, request: WarmUpRequest, fields: dict[str, Any]) -> None:
        """A schema that the engine refuses now is no reason to leave the others out."""
        is_completion = request.endpoint == "completions"
        body = {"model": engine.served_model, "max_tokens": 1, "temperature": 0, **fields, **request.fields}
        body |= {"prompt": _PROMPT} if is_completion else {"messages": [{"role": "user", "content": _PROMPT}]}
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if engine.api_key is not UNSET:
            headers["Authorization"] = f"Bearer {engine.api_key}"
        url = engine.url.rstrip("/") + APIS["completions" if is_completion else "chat"].path
        async with self._gateway.http.post(
            url, data=msgspec.json.encode(body), headers=headers, allow_redirects=False
        ) as answer:
            if answer.status >= 500:
                answer.raise_for_status()
            # One token is no long answer; whatever comes is read, so that the connection can be used again.
            async for _ in answer.content.iter_any():
                pass
