"""What the agent's own pages say: GET /metrics, /healthz, /readyz, /engines/<name>/readyz, /engines/<name>/pre-stop."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from urllib.parse import parse_qsl

import msgspec

from gpu_agent.page.exposition import MEDIA_TYPE, exposition
from gpu_agent.page.server import Answer, Later, Request
from gpu_agent.pre_stop import LIMIT_SECONDS_MAX, UnknownEngine
from gpu_agent.telemetry import LivePart

_ENGINE, _READY, _PRE_STOP = "/engines/", "/readyz", "/pre-stop"


class Pages:
    """Answers from memory alone, whatever hangs. `node`, `engine`: the reasons why it is not ready.

    `empty(engine, limit_seconds)`: see PreStop. It changes something, so it is for whoever is on this node, or shows
    the token.
    """

    def __init__(
        self,
        *,
        token: str,
        live: Callable[[], Sequence[LivePart]],
        node: Callable[[], list[str]],
        engine: Callable[[str], list[str]],
        empty: Callable[[str, int], Awaitable[str]],
    ) -> None:
        self._token, self._live, self._node, self._engine, self._empty = token, live, node, engine, empty

    def answer(self, request: Request) -> Answer | Later:
        path = request.path
        if path == "/metrics":
            return self._metrics(request.authorization)
        if path == "/healthz":
            # That the loop turns is what it says.
            return _json(HTTPStatus.OK, {"ok": True})
        if path == _READY:
            return _readiness(self._node())
        name = path.removeprefix(_ENGINE).removesuffix(_READY)
        if path == f"{_ENGINE}{name}{_READY}":
            return _readiness(self._engine(name))
        name = path.removeprefix(_ENGINE).removesuffix(_PRE_STOP)
        if path == f"{_ENGINE}{name}{_PRE_STOP}":
            return self._pre_stop(name, request)
        known = "/metrics, /healthz, /readyz, /engines/<name>/readyz or /engines/<name>/pre-stop"
        return _json(HTTPStatus.NOT_FOUND, {"error": f"ask {known}"})

    def _pre_stop(self, name: str, request: Request) -> Answer | Later:
        if not request.here and not (self._token and self._shows_token(request.authorization)):
            return _json(HTTPStatus.FORBIDDEN, {"error": "ask on loopback, or show the bearer token of this page"})
        limit = dict(parse_qsl(request.query)).get("limit", "")
        if not limit.isdecimal() or len(limit) > 4 or not 1 <= int(limit) <= LIMIT_SECONDS_MAX:
            return _json(HTTPStatus.BAD_REQUEST, {"error": f"give limit=N, 1 to {LIMIT_SECONDS_MAX} seconds"})
        return Later(self._emptied(name, int(limit)), int(limit))

    async def _emptied(self, name: str, limit_seconds: int) -> Answer:
        try:
            why_not = await self._empty(name, limit_seconds)
        except UnknownEngine:
            return _json(HTTPStatus.NOT_FOUND, {"error": f"this node has no engine {name!r}"})
        if why_not:
            return _json(HTTPStatus.SERVICE_UNAVAILABLE, {"drained": False, "detail": why_not})
        return _json(HTTPStatus.OK, {"drained": True})

    def _shows_token(self, authorization: bytes) -> bool:
        return hmac.compare_digest(authorization, f"Bearer {self._token}".encode())

    def _metrics(self, authorization: bytes) -> Answer:
        if self._token and not self._shows_token(authorization):
            return _json(HTTPStatus.UNAUTHORIZED, {"error": "show the bearer token of this page"})
        return Answer(HTTPStatus.OK, MEDIA_TYPE, exposition(self._live()))


def _readiness(reasons: Sequence[str]) -> Answer:
    if reasons:
        return _json(HTTPStatus.SERVICE_UNAVAILABLE, {"ready": False, "reasons": reasons})
    return _json(HTTPStatus.OK, {"ready": True})


def _json(status: HTTPStatus, body: object) -> Answer:
    return Answer(status, "application/json", msgspec.json.encode(body))
