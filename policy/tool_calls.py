"""Whether a conversation goes round in circles: the same tool with the same arguments, again and again.

A client sends its conversation along, so its end tells how the loop goes: `tool_calls` (and the older `function_call`)
of chat messages, `function_call` items of the Responses API, `tool_use` blocks of the Messages API. Each conversation
is read by itself: agents that work side by side in one session may well all begin by the same call. What cannot be read
says nothing here; an engine judges it. Source: seed 1, section 14.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, takewhile
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, Struct

_MARKS = (b'"tool_calls"', b'"function_call"', b'"tool_use"')
_NO_RAW = Raw(b"")


class _Function(Struct, frozen=True):
    name: str | None = None
    arguments: Any = None


class _ToolCall(Struct):
    function: _Function = _Function()


class _Item(Struct):
    """A message of a chat, an item of a response's input: what is read of either."""

    role: str | None = None
    type: str | None = None
    tool_calls: list[_ToolCall] | None = None
    function_call: _Function | None = None
    content: Raw = _NO_RAW
    name: str | None = None
    arguments: Any = None


class _Block(Struct):
    type: str = ""
    name: str = ""
    input: Any = None


class _Made(NamedTuple):
    """One call of a tool."""

    tool: str
    arguments: bytes


_items = msgspec.json.Decoder(list[_Item])
_blocks = msgspec.json.Decoder(list[_Block])


def calls_running(conversation: bytes) -> int:
    """How often running the call that a conversation ends in was made, 1 where but once; 0 where it ends in none.

    Reads `messages` or `input` as JSON. Results of tools and words of a user stand between calls; an answer of the
    model in words ends the run.
    """
    if not any(mark in conversation for mark in _MARKS):
        return 0
    try:
        steps = _steps_from_end(_items.decode(conversation))
        last = next(steps, [])
        same = [last, *takewhile(lambda step: sorted(step) == sorted(last), steps)]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return 0
    if not last:
        return 0
    # One answer may hold the same call several times.
    made = chain.from_iterable(map(reversed, same))
    return max(len(same), sum(1 for _ in takewhile(lambda call: call == last[-1], made)))


def _steps_from_end(items: list[_Item]) -> Iterator[list[_Made]]:
    """The calls of each of the model's answers, the last one first, up to one in words."""
    together: list[_Made] = []
    for item in reversed(items):
        if item.type == "function_call":
            # Calls that stand side by side were made in one answer.
            together.append(_Made(item.name or "", _same_form(item.arguments)))
            continue
        if together and item.type != "reasoning":
            yield together[::-1]
            together = []
        if item.role == "assistant":
            made = list(_made_in(item))
            if not made:
                return
            yield made
    if together:
        yield together[::-1]


def _made_in(message: _Item) -> Iterator[_Made]:
    for call in message.tool_calls or ():
        yield _Made(call.function.name or "", _same_form(call.function.arguments))
    if message.function_call is not None:
        yield _Made(message.function_call.name or "", _same_form(message.function_call.arguments))
    if b'"tool_use"' in bytes(message.content):
        for block in _blocks.decode(message.content):
            if block.type == "tool_use":
                yield _Made(block.name, _same_form(block.input))


def _same_form(arguments: Any) -> bytes:
    """Arguments with keys sorted and no white space; models write the same ones in several ways."""
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return bytes(arguments, "utf-8", "replace")
    return msgspec.json.encode(arguments, order="deterministic")
