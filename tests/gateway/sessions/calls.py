"""Calls of sessions, and the limits that a tenant gives them."""

from __future__ import annotations

import itertools
from typing import Any

from tests.gateway.fleet import RunningGateway, ScriptedEngine, changed, chat, shared_configuration

new_names = itertools.count()


async def limit(gateway: RunningGateway, engine: ScriptedEngine, **limits: Any) -> None:
    """Give tenant alpha these session limits, by a configuration that is otherwise as at the beginning."""
    content = changed(
        shared_configuration(engine.url),
        tenants__alpha={"session_limits": "agents"},
        session_limits__agents=limits,
    )
    await gateway.publish(content)


def session(name: str | None = None, depth: int | None = None) -> dict[str, str]:
    """Headers of a session, a new one unless it is named."""
    headers = {"X-Session-Id": name or f"s{next(new_names)}"}
    return headers if depth is None else {**headers, "X-Agent-Depth": str(depth)}


async def message_of(gateway: RunningGateway, body: Any, headers: dict[str, str]) -> str:
    _, document, _ = await gateway.call(body, headers=headers)
    return str(document["error"]["message"])


def looping(times: int) -> dict[str, Any]:
    call = {"id": "c", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Ankara"}'}}
    step = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "timed out"},
    ]
    return chat() | {"messages": [{"role": "user", "content": "how warm is it?"}, *step * times]}
