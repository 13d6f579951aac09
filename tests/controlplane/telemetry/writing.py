"""Writes as the web process takes them: messages of ASGI in, an answer out."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from django.http import HttpResponse

from controlplane.telemetry.ingest import PATH, with_remote_write
from wire.write_body import CONTENT_ENCODING


class Answer(HttpResponse):
    def json(self) -> Any:
        return json.loads(self.content)


async def site(scope: dict[str, Any], receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 299, "headers": []})
    await send({"type": "http.response.body", "body": b"the site", "more_body": False})


async def call(
    application: Any,
    messages: list[dict[str, Any]],
    token: str,
    path: str = PATH,
    *,
    method: str = "POST",
    headers: dict[str, str] | None = None,
) -> Answer | None:
    """What is answered; None where nothing is."""
    sent: list[dict[str, Any]] = []
    queue = list(messages)

    async def receive() -> dict[str, Any]:
        if not queue:
            await asyncio.Event().wait()
        return queue.pop(0)

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    given = {"authorization": f"Bearer {token}", "content-encoding": CONTENT_ENCODING, **(headers or {})}
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
    }
    await application(scope, receive, send)
    if not sent:
        return None
    answered = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return Answer(sent[1]["body"], status=sent[0]["status"], headers=answered)


def write(body: bytes, token: str, *, method: str = "POST", headers: dict[str, str] | None = None) -> Answer:
    """One body at once, from a thread without a loop."""
    message = {"type": "http.request", "body": body, "more_body": False}
    answer = asyncio.run(call(with_remote_write(site), [message], token, method=method, headers=headers))
    assert answer is not None
    return answer
