"""The REST API from the shell: what `headworks` commands call it with."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode


class RestError(RuntimeError):
    """An answer that is no success: `status` and the problem body."""

    def __init__(self, method: str, path: str, status: int, body: Any) -> None:
        super().__init__(f"{method} {path}: {status} {body}")
        self.status, self.body = status, body


class Rest:
    """Calls with one API token; each write carries `reason`."""

    def __init__(self, base_url: str, token: str, reason: str) -> None:
        self.base_url, self.token, self.reason = base_url, token, reason

    def call(self, method: str, path: str, body: Any = None, *, timeout_seconds: float = 90, **query: Any) -> Any:
        """The decoded answer. `body` is sent as JSON, or as it is when it is bytes. Raises RestError, URLError."""
        if method != "GET":
            query.setdefault("reason", self.reason)
        return self._send(method, f"/api/v1{path}", body, query, timeout_seconds)

    def query(self, promql: str) -> list[dict[str, Any]]:
        """What PromQL answers now: Prometheus' list of `{"metric", "value"}`, or `values` for a range."""
        answer = self._send("GET", "/prometheus/api/v1/query", None, {"query": promql}, 30)
        result: list[dict[str, Any]] = answer["data"]["result"]
        return result

    def _send(self, method: str, path: str, body: Any, query: Mapping[str, Any], timeout_seconds: float) -> Any:
        url = f"{self.base_url}{path}" + (f"?{urlencode(query)}" if query else "")
        raw = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
        request = urllib.request.Request(  # noqa: S310
            url, raw, {"Authorization": f"Bearer {self.token}", "Content-Type": kind}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout_seconds) as answer:  # noqa: S310
                text = answer.read()
        except urllib.error.HTTPError as error:
            text = error.read()
            try:
                decoded = json.loads(text)
            except ValueError:
                decoded = text[:500].decode(errors="replace")
            raise RestError(method, path, error.code, decoded) from error
        return json.loads(text) if text else None

    def get(self, path: str, **query: Any) -> Any:
        return self.call("GET", path, **query)

    def post(self, path: str, body: Any = None, **query: Any) -> Any:
        return self.call("POST", path, {} if body is None else body, **query)

    def patch(self, path: str, body: Any, **query: Any) -> Any:
        return self.call("PATCH", path, body, **query)
