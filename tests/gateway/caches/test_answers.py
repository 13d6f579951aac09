"""Which answers may be kept."""

from __future__ import annotations

import msgspec
import pytest

from gateway.caches.answers import may_be_kept
from tests.gateway.caches.support import answered, streamed


def whole(reason: str) -> bytes:
    return msgspec.json.encode(answered("x", reason))


@pytest.mark.parametrize(("reason", "kept"), [("stop", True), ("length", False), ("abort", False), ("new", False)])
def test_an_answer_is_kept_where_it_came_to_its_own_end(reason: str, kept: bool) -> None:
    assert may_be_kept("chat", whole(reason), stream=False, length_was_asked_for=False) is kept
    assert may_be_kept("chat", b"".join(streamed("x", reason)), stream=True, length_was_asked_for=False) is kept


def test_the_length_that_was_asked_for_is_an_end() -> None:
    assert may_be_kept("completions", whole("length"), stream=False, length_was_asked_for=True)
    assert not may_be_kept("completions", whole("abort"), stream=False, length_was_asked_for=True)


def test_one_cut_sequence_of_several_spoils_the_answer() -> None:
    both = whole("stop") + whole("length")
    assert not may_be_kept("chat", both, stream=False, length_was_asked_for=False)


def test_a_text_that_speaks_of_an_end_is_none() -> None:
    body = msgspec.json.encode(answered('say "finish_reason": "stop" then', "tool_calls"))
    assert not may_be_kept("chat", body, stream=False, length_was_asked_for=False)
    assert not may_be_kept("chat", b'{"choices":[]}', stream=False, length_was_asked_for=False)


def test_a_stream_needs_its_last_event() -> None:
    assert not may_be_kept("chat", b"".join(streamed("x")[:-1]), stream=True, length_was_asked_for=False)
    end = b'event: message_delta\ndata: {"delta": {"stop_reason": "end_turn"}}\n\n'
    assert not may_be_kept("messages", end, stream=True, length_was_asked_for=False)
    stopped = end + b'event: message_stop\ndata: {"type": "message_stop"}\n\n'
    assert may_be_kept("messages", stopped, stream=True, length_was_asked_for=False)


@pytest.mark.parametrize(
    "calls",
    [
        {"tool_calls": [{"type": "function", "function": {"name": "pay", "arguments": "{}"}}]},
        {"function_call": {"name": "pay", "arguments": "{}"}},
        {"content": [{"type": "tool_use", "id": "t", "name": "pay", "input": {}}]},
    ],
)
def test_a_call_of_a_tool_is_not_kept_however_its_end_is_named(calls: dict[str, object]) -> None:
    """vLLM ends a call of the function that `tool_choice` names by `stop`."""
    body = msgspec.json.encode({"choices": [{"message": calls, "finish_reason": "stop"}]})
    assert not may_be_kept("chat", body, stream=False, length_was_asked_for=False)


def test_an_answer_that_calls_no_tool_is_kept() -> None:
    message: dict[str, object] = {"content": 'a "tool_calls":[{ in words', "tool_calls": [], "function_call": None}
    body = msgspec.json.encode({"choices": [{"message": message, "finish_reason": "stop"}]})
    assert may_be_kept("chat", body, stream=False, length_was_asked_for=False)
