"""A script that speaks to LiteLLM's calls with an API token of ours."""

from __future__ import annotations

import json
from typing import Any

from tests.controlplane.conftest import Rest

PREFIX = "/api/litellm"


class Script:
    def __init__(self, rest: Rest) -> None:
        self._client = rest.client

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        text = body if isinstance(body, bytes) else json.dumps({} if body is None else body)
        return self._client.post(PREFIX + path, text, content_type="application/json", headers=headers or None)

    def get(self, path: str) -> Any:
        return self._client.get(PREFIX + path)


def refusal(response: Any, status: int) -> dict[str, Any]:
    """The error of a refused call, in LiteLLM's shape."""
    assert response.status_code == status, response.content
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == str(status)
    return dict(error)
