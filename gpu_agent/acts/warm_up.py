"""Send an engine its first requests, so that the first client does not wait for what they make."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from gpu_agent.acts.calls import engine_calls
from gpu_agent.acts.outcome import failed, refused
from gpu_agent.acts.tools import EngineWork
from wire.acts import WarmUp
from wire.messages import UNREADABLE

_COMPLETIONS, _CHAT = "/v1/completions", "/v1/chat/completions"
# Some blocks of the KV cache long, or only the smallest kernels are made.
_OWN_WORDS = " ".join(f"{number} is followed by {number + 1}." for number in range(64))


async def warm_up(work: EngineWork, request: WarmUp) -> str:
    """Raises: NotDone."""
    schema = _schema(request.schema)
    model = work.engine.served_model or work.engine.model
    path, body = _asked(request, schema, model)
    seconds: list[float] = []
    try:
        async with asyncio.timeout(request.limit_seconds), engine_calls(work) as calls:
            for _ in range(request.requests):
                seconds.append(await calls.stream(path, body))
    except TimeoutError as error:
        said = f"{len(seconds)} of {request.requests} requests were answered within {request.limit_seconds} s"
        raise failed("timeout", said) from error
    return (
        f"{len(seconds)} requests were answered; time to first token {seconds[0] * 1000:.0f} ms at first, "
        f"{seconds[-1] * 1000:.0f} ms at last"
    )


def _schema(text: str) -> dict[str, Any] | None:
    """Raises: NotDone."""
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except UNREADABLE as error:
        raise refused("bad_arguments", f"/arguments/schema: it is no JSON object: {error}") from error


def _asked(request: WarmUp, schema: dict[str, Any] | None, model: str) -> tuple[str, dict[str, Any]]:
    """A model without a chat template can still complete; a grammar is asked for in chats alone by some engines."""
    prompt = request.prompt or _OWN_WORDS
    body: dict[str, Any] = {"model": model, "max_tokens": request.max_tokens, "temperature": 0, "stream": True}
    if schema is None:
        return _COMPLETIONS, body | {"prompt": prompt}
    described = {"name": "warm_up", "strict": True, "schema": schema}
    return _CHAT, body | {
        "messages": [{"role": "user", "content": prompt}],
        "response_format": {"type": "json_schema", "json_schema": described},
    }
