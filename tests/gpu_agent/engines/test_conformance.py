"""What an answer says of the engine that gave it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from gpu_agent.engines.canary import CANARY
from gpu_agent.engines.conformance import JSON_SCHEMA
from gpu_agent.engines.probe import Undecided

SCHEMA = json.loads(JSON_SCHEMA.question("llama"))["response_format"]["json_schema"]["schema"]


def chat(content, finish_reason="stop"):
    message = {"role": "assistant", "content": content}
    return json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": finish_reason}]}).encode()


def completion(**choice):
    return json.dumps({"choices": [{"index": 0, "text": "a", "finish_reason": "length", **choice}]}).encode()


def test_a_schema_is_asked_for_strictly_and_in_few_tokens():
    question = json.loads(JSON_SCHEMA.question("meta/llama"))
    assert (question["model"], question["max_tokens"]) == ("meta/llama", 128)
    assert question["response_format"]["json_schema"]["strict"] is True
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        ("Hello there!", "dropped_response_format"),
        ('```json\n{"colour": "red", "count": 1}\n```', "dropped_response_format"),
        ('{"colour": "red", "count": 1', "not_json"),
        ("{'colour': 'red', 'count': 1}", "not_json"),
        ('{"colour": "pink", "count": 1}', "wrong_type"),
        ('{"colour": "red", "count": "1"}', "wrong_type"),
        ('{"colour": "red", "count": 1.5}', "wrong_type"),
        ('{"colour": "red", "count": 10}', "wrong_type"),
        ('{"colour": "red"}', "wrong_type"),
        ('{"colour": "red", "count": 1, "more": 1}', "wrong_type"),
        ('{"greeting": "Hello"}', "wrong_type"),
        ('"Hello"', "wrong_type"),
        ("", "no_answer"),
        (None, "no_answer"),
    ],
)
def test_an_answer_that_does_not_obey_is_named_by_the_rule_that_it_breaks(content, rule):
    assert JSON_SCHEMA.broken_rule(chat(content)).startswith(f"{rule}: ")


def test_an_answer_that_is_no_chat_completion_is_none():
    for body in b"", b"<html>", b'{"choices":[]}', b'{"choices":[{"text":"a"}]}', b"[" * 100_000:
        assert JSON_SCHEMA.broken_rule(body).startswith("no_answer: ")


def test_an_answer_that_was_cut_before_it_showed_anything_decides_nothing():
    for content in '{"colour":   ', None, "  ":
        with pytest.raises(Undecided):
            JSON_SCHEMA.broken_rule(chat(content, "length"))
    assert JSON_SCHEMA.broken_rule(chat("Hello and", "length")).startswith("dropped_response_format: ")


values = st.one_of(st.sampled_from(["red", "green", "blue", "pink"]), st.integers(-1, 11), st.floats(0, 9), st.none())
answers = st.dictionaries(st.sampled_from(["colour", "count", "more"]), values) | st.lists(values) | values


@given(answers, st.sampled_from([None, 1]))
def test_it_judges_any_json_as_a_validator_of_the_schema_does(value, indent):
    # As numbers, 1.0 and 1 are the same to JSON Schema; a whole number is what was asked for.
    whole = not (isinstance(value, dict) and isinstance(value.get("count"), float))
    obeys = whole and Draft202012Validator(SCHEMA).is_valid(value)
    assert (JSON_SCHEMA.broken_rule(chat(json.dumps(value, indent=indent))) == "") == obeys


def test_a_canary_is_one_token_of_the_served_model():
    question = json.loads(CANARY.question("llama"))
    assert (CANARY.path, question["model"], question["max_tokens"]) == ("/v1/completions", "llama", 1)


@pytest.mark.parametrize("text", ["a", "", "�"])
def test_a_canary_takes_any_text_of_a_token(text):
    assert CANARY.broken_rule(completion(text=text)) == ""


def test_a_completion_that_was_not_computed_is_none():
    assert CANARY.broken_rule(completion(finish_reason="abort")) == "no_completion: it ended with finish_reason abort"
    for body in b"", b"{}", b'{"choices":[]}', b'{"choices":[{"message":{}}]}':
        assert CANARY.broken_rule(body).startswith("no_completion: ")
