from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.admission import NotAdmitted
from policy.asks import Ask, Endpoint
from policy.conversations import conversation
from policy.schemas import Constraint, check_shape, check_size, constraints_of, ignored_field, measured
from wire.snapshot import SchemaLimits

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "size": {"enum": ["s", "m", "l"]}}}
WRAPPED = {"type": "json_schema", "json_schema": {"name": "town", "schema": SCHEMA}}
LIMITS = SchemaLimits()
FORMS = ("response_format", "output_config", "structured_outputs", "guided_json", "regex")
BODIES: dict[Endpoint, dict[str, Any]] = {
    "chat": {"messages": [{"role": "user", "content": "hi"}]},
    "completions": {"prompt": "hi"},
    "responses": {"input": "hi"},
    "messages": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5},
    "embeddings": {"input": "hi"},
    "rerank": {"query": "q", "documents": ["d"]},
}


def ask(endpoint: Endpoint = "chat", **fields: Any) -> Ask:
    return Ask(endpoint, json.dumps({"model": "m", **BODIES[endpoint], **fields}).encode())


def only(asked: Ask) -> Constraint:
    (found,) = constraints_of(asked)
    return found


def as_chat(constraint: Constraint) -> dict[str, Any]:
    return {name: msgspec.json.decode(raw) for name, raw in constraint.as_chat.items()}


@pytest.mark.parametrize("endpoint", BODIES)
def test_a_plain_request_constrains_nothing(endpoint: Endpoint):
    assert constraints_of(ask(endpoint)) == []


@pytest.mark.parametrize("kind", ["text", "json_object"])
def test_a_form_without_a_grammar_of_its_own_constrains_nothing(kind: str):
    assert constraints_of(ask(response_format={"type": kind})) == []
    assert constraints_of(ask("responses", text={"format": {"type": kind}})) == []


def test_each_api_has_its_place_for_a_schema():
    flat = {"type": "json_schema", "name": "town", "schema": SCHEMA}
    found = {
        "response_format": only(ask(response_format=WRAPPED)),
        "text.format": only(ask("responses", text={"format": flat})),
        "output_config.format": only(ask("messages", output_config={"format": flat})),
    }
    for field, constraint in found.items():
        assert constraint.field == field
        assert as_chat(constraint)["response_format"]["json_schema"]["schema"] == SCHEMA
        assert measured(constraint).shape == (1, 3)
    assert only(ask("completions", response_format=WRAPPED)).field == "response_format"


@pytest.mark.parametrize("given", [{"json": SCHEMA}, {"json": json.dumps(SCHEMA)}, {"choice": ["s", "m", "l"]}])
def test_structured_outputs_count(given: dict[str, Any]):
    constraint = only(ask(structured_outputs=given))
    assert (constraint.field, as_chat(constraint)) == ("structured_outputs", {"structured_outputs": given})
    assert measured(constraint).shape.alternatives == 3


@pytest.mark.parametrize(
    ("field", "value", "shape"),
    [
        ("guided_json", SCHEMA, (1, 3)),
        ("json_schema", json.dumps(SCHEMA), (1, 3)),
        ("guided_choice", ["a", "b"], (0, 2)),
        ("regex", "[a-z]+", (0, 0)),
        ("ebnf", "root ::= x", (0, 0)),
    ],
)
def test_fields_of_other_engines_count(field: str, value: Any, shape: tuple[int, int]):
    constraint = only(ask(**{field: value}))
    assert (constraint.field, measured(constraint).shape) == (field, shape)


def test_the_field_that_vllm_ignores_is_named():
    assert ignored_field(ask()) is None
    assert ignored_field(ask(structured_outputs={"json": SCHEMA}, guided_json=None)) is None
    assert ignored_field(ask(guided_json=SCHEMA)) == "guided_json"


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": SCHEMA, **more}}


def test_tools_that_may_be_called_constrain_nothing_unless_they_are_strict():
    assert constraints_of(ask(tools=[tool("a")], tool_choice="auto")) == []
    constraint = only(ask(tools=[tool("a"), tool("b", strict=True), tool("c", strict=False)]))
    assert (constraint.field, as_chat(constraint)) == ("tools", {"tools": [tool("b", strict=True)]})
    assert measured(constraint).shape == (1, 3)


def test_tools_that_must_be_called_constrain_the_answer_in_every_api():
    flat = {"type": "function", "name": "a", "parameters": SCHEMA}
    every: dict[str, Any] = {"tools": [tool("a")], "tool_choice": "required"}
    one = {"tools": [tool("a")], "tool_choice": {"type": "function", "function": {"name": "a"}}}
    other = {**flat, "name": "b"}
    anthropic = [{"name": name, "input_schema": SCHEMA} for name in ("a", "b")]
    assert as_chat(only(ask(**every))) == every
    assert as_chat(only(ask(tools=[tool("a"), tool("b")], tool_choice=one["tool_choice"]))) == one
    assert as_chat(only(ask("responses", tools=[flat], tool_choice="required"))) == every
    assert as_chat(only(ask("responses", tools=[flat, other], tool_choice={"type": "function", "name": "a"}))) == one
    assert as_chat(only(ask("messages", tools=anthropic[:1], tool_choice={"type": "any"}))) == every
    assert as_chat(only(ask("messages", tools=anthropic, tool_choice={"type": "tool", "name": "a"}))) == one


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": 3},
        {"response_format": {"type": "json_schema"}},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": 3}}},
        {"response_format": {"type": "structural_tag", "structures": [3, {"schema": SCHEMA}]}},
        {"structured_outputs": {"json": "{"}},
        {"structured_outputs": "x"},
        {"tools": 3, "tool_choice": "required"},
        {"tools": [3, {"function": 3}], "tool_choice": "required"},
        {"tools": [tool("a")], "tool_choice": {"type": "function"}},
    ],
)
def test_what_is_malformed_is_left_to_the_engine(fields: dict[str, Any]):
    for constraint in constraints_of(ask(**fields)):
        check_shape(constraint, measured(constraint).shape, LIMITS)


ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.sampled_from(["function", "json_schema", "required"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                ["type", "function", "name", "schema", "json_schema", "parameters", "input_schema", "strict"]
            ),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=12,
)


@given(
    endpoint=st.sampled_from(("chat", "responses", "messages")),
    fields=st.fixed_dictionaries({}, optional=dict.fromkeys(("tools", "tool_choice", "text", *FORMS), ANYTHING)),
)
def test_whatever_is_sent_is_looked_at_without_an_error(endpoint: Endpoint, fields: dict[str, Any]):
    asked = ask(endpoint, **fields)
    conversation(asked)
    for constraint in constraints_of(asked):
        assert measured(constraint).size_bytes == len(constraint.json)


def test_white_space_makes_no_other_schema_and_the_order_of_properties_does():
    def digest(text: str) -> bytes:
        return measured(Constraint("guided_json", text.encode(), {})).digest

    assert digest('{"a": 1,\n "b": 2}') == digest('{"a":1,"b":2}')
    assert digest('{"b":2,"a":1}') != digest('{"a":1,"b":2}')


def check(constraint: Constraint, limits: SchemaLimits) -> None:
    check_size(constraint, limits)
    check_shape(constraint, measured(constraint).shape, limits)


def refusal(constraint: Constraint, limits: SchemaLimits) -> tuple[str, str]:
    with pytest.raises(NotAdmitted) as refused:
        check(constraint, limits)
    assert refused.value.param == constraint.field
    return refused.value.reason, refused.value.message


def test_what_is_over_a_limit_is_refused_with_both_numbers():
    constraint = only(ask(structured_outputs={"json": SCHEMA}))
    size = len(constraint.json)
    check(constraint, SchemaLimits(size, 1, 3))
    reason, message = refusal(constraint, SchemaLimits(max_bytes=size - 1))
    assert (reason, f"{size} bytes" in message, f"may send {size - 1}" in message) == ("schema_too_large", True, True)
    deep = only(ask(structured_outputs={"json": {"type": "array", "items": SCHEMA}}))
    reason, message = refusal(deep, SchemaLimits(max_depth=1))
    assert (reason, "stand 2 deep" in message, "may go 1 deep" in message) == ("schema_too_deep", True, True)
    reason, message = refusal(constraint, SchemaLimits(max_alternatives=2))
    assert (reason, "3 alternatives" in message, "may have 2" in message) == ("schema_too_broad", True, True)


def test_references_without_end_are_too_deep():
    defs = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(1500)}
    schema = {"$ref": "#/$defs/d0", "$defs": defs}
    reason, message = refusal(only(ask(structured_outputs={"json": schema})), LIMITS)
    assert (reason, "without end" in message) == ("schema_too_deep", True)


@pytest.mark.parametrize("number", ["1e999", "9" * 5_000])
def test_a_number_that_no_reader_takes_is_refused_by_its_field(number: str):
    constraint = Constraint("structured_outputs", b'{"json": {"maximum": %s}}' % number.encode(), {})
    with pytest.raises(NotAdmitted) as refused:
        measured(constraint)
    assert (refused.value.reason, refused.value.param) == ("bad_field", "structured_outputs")
