"""A control plane that takes samples and events, or answers what a test says."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.wire.fake_control import DEADLINE_SECONDS
from wire.push import EVENTS_PATH, WRITE_PATH
from wire.remote_write import Bounds, decode_series
from wire.write_body import Series

CUT = 0


@dataclass
class Answer:
    """A refusal, or `body` as it stands. `status` CUT takes the body and closes the connection without a word."""

    status: int
    code: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None


@dataclass
class Receiver:
    """`answers` come before all else, then `judge` (body → an answer, or None to take it)."""

    url: str = ""
    answers: deque[Answer] = field(default_factory=deque)
    judge: Callable[[list[Any]], Answer | None] = lambda body: None
    writes: list[list[Series]] = field(default_factory=list)
    events: list[list[dict[str, Any]]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    # What is left out of `taken` in the answer to events.
    passed_over: set[str] = field(default_factory=set)
    asked_at: list[float] = field(default_factory=list)
    # Cleared, it holds every answer back.
    answering: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def values(self) -> list[float]:
        """The value of every sample, in the order in which they were taken."""
        return [value for body in self.writes for series in body for _, value in series.samples]

    @property
    def event_ids(self) -> list[str]:
        return [event["id"] for body in self.events for event in body]

    async def until(self, what: str, holds: Callable[[], Any]) -> None:
        """Wait for `holds`; a TimeoutError's traceback names `what` did not come."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not holds():  # noqa: ASYNC110 - what it polls has no event
                await asyncio.sleep(0.005)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked_at.append(asyncio.get_running_loop().time())
        await self.answering.wait()
        raw = await request.read()
        body: list[Any] = decode_series(raw, Bounds()) if request.path == WRITE_PATH else json.loads(raw)
        answer = self.answers.popleft() if self.answers else self.judge(body)
        if answer is not None and answer.body is not None:
            return web.Response(body=answer.body, status=answer.status, headers=answer.headers)
        if answer is not None and answer.status != CUT:
            problem = {"status": answer.status, "code": answer.code, "detail": f"{answer.code}, said the test"}
            return web.json_response(problem, status=answer.status, headers=answer.headers)
        self.headers.append(request.headers)
        (self.writes if request.path == WRITE_PATH else self.events).append(body)
        if answer is not None:
            assert request.transport is not None
            request.transport.abort()
        if request.path == WRITE_PATH:
            return web.Response(status=204)
        return web.json_response({"taken": [event["id"] for event in body if event["id"] not in self.passed_over]})


@asynccontextmanager
async def receiver(port: int = 0) -> AsyncIterator[Receiver]:
    receiving = Receiver()
    receiving.answering.set()
    application = web.Application()
    application.add_routes([web.post(WRITE_PATH, receiving._answer), web.post(EVENTS_PATH, receiving._answer)])
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        receiving.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield receiving
    finally:
        await runner.cleanup()
