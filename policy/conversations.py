"""Conversations in the bodies of the APIs, in the one form that chat templates read; as vLLM makes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from policy.asks import Ask

_Object = dict[str, Any]
# What a coding agent puts before its system prompt, new in each request; vLLM takes it out.
_ATTRIBUTION = "x-anthropic-billing-header"


class Conversation(NamedTuple):
    """`messages` and `tools` as of chat completions; `more`: the template's further variables."""

    messages: list[_Object]
    tools: list[_Object] | None
    more: _Object


def conversation(ask: Ask) -> Conversation | None:
    """What a template is given of a body; None for APIs without messages, and for what no engine would take."""
    read = _READERS.get(ask.endpoint)
    if read is None:
        return None
    try:
        return read(ask)
    except _MALFORMED:
        # An engine says what is wrong with it.
        return None


def tools_of(ask: Ask) -> list[dict[str, Any]]:
    """The tools that are functions, in the form of chat completions; none where they are malformed."""
    read = _TOOL_READERS.get(ask.endpoint)
    try:
        tools = [] if read is None else read(ask)
        return [tool for tool in tools if isinstance(tool["function"], dict)]
    except _MALFORMED:
        return []


def _of_chat(ask: Ask) -> Conversation:
    messages = [_with_arguments(message) for message in _value(ask, "messages") or ()]
    more: _Object = {}
    for name in ("documents", "reasoning_effort", "add_generation_prompt"):
        if (given := _value(ask, name)) is not None:
            more[name] = given
    more.update(_value(ask, "chat_template_kwargs") or {})
    return Conversation(messages, _rendered(_chat_tools(ask)), more)


def _of_responses(ask: Ask) -> Conversation:
    messages: list[_Object] = []
    if instructions := _value(ask, "instructions"):
        messages.append({"role": "system", "content": instructions})
    given = _value(ask, "input")
    for item in [{"role": "user", "content": given}] if isinstance(given, str) else given or ():
        messages += _of_item(item)
    effort = (_value(ask, "reasoning") or {}).get("effort")
    more = {} if effort is None else {"reasoning_effort": effort}
    return Conversation(messages, _rendered(_response_tools(ask)), more)


def _of_item(item: _Object) -> Iterator[_Object]:
    """An item of a response's input: a message, a call of a tool, or what came of it."""
    kind = item.get("type", "message")
    if kind == "message":
        yield {"role": item.get("role"), "content": _plain(item.get("content"))}
    elif kind == "function_call":
        function = {"name": item.get("name"), "arguments": _parsed(item.get("arguments"))}
        yield _calling([{"id": item.get("call_id"), "function": function, "type": "function"}])
    elif kind == "function_call_output":
        yield {"role": "tool", "tool_call_id": item.get("call_id"), "content": _plain(item.get("output"))}


def _plain(content: Any) -> Any:
    """Parts of text by the type that they have in a chat."""
    if not isinstance(content, list):
        return content
    texts = ("input_text", "output_text")
    return [{"type": "text", "text": part.get("text")} if part.get("type") in texts else part for part in content]


def _of_messages(ask: Ask) -> Conversation:
    """Anthropic's form: the system prompt beside the messages, calls and results of tools among their parts."""
    messages: list[_Object] = []
    if system := _system_text(_value(ask, "system")):
        messages.append({"role": "system", "content": system})
    for message in _value(ask, "messages") or ():
        messages += _of_blocks(message)
    return Conversation(messages, _rendered(_message_tools(ask)), {})


def _system_text(system: Any) -> Any:
    if not isinstance(system, list):
        return system
    texts = [block.get("text") or "" for block in system]
    return "".join(text for text in texts if not text.startswith(_ATTRIBUTION))


def _of_blocks(message: _Object) -> Iterator[_Object]:
    content = message.get("content")
    if not isinstance(content, list):
        yield {"role": message.get("role"), "content": content}
        return
    by_kind: dict[str, list[_Object]] = {}
    for block in content:
        by_kind.setdefault(block.get("type", ""), []).append(block)
    for result in by_kind.get("tool_result", ()):
        yield {"role": "tool", "tool_call_id": result.get("tool_use_id"), "content": result.get("content")}
    if calls := by_kind.get("tool_use"):
        called = [_call(call.get("id"), {"name": call.get("name"), "arguments": call.get("input")}) for call in calls]
        yield {**_calling(called), "content": by_kind.get("text", [])}
    elif "text" in by_kind:
        yield {"role": message.get("role"), "content": by_kind["text"]}


def _calling(calls: list[_Object]) -> _Object:
    return {"role": "assistant", "content": None, "tool_calls": calls}


def _call(call_id: Any, function: _Object) -> _Object:
    """A call in vLLM's order, which a template that writes out the whole of it shows; arguments as an object."""
    called = {"arguments": _parsed(function.get("arguments")), "name": function.get("name")}
    return {"id": call_id, "function": called, "type": "function"}


def _with_arguments(message: _Object) -> _Object:
    """The message with its tool calls' arguments as objects, as templates read them; clients send texts of JSON."""
    if not message.get("tool_calls"):
        return message
    calls = [_call(call.get("id"), call.get("function") or {}) for call in message["tool_calls"]]
    return {**message, "tool_calls": calls}


def _parsed(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments
    try:
        return msgspec.json.decode(arguments or "{}")
    except msgspec.DecodeError:
        return arguments


def _rendered(tools: list[_Object]) -> list[_Object] | None:
    """Tools as vLLM gives them to a template: with what was left out of a function as null, and nothing else in it."""
    return [{"type": "function", "function": _whole(tool["function"])} for tool in tools] or None


def _whole(function: _Object) -> _Object:
    whole = {name: function.get(name) for name in ("name", "description", "parameters")}
    strict = function.get("strict")
    return whole if strict is None else {**whole, "strict": strict}


def _chat_tools(ask: Ask) -> list[_Object]:
    return _value(ask, "tools") or []


def _response_tools(ask: Ask) -> list[_Object]:
    return [_function(tool) for tool in _value(ask, "tools") or () if tool.get("type") == "function"]


def _message_tools(ask: Ask) -> list[_Object]:
    tools = [tool for tool in _value(ask, "tools") or () if "input_schema" in tool]
    return [_function({**tool, "parameters": _typed(tool["input_schema"])}) for tool in tools]


def _typed(schema: _Object) -> _Object:
    return {**schema, "type": schema.get("type", "object")}


def _function(tool: _Object) -> _Object:
    fields = ("name", "description", "parameters", "strict")
    return {"type": "function", "function": {name: tool[name] for name in fields if tool.get(name) is not None}}


def _value(ask: Ask, name: str) -> Any:
    return msgspec.json.decode(ask.raw(name) or b"null")


_MALFORMED = (ValueError, RecursionError, AttributeError, TypeError, KeyError)
_TOOL_READERS: dict[str, Callable[[Ask], list[_Object]]] = {
    "chat": _chat_tools,
    "responses": _response_tools,
    "messages": _message_tools,
}
_READERS: dict[str, Callable[[Ask], Conversation]] = {
    "chat": _of_chat,
    "responses": _of_responses,
    "messages": _of_messages,
}
