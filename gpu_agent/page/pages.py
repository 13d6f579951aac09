"""What the agent's own pages say: GET /metrics, /healthz, /readyz, /engines/<name>/readyz."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from http import HTTPStatus

import msgspec

from gpu_agent.page.exposition import MEDIA_TYPE, exposition
from gpu_agent.page.server import Answer, Request
from gpu_agent.telemetry import LivePart

_ENGINE, _READY = "/engines/", "/readyz"


class Pages:
    """Answers from memory alone, whatever hangs. `node`, `engine`: the reasons why it is not ready."""

    def __init__(
        self,
        *,
        token: str,
        live: Callable[[], Sequence[LivePart]],
        node: Callable[[], list[str]],
        engine: Callable[[str], list[str]],
    ) -> None:
        self._token, self._live, self._node, self._engine = token, live, node, engine

    def answer(self, request: Request) -> Answer:
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
        return _json(HTTPStatus.NOT_FOUND, {"error": "ask /metrics, /healthz, /readyz or /engines/<name>/readyz"})

    def _metrics(self, authorization: bytes) -> Answer:
        expected = f"Bearer {self._token}".encode()
        if self._token and not hmac.compare_digest(authorization, expected):
            return _json(HTTPStatus.UNAUTHORIZED, {"error": "show the bearer token of this page"})
        return Answer(HTTPStatus.OK, MEDIA_TYPE, exposition(self._live()))


def _readiness(reasons: Sequence[str]) -> Answer:
    if reasons:
        return _json(HTTPStatus.SERVICE_UNAVAILABLE, {"ready": False, "reasons": reasons})
    return _json(HTTPStatus.OK, {"ready": True})


def _json(status: HTTPStatus, body: object) -> Answer:
    return Answer(status, "application/json", msgspec.json.encode(body))
