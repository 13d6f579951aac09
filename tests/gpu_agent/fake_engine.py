"""An engine's pages for agent tests; each path answers what the test put there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from tests.wire.engine_pages.reading import page_of

VLLM_METRICS = page_of("vllm-0.32.0")


@dataclass
class FakeEngine:
    """`pages`: path → (status, body). A path in `hung` never answers; one that is absent is 404."""

    url: str = ""
    pages: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    hung: set[str] = field(default_factory=set)
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "text/plain; version=0.0.4"})
    requests: list[web.BaseRequest] = field(default_factory=list)

    async def _answer(self, request: web.Request) -> web.Response:
        self.requests.append(request)
        if request.path in self.hung:
            await asyncio.Event().wait()
        status, body = self.pages.get(request.path, (404, b""))
        return web.Response(status=status, body=body, headers={"Location": "/elsewhere", **self.headers})


def vllm_pages() -> dict[str, tuple[int, bytes]]:
    return {"/health": (200, b""), "/version": (200, b'{"version":"0.32.0"}'), "/metrics": (200, VLLM_METRICS)}


@asynccontextmanager
async def fake_engine() -> AsyncIterator[FakeEngine]:
    engine = FakeEngine(pages=vllm_pages())
    application = web.Application()
    application.router.add_get("/{path:.*}", engine._answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        engine.url = f"http://{host}:{port}"
        yield engine
    finally:
        await runner.cleanup()
