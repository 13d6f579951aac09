"""A conversation that goes round in circles is seen by its end, in all three ways of writing it down."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.tool_calls import calls_running

USER: dict[str, Any] = {"role": "user", "content": "how warm is it in Ankara?"}
WORDS: dict[str, Any] = {"role": "assistant", "content": "It is 21 °C."}
Step = list[tuple[str, str]]


def chat_step(step: Step) -> list[dict[str, Any]]:
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": t, "arguments": a}} for n, (t, a) in enumerate(step)
    ]
    results = [{"role": "tool", "tool_call_id": f"c{n}", "content": "timed out"} for n in range(len(step))]
    return [{"role": "assistant", "content": None, "tool_calls": calls}, *results]


def response_step(step: Step) -> list[dict[str, Any]]:
    calls = [{"type": "function_call", "call_id": f"c{n}", "name": t, "arguments": a} for n, (t, a) in enumerate(step)]
    results = [{"type": "function_call_output", "call_id": f"c{n}", "output": "timed out"} for n in range(len(step))]
    return [{"type": "reasoning", "summary": []}, *calls, *results]


def message_step(step: Step) -> list[dict[str, Any]]:
    calls = [{"type": "tool_use", "id": f"c{n}", "name": t, "input": json.loads(a)} for n, (t, a) in enumerate(step)]
    results = [{"type": "tool_result", "tool_use_id": f"c{n}", "content": "timed out"} for n in range(len(step))]
    said = {"type": "text", "text": "Let me look."}
    return [{"role": "assistant", "content": [said, *calls]}, {"role": "user", "content": results}]


WAYS = [chat_step, response_step, message_step]
every_way = pytest.mark.parametrize("written", WAYS, ids=["chat", "responses", "messages"])


def running(*items: dict[str, Any]) -> int:
    return calls_running(json.dumps(list(items)).encode())


@every_way
def test_the_same_call_three_times_running_is_three(written: Any):
    again = written([("weather", '{"city": "Ankara"}')])
    assert running(USER, *again, *again, *again) == 3


@every_way
def test_arguments_are_the_same_however_they_are_written(written: Any):
    one, other = '{"city": "Ankara", "days": 2}', '{"days":2,"city":"Ankara"}'
    assert running(USER, *written([("weather", one)]), *written([("weather", other)])) == 2


@every_way
def test_another_argument_or_another_tool_ends_the_run(written: Any):
    first, second = written([("weather", '{"city": "Ankara"}')]), written([("weather", '{"city": "Izmir"}')])
    third = written([("search", '{"city": "Izmir"}')])
    assert running(USER, *first, *first, *second) == 1
    assert running(USER, *second, *second, *third) == 1


@every_way
def test_calls_side_by_side_are_one_step_in_whatever_order(written: Any):
    pair: Step = [("weather", "{}"), ("search", '{"q": 1}')]
    assert running(USER, *written(pair), *written(pair[::-1]), *written(pair)) == 3


@every_way
def test_one_answer_that_holds_the_same_call_three_times_is_three(written: Any):
    assert running(USER, *written([("weather", "{}")] * 3)) == 3


@every_way
def test_an_answer_in_words_ends_the_run(written: Any):
    again = written([("weather", "{}")])
    assert running(USER, *again, *again, WORDS, USER, *again) == 1
    assert running(USER, *again, *again, *again, WORDS, USER) == 0


@every_way
def test_a_users_reminder_between_calls_does_not_hide_the_loop(written: Any):
    again = written([("weather", "{}")])
    reminder = {"role": "user", "content": "go on"}
    assert running(USER, *again, reminder, *again, reminder, *again, reminder) == 3


def test_the_older_function_call_is_read_too():
    made = {"role": "assistant", "function_call": {"name": "weather", "arguments": "{}"}}
    result = {"role": "function", "name": "weather", "content": "timed out"}
    assert running(USER, made, result, made, result) == 2


def test_arguments_that_are_no_json_are_compared_as_they_stand():
    assert running(USER, *chat_step([("run", "{oops")]), *chat_step([("run", "{oops")])) == 2
    assert running(USER, *chat_step([("run", "{oops")]), *chat_step([("run", "{oops}")])) == 1


def test_fields_that_clients_leave_empty_are_no_trouble():
    made = chat_step([("weather", "{}")])
    spoken = {"role": "user", "content": "x", "tool_calls": None, "function_call": None, "name": None, "type": None}
    assert running(spoken, *made, *made) == 2


@pytest.mark.parametrize(
    "conversation",
    [b"", b'"tool_calls"', b"[1,2]", b'[{"tool_calls": 7}]', b'[{"role":"assistant","content":"x \\"tool_use\\""}]'],
)
def test_what_cannot_be_read_says_nothing(conversation: bytes):
    assert calls_running(conversation) == 0


@given(st.lists(st.sampled_from(["a", "b", "words"]), max_size=12), st.sampled_from(WAYS))
def test_the_run_is_that_of_the_last_calls(made: list[str], written: Any):
    items = [item for name in made for item in ([WORDS] if name == "words" else written([(name, "{}")]))]
    expected = 0
    for name in reversed(made):
        if name == "words" or name != made[-1]:
            break
        expected += 1
    assert running(USER, *items) == expected


_FIELDS = ["role", "type", "tool_calls", "function_call", "function", "content", "name", "arguments"]
_ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(_FIELDS), inner, max_size=4),
    max_leaves=20,
)


@given(_ANY_JSON)
def test_no_json_makes_it_fail(document: Any):
    text = json.dumps(document).encode()
    assert calls_running(b'[{"role":"assistant","content":"\\"tool_calls\\""},' + text + b"]") >= 0
    assert calls_running(text) >= 0
