"""Answers that obey a schema."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from simulator.generation import Generator, Job
from simulator.lengths import LogNormal
from simulator.requests import ApiError
from simulator.schema import SchemaNotSimulated, obeying_text
from simulator.tokenizer import train_tokenizer

GENERATOR = Generator(train_tokenizer(), ["m"], 8192, LogNormal(median_tokens=10), seed=0)

names = st.sampled_from(["colour", "count", "tags"])
low_and_high = st.tuples(st.integers(-50, 50), st.integers(0, 50)).map(
    lambda two: {"minimum": two[0], "maximum": two[0] + two[1]}
)
leaves = st.one_of(
    st.sampled_from([{"type": "boolean"}, {"type": "null"}, {"type": "string"}, {"type": "integer"}, {"const": 7}]),
    st.lists(st.sampled_from(["red", "green", 3, None, True]), min_size=1).map(lambda values: {"enum": values}),
    low_and_high.map(lambda bounds: {"type": "integer", **bounds}),
    low_and_high.map(lambda bounds: {"type": "number", "minimum": bounds["minimum"]}),
    low_and_high.map(lambda bounds: {"type": "integer", "maximum": bounds["maximum"]}),
)


def objects(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(names, inner).map(
        lambda given: {
            "type": "object",
            "properties": given,
            "required": sorted(given),
            "additionalProperties": False,
        }
    )


def arrays(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.tuples(inner, st.integers(0, 3)).map(
        lambda two: {"type": "array", "items": two[0], "minItems": two[1], "maxItems": two[1] + 1}
    )


schemas = st.recursive(leaves, lambda inner: objects(inner) | arrays(inner), max_leaves=8)


@given(schemas, st.integers())
def test_an_answer_obeys_whatever_schema_is_simulated(schema: dict[str, Any], seed: int) -> None:
    text = obeying_text(schema, random.Random(seed))
    assert list(Draft202012Validator(schema).iter_errors(json.loads(text))) == []


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object", "required": ["a"]},
        {"type": ["string", "null"]},
        {"type": "string", "pattern": "a+"},
        {"type": "integer", "multipleOf": 7},
        {"type": "integer", "minimum": 0.5},
        {"type": "integer", "minimum": 5, "maximum": 4},
        {"type": "array"},
        {"enum": []},
    ],
)
def test_what_is_not_simulated_of_a_schema_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(SchemaNotSimulated):
        obeying_text(schema, random.Random(0))


def test_a_schema_without_end_is_refused() -> None:
    schema: dict[str, Any] = {"type": "null"}
    for _ in range(100):
        schema = {"type": "array", "items": schema}
    with pytest.raises(SchemaNotSimulated):
        obeying_text(schema, random.Random(0))


SCHEMA = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "green"]}, "count": {"type": "integer"}},
    "required": ["colour", "count"],
}


def chat(response_format: dict[str, Any], **fields: Any) -> Job:
    messages = [{"role": "user", "content": "hello"}]
    body = {"messages": messages, "response_format": response_format, **fields}
    return GENERATOR.plan("chat", msgspec.json.encode(body))


def text_of(job: Job) -> str:
    inside = b"".join(GENERATOR.token_text(token) for token in job.choices[0].tokens)
    return str(json.loads(b'"%b"' % inside))


def test_a_chat_that_asks_for_a_schema_is_answered_by_it_in_whole_tokens() -> None:
    form = {"type": "json_schema", "json_schema": {"name": "probe", "strict": True, "schema": SCHEMA}}
    job = chat(form, max_tokens=100)
    Draft202012Validator(SCHEMA).validate(json.loads(text_of(job)))
    assert job.choices[0].finish_reason == "stop"
    cut = chat(form, max_tokens=3)
    assert (len(cut.choices[0].tokens), cut.choices[0].finish_reason) == (3, "length")
    assert text_of(job).startswith(text_of(cut))


@pytest.mark.parametrize(
    "form",
    [
        {"type": "json_schema"},
        {"type": "text", "json_schema": {"name": "probe", "schema": SCHEMA}},
        {"type": "json_schema", "json_schema": {"name": "probe", "schema": {"type": "string", "pattern": "a"}}},
    ],
)
def test_a_format_that_cannot_be_obeyed_is_refused_by_name(form: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as refused:
        chat(form)
    assert (refused.value.status, refused.value.param) == (400, "response_format")
