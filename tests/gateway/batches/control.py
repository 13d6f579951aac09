"""A control plane that has files, batches and lines as a test says, for a real gateway process."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any

import msgspec
from aiohttp import web

from bench.support.snapshot_server import SnapshotServer
from tests.gateway.fleet import MODEL
from wire.batches import TENANT_HEADER, WORK_PATH, LeaseAnswer, LeasedLine, LeaseRequest, RenewalAnswer, Results

CHAT = "/v1/chat/completions"


class BatchControl(SnapshotServer):
    """`lines` are given out as asked for; `results` came back. `refuse`: (status, code) for the calls of tenants."""

    def __init__(self, content: dict[str, Any]) -> None:
        super().__init__(content)
        self.lines: list[LeasedLine] = []
        self.asked: list[LeaseRequest] = []
        self.results: dict[int, Any] = {}
        self.renewed: list[int] = []
        self.lost: set[int] = set()
        self.refuse: tuple[int, str] | None = None
        self.takes_results = True
        # (tenant, method, path, body) of the calls of tenants.
        self.calls: list[tuple[str, str, str, bytes]] = []
        self._ids = itertools.count(1)

    def begin_anew(self) -> None:
        self.lines, self.results, self.renewed, self.lost = [], {}, [], set()
        self.refuse, self.takes_results, self.calls = None, True, []

    def add(self, count: int = 1, *, tenant: str = "alpha", model: str = MODEL, **fields: Any) -> list[int]:
        """The ids of new lines. `fields` are those of their bodies."""
        ids = []
        for _ in range(count):
            ids.append(next(self._ids))
            body = {"model": model, "messages": [{"role": "user", "content": f"line {ids[-1]}"}], **fields}
            ends_at_ms = int(time.time() * 1000) + 3_600_000
            raw = msgspec.Raw(msgspec.json.encode(body))
            self.lines.append(LeasedLine(ids[-1], 1, "batch_1", tenant, CHAT, model, 1, ends_at_ms, raw))
        return ids

    def routes(self) -> list[web.RouteDef]:
        return [
            *super().routes(),
            web.post(f"{WORK_PATH}/leases", self._leases),
            web.post(f"{WORK_PATH}/renewals", self._renewals),
            web.post(f"{WORK_PATH}/results", self._results),
            web.route("*", WORK_PATH + "/{rest:.*}", self._call),
        ]

    async def _leases(self, request: web.Request) -> web.Response:
        asked = msgspec.json.decode(await request.read(), type=LeaseRequest)
        self.asked.append(asked)
        given = []
        for models, lines in [(want.models, want.lines) for want in asked.wants] + [(None, asked.others)]:
            fitting = [
                line
                for line in self.lines
                if line.tenant not in asked.resting
                and (line.model in models if models is not None else line.model not in asked.known)
            ]
            given += fitting[:lines]
            self.lines = [line for line in self.lines if line not in given]
        return _json(LeaseAnswer(given, 600))

    async def _renewals(self, request: web.Request) -> web.Response:
        held = [line["id"] for line in msgspec.json.decode(await request.read())["lines"]]
        self.renewed += held
        return _json(RenewalAnswer(sorted(self.lost.intersection(held))))

    async def _results(self, request: web.Request) -> web.Response:
        body = await request.read()
        if not self.takes_results:
            return web.Response(status=503)
        results = msgspec.json.decode(body, type=Results).results
        self.results.update({result.id: result for result in results})
        return _json({"counted": len(results)})

    async def _call(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        path = str(request.rel_url).removeprefix(WORK_PATH)
        self.calls.append((request.headers[TENANT_HEADER], request.method, path, body))
        if self.refuse is not None:
            status, code = self.refuse
            return web.json_response({"code": code, "detail": f"because of {code}"}, status=status)
        if path.endswith("/content"):
            content = web.StreamResponse(headers={"Content-Length": "200000"})
            await content.prepare(request)
            for _ in range(20):
                await content.write(b"x" * 10_000)
                await asyncio.sleep(0.001)
            return content
        return web.json_response({"id": "it", "object": "thing"})


def _json(message: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(message), content_type="application/json")


async def until(ready: Any, what: str, timeout_s: float = 15) -> None:
    """Until `ready()` is true."""
    deadline = time.monotonic() + timeout_s
    while not ready():
        assert time.monotonic() < deadline, f"waited {timeout_s} s for {what}"
        await asyncio.sleep(0.01)
