"""A control plane that also has lines of a batch: as many as a gateway takes, of which each is new."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import web

from bench.support.snapshot_server import SnapshotServer
from wire.batches import WORK_PATH, LeaseAnswer, LeasedLine, LeaseRequest, RenewalAnswer, Results, ResultsAnswer
from wire.canonical import Document

_LEASE_MS = 60_000
_WINDOW_MS = 24 * 3600 * 1000


class LineServer(SnapshotServer):
    """`draw` makes the body of a line. None is given out before `open`, or after it was closed again."""

    def __init__(self, content: Document, tenant: str, model: str, draw: Callable[[], bytes]) -> None:
        super().__init__(content)
        self.open = False
        # (monotonic seconds, output tokens) of each line that was answered, and how many were not.
        self.answered: list[tuple[float, int]] = []
        self.failed = 0
        self._tenant, self._model, self._draw = tenant, model, draw
        self._ids = itertools.count(1)

    def routes(self) -> list[web.RouteDef]:
        return [
            *super().routes(),
            web.post(f"{WORK_PATH}/leases", self._leases),
            web.post(f"{WORK_PATH}/renewals", self._renewals),
            web.post(f"{WORK_PATH}/results", self._results),
        ]

    async def _leases(self, request: web.Request) -> web.Response:
        asked = msgspec.json.decode(await request.read(), type=LeaseRequest)
        count = sum(want.lines for want in asked.wants if self._model in want.models) if self.open else 0
        return _json(LeaseAnswer([self._line() for _ in range(count)], _LEASE_MS))

    def _line(self) -> LeasedLine:
        ends_at_ms = int(time.time() * 1000) + _WINDOW_MS
        body, endpoint = msgspec.Raw(self._draw()), "/v1/chat/completions"
        return LeasedLine(next(self._ids), 1, "batch_bench", self._tenant, endpoint, self._model, 1, ends_at_ms, body)

    async def _renewals(self, request: web.Request) -> web.Response:
        await request.read()
        return _json(RenewalAnswer([]))

    async def _results(self, request: web.Request) -> web.Response:
        results = msgspec.json.decode(await request.read(), type=Results).results
        for result in results:
            if result.outcome == "done":
                usage = msgspec.json.decode(result.body or b"{}")["usage"]
                self.answered.append((time.monotonic(), usage["completion_tokens"]))
            elif result.outcome == "failed":
                self.failed += 1
        return _json(ResultsAnswer(len(results)))

    def tokens_between(self, begin: float, end: float) -> int:
        return sum(tokens for at, tokens in self.answered if begin <= at < end)


def _json(message: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(message), content_type="application/json")
