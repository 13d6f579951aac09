"""A control plane reduced to what a target asks of it: enrolment, configuration stream, acks, artifacts, metrics, and
of an agent reports and events.

For benchmarks and tests that need a real gateway or agent process and nothing else. It holds one slice in memory;
`publish` sends the next one to every open stream.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from wire.canonical import Document, content_hash
from wire.messages import PeersEvent, SnapshotEvent, encode_sse
from wire.push import EVENTS_PATH, WRITE_PATH

_TOKEN_LIFE_SECONDS = 3600


class SnapshotServer:
    """Listens on a free port of 127.0.0.1 (or on `port`) inside the running event loop."""

    def __init__(self, content: Document) -> None:
        self.content = content
        self.revision = 1
        self.live_gateways = 1
        self.join_token = secrets.token_urlsafe(32)
        self.acks: list[dict[str, Any]] = []
        self.artifacts: dict[str, bytes] = {}
        # Remote write bodies, as they came.
        self.writes: list[bytes] = []
        # What a gateway told of requests, each list in the order of arrival.
        self.decisions: list[dict[str, Any]] = []
        self.sketches: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.port = 0
        self._changed = asyncio.Event()
        self._stopping = False
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def add_artifact(self, data: bytes) -> str:
        """Its SHA-256, by which a model names it."""
        sha = hashlib.sha256(data).hexdigest()
        self.artifacts[sha] = data
        return sha

    def publish(self, content: Document | None = None, *, live_gateways: int | None = None) -> int:
        """Send a new slice, or a new number of gateways, to all streams. Returns the revision."""
        if content is not None:
            self.content = content
            self.revision += 1
        self.live_gateways = live_gateways or self.live_gateways
        self._wake_streams()
        return self.revision

    def answer_to(self, revision: int) -> dict[str, Any] | None:
        """The newest ack or NACK of a revision."""
        return next((ack for ack in reversed(self.acks) if ack["revision"] == revision), None)

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/api/v1/targets/enrol", self._enrol),
            web.get("/api/v1/config/stream", self._stream),
            web.post("/api/v1/config/ack", self._ack),
            web.get("/api/v1/artifacts/{sha}", self._artifact),
            web.post(WRITE_PATH, self._write),
            web.post("/api/v1/nodes/report", self._report),
            web.post(EVENTS_PATH, self._events),
            web.post("/api/v1/decisions", self._decisions),
            web.post("/api/v1/sketches", self._sketches),
        ]

    async def start(self) -> None:
        self._stopping = False
        app = web.Application()
        app.add_routes(self.routes())
        self._runner = web.AppRunner(app, shutdown_timeout=1, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """End every stream and connection; `start` opens the same port again."""
        self._stopping = True
        self._wake_streams()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _enrol(self, request: web.Request) -> web.Response:
        if (await request.json())["join_token"] != self.join_token:
            problem = {"title": "Forbidden", "status": 403, "code": "unknown_join_token", "detail": "ask for a new one"}
            return web.json_response(problem, status=403, content_type="application/problem+json")
        expires_at_ms = int((time.time() + _TOKEN_LIFE_SECONDS) * 1000)
        return web.json_response({"target_id": 1, "token": secrets.token_hex(32), "expires_at_ms": expires_at_ms})

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        sent = int(request.query["have"])
        while not self._stopping:
            changed = self._changed
            await response.write(encode_sse("peers", PeersEvent(self.live_gateways)))
            if sent != self.revision:
                sent = self.revision
                event = SnapshotEvent(sent, content_hash(self.content), self.content)
                await response.write(encode_sse("snapshot", event))
            await changed.wait()
        return response

    def _wake_streams(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _ack(self, request: web.Request) -> web.Response:
        self.acks.append(json.loads(await request.read()))
        return web.json_response({"taken": True})

    async def _write(self, request: web.Request) -> web.Response:
        self.writes.append(await request.read())
        return web.Response(status=204)

    async def _report(self, request: web.Request) -> web.Response:
        await request.read()
        return web.json_response({"ignored": []})

    async def _events(self, request: web.Request) -> web.Response:
        events = json.loads(await request.read())
        self.events += events
        return web.json_response({"taken": [event["id"] for event in events]})

    async def _decisions(self, request: web.Request) -> web.Response:
        return await self._told(request, self.decisions)

    async def _sketches(self, request: web.Request) -> web.Response:
        return await self._told(request, self.sketches)

    async def _told(self, request: web.Request, told: list[dict[str, Any]]) -> web.Response:
        body = json.loads(await request.read())
        told += body
        return web.json_response({"taken": len(body)})

    async def _artifact(self, request: web.Request) -> web.Response:
        data = self.artifacts.get(request.match_info["sha"])
        if data is None:
            return web.json_response({"title": "Not Found", "status": 404, "code": "unknown_artifact"}, status=404)
        return web.Response(body=data)


@asynccontextmanager
async def snapshot_server(content: Document) -> AsyncIterator[SnapshotServer]:
    server = SnapshotServer(content)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
