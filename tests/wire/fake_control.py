"""A control plane of a few lines for target tests: the test itself says what each stream sends."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from wire.canonical import Document, content_hash
from wire.messages import PatchEvent, SnapshotEvent, encode_sse
from wire.push import EVENTS_PATH
from wire.remote_write import Bounds, decode_series
from wire.write_body import CONTENT_TYPE

DEADLINE_SECONDS = 10
JOIN_TOKEN = "join-" + "j" * 40
TOKEN = "first-" + "t" * 40


def snapshot_event(revision: int, content: Document, *, hashed: str | None = None) -> bytes:
    return encode_sse("snapshot", SnapshotEvent(revision, hashed or content_hash(content), content))


def patch_event(before: int, revision: int, patch: Document, after: Document) -> bytes:
    return encode_sse("patch", PatchEvent(before, revision, content_hash(after), patch))


@dataclass
class Stream:
    """One open config stream. What the test writes is sent as it is."""

    have: int
    hash: str
    authorization: str
    _chunks: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)

    def send(self, *chunks: bytes) -> None:
        for chunk in chunks:
            self._chunks.put_nowait(chunk)

    def end(self) -> None:
        self._chunks.put_nowait(None)

    async def chunks(self) -> AsyncIterator[bytes]:
        while (chunk := await self._chunks.get()) is not None:
            yield chunk


@dataclass
class FakeControl:
    """`refuse[path]` holds answers (status, code) to give before the right one; a token in `revoked` is refused for
    good. Bodies of posts queue by path, those of remote write as series. `gets` counts by path what was got.
    """

    url: str = ""
    streams: asyncio.Queue[Stream] = field(default_factory=asyncio.Queue)
    posts: defaultdict[str, asyncio.Queue[Any]] = field(default_factory=lambda: defaultdict(asyncio.Queue))
    refuse: defaultdict[str, deque[tuple[int, str]]] = field(default_factory=lambda: defaultdict(deque))
    answers: dict[str, bytes] = field(default_factory=dict)
    gets: Counter[str] = field(default_factory=Counter)
    tokens: list[str] = field(default_factory=list)
    revoked: set[str] = field(default_factory=set)

    async def stream(self) -> Stream:
        """The next config stream that a target opens."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            return await self.streams.get()

    async def posted(self, path: str) -> Any:
        """The next body that was posted to `path` and answered well."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            return await self.posts[path].get()

    async def ack(self) -> Any:
        return await self.posted("/api/v1/config/ack")

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.tokens.append(request.headers.get("Authorization", "").removeprefix("Bearer "))
        refusals = self.refuse[request.path]
        if refusals or self.tokens[-1] in self.revoked:
            status, code = refusals.popleft() if refusals else (403, "revoked")
            problem = {"type": "about:blank", "status": status, "code": code, "detail": f"{code}, said the test"}
            # A target that followed redirects would get a good answer from there.
            headers = {"Location": "/elsewhere"} if 300 <= status < 400 else {}
            return web.json_response(problem, status=status, content_type="application/problem+json", headers=headers)
        if request.path == "/api/v1/config/stream":
            return await self._stream(request)
        if request.method == "POST":
            write = request.content_type == CONTENT_TYPE
            body: Any = decode_series(await request.read(), Bounds()) if write else await request.json()
            self.posts[request.path].put_nowait(body)
            if request.path == EVENTS_PATH:
                return web.json_response({"taken": [event["id"] for event in body]})
        self.gets[request.path] += request.method == "GET"
        if request.path in self.answers:
            return web.Response(body=self.answers[request.path])
        return web.json_response({"taken": True})

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        stream = Stream(int(request.query["have"]), request.query.get("hash", ""), request.headers["Authorization"])
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        self.streams.put_nowait(stream)
        async for chunk in stream.chunks():
            await response.write(chunk)
        return response


def enrol_answer(token: str = TOKEN, expires_at_ms: int = 4_000_000_000_000) -> bytes:
    return json.dumps({"target_id": 1, "token": token, "expires_at_ms": expires_at_ms}).encode()


@asynccontextmanager
async def fake_control(port: int = 0) -> AsyncIterator[FakeControl]:
    control = FakeControl()
    control.answers["/api/v1/targets/enrol"] = enrol_answer()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", control._answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        host, bound = runner.addresses[0][:2]
        control.url = f"http://{host}:{bound}"
        yield control
    finally:
        await runner.cleanup()
