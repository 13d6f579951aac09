from __future__ import annotations

import json
from typing import Any

import pytest

from policy.asks import Ask, Endpoint
from policy.conversations import Conversation, conversation

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "weather", "description": "of now", "parameters": PARAMETERS}}


def talk(endpoint: Endpoint, **fields: Any) -> Conversation:
    found = conversation(Ask(endpoint, json.dumps({"model": "m", **fields}).encode()))
    assert found is not None
    return found


def test_a_chat_is_as_it_came_but_for_the_arguments_of_its_calls():
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Ulm"}'}}
    messages = [
        {"role": "user", "content": "Rain?", "name": "ann"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "no"},
    ]
    found = talk("chat", messages=messages, tools=[TOOL])
    assert (found.messages[0], found.messages[2], found.tools) == (messages[0], messages[2], [TOOL])
    assert found.messages[1]["tool_calls"][0]["function"] == {"name": "weather", "arguments": {"city": "Ulm"}}


def test_a_call_is_written_out_in_the_order_in_which_vllm_has_it():
    function = {"name": "weather", "arguments": "{}"}
    calling = {"role": "assistant", "tool_calls": [{"type": "function", "function": function, "id": "1"}]}
    blocks = [{"type": "tool_use", "name": "weather", "input": {}, "id": "1"}]
    for found in (
        talk("chat", messages=[calling]),
        talk("messages", messages=[{"role": "assistant", "content": blocks}]),
    ):
        assert json.dumps(found.messages[0]["tool_calls"]) == (
            '[{"id": "1", "function": {"arguments": {}, "name": "weather"}, "type": "function"}]'
        )


@pytest.mark.parametrize("given", [{}, {"strict": None, "description": None, "deprecated": True}])
def test_what_a_tool_leaves_out_is_null_for_the_template(given: dict[str, Any]):
    function = {"name": "weather", **given}
    bare = [{"type": "function", "function": {"name": "weather", "description": None, "parameters": None}}]
    turns = [{"role": "user", "content": "Rain?"}]
    assert talk("chat", messages=turns, tools=[{"type": "function", "function": function}]).tools == bare
    assert talk("responses", input="Rain?", tools=[{"type": "function", **function}]).tools == bare
    assert talk("messages", messages=turns, tools=[{"name": "weather", "input_schema": {}}]).tools == [
        {"type": "function", "function": {"name": "weather", "description": None, "parameters": {"type": "object"}}}
    ]


def test_a_tool_that_says_whether_it_is_strict_says_so_to_the_template():
    found = talk("responses", input="Rain?", tools=[{"type": "function", "name": "weather", "strict": False}])
    assert found.tools is not None
    assert found.tools[0]["function"]["strict"] is False


def test_anthropics_system_prompt_is_one_text_without_what_is_new_in_each_request():
    blocks = [{"type": "text", "text": text} for text in ("x-anthropic-billing-header: cch=1f", "Be ", "short.")]
    found = talk("messages", system=blocks, messages=[{"role": "user", "content": "Rain?"}])
    assert found.messages[0] == {"role": "system", "content": "Be short."}


def test_arguments_that_are_no_json_stay_a_text():
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": "{city"}}
    found = talk("chat", messages=[{"role": "assistant", "tool_calls": [call]}])
    assert found.messages[0]["tool_calls"][0]["function"]["arguments"] == "{city"


def test_a_chat_may_give_its_template_further_variables():
    messages = [{"role": "user", "content": "hi"}]
    more = {"documents": [{"text": "d"}], "reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": False}}
    assert talk("chat", messages=messages, **more).more == {
        "documents": [{"text": "d"}],
        "reasoning_effort": "low",
        "enable_thinking": False,
    }


def test_a_response_is_a_conversation_with_its_instructions_first():
    found = talk("responses", instructions="Be short.", input="Rain?", reasoning={"effort": "high"})
    assert found == Conversation(
        [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Rain?"}],
        None,
        {"reasoning_effort": "high"},
    )


def test_items_of_a_response_are_messages_calls_and_their_outputs():
    parts = [{"type": "input_text", "text": "Rain?"}]
    found = talk(
        "responses",
        input=[
            {"role": "user", "content": parts},
            {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]},
            {"type": "function_call", "call_id": "1", "name": "weather", "arguments": '{"city":"Ulm"}'},
            {"type": "function_call_output", "call_id": "1", "output": "no"},
        ],
        tools=[
            {"type": "function", "name": "weather", "description": "of now", "parameters": PARAMETERS},
            {"type": "web_search"},
        ],
    )
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Ulm"}}}
    assert found.messages == [
        {"role": "user", "content": [{"type": "text", "text": "Rain?"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "no"},
    ]
    assert found.tools == [TOOL]


def test_anthropics_blocks_are_messages_calls_and_their_outputs():
    text = {"type": "text", "text": "Let me see."}
    found = talk(
        "messages",
        system=[{"type": "text", "text": "Be short."}],
        messages=[
            {"role": "user", "content": "Rain?"},
            {
                "role": "assistant",
                "content": [text, {"type": "tool_use", "id": "1", "name": "weather", "input": {"city": "Ulm"}}],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "no"}, text]},
        ],
        tools=[{"name": "weather", "description": "of now", "input_schema": PARAMETERS}],
    )
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Ulm"}}}
    assert found.messages == [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "Rain?"},
        {"role": "assistant", "content": [text], "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "no"},
        {"role": "user", "content": [text]},
    ]
    assert found.tools == [TOOL]


@pytest.mark.parametrize(
    ("endpoint", "fields"),
    [
        ("completions", {"prompt": "hi"}),
        ("embeddings", {"input": "hi"}),
        ("rerank", {"query": "q", "documents": ["d"]}),
        ("chat", {"messages": [{"role": "user", "content": "hi"}], "chat_template_kwargs": 3}),
        ("chat", {"messages": [{"role": "user", "content": "hi"}], "chat_template_kwargs": "ab"}),
        ("chat", {"messages": [{"role": "user", "content": "hi", "tool_calls": [3]}]}),
        ("responses", {"input": "hi", "tools": [3]}),
        ("responses", {"input": "hi", "tools": 3}),
        ("messages", {"messages": [{"role": "user", "content": "hi"}], "tools": [3]}),
    ],
)
def test_what_is_no_conversation_is_none(endpoint: Endpoint, fields: dict[str, Any]):
    assert conversation(Ask(endpoint, json.dumps({"model": "m", **fields}).encode())) is None
