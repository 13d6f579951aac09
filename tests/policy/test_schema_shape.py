from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.schema_shape import ENDLESS, Shape, shape_of

TEXT = {"type": "string"}


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = TEXT
    for level in range(depth):
        schema = {"type": "array", "items": schema} if level % 2 else {"type": "object", "properties": {"a": schema}}
    return schema


@pytest.mark.parametrize("depth", [0, 1, 2, 7, 60])
def test_depth_is_of_objects_and_arrays_within_each_other(depth: int):
    assert shape_of(nested(depth)) == Shape(depth, 0)


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [TEXT, nested(3)]},
        {"allOf": [nested(2), {"$ref": "#/$defs/a"}], "$defs": {"a": nested(3)}},
        {"type": ["object", "null"], "additionalProperties": nested(2)},
        {"prefixItems": [TEXT, nested(2)]},
        {"items": [nested(2)]},
        {"patternProperties": {"^a": nested(2)}},
        {"if": {}, "then": nested(3), "else": nested(1)},
        {"type": "object", "properties": {"a~b/c": {"$ref": "#/properties/d"}, "d": nested(2)}},
        {"type": "array", "items": {"$ref": "#/$defs/a~1b~0"}, "$defs": {"a/b~": nested(2)}},
    ],
)
def test_every_way_to_nest_counts(schema: dict[str, Any]):
    assert shape_of(schema).depth == 3


def test_the_most_alternatives_of_one_place_count():
    schema = {
        "type": "object",
        "properties": {"a": {"enum": list(range(30))}, "b": {"oneOf": [TEXT] * 5}, "c": {"anyOf": [TEXT] * 31}},
    }
    assert shape_of(schema) == Shape(1, 31)
    assert shape_of({"$ref": "#/$defs/x", "$defs": {"x": {"enum": [1, 2]}}}).alternatives == 2


def test_a_schema_that_contains_itself_is_as_deep_as_it_is_written():
    tree = {"type": "object", "properties": {"left": {"$ref": "#"}, "more": {"type": "array", "items": {"$ref": "#"}}}}
    assert shape_of(tree).depth == 2


def test_references_that_fan_out_are_followed_once_each():
    defs: dict[str, Any] = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 9} for n in range(60)}
    defs["d60"] = nested(2)
    assert shape_of({"$ref": "#/$defs/d0", "$defs": defs}) == Shape(2, 9)


def test_a_place_is_looked_at_once_however_references_to_it_are_spelled():
    visits = 0

    class Counted(dict[str, Any]):
        def get(self, key: str, default: Any = None) -> Any:
            nonlocal visits
            visits += 1
            return super().get(key, default)

    broad = Counted({"properties": {str(n): TEXT for n in range(9)}})
    schema = {"b": broad, "anyOf": [{"$ref": f"#{n}/b"} for n in range(99)]}
    assert shape_of(schema) == Shape(1, 99)
    once = visits
    shape_of({"b": broad, "anyOf": [{"$ref": "#/b"}]})
    assert once == visits - once


def test_references_that_lead_on_and_on_are_not_followed_to_their_end():
    defs = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(5000)}
    assert shape_of({"$ref": "#/$defs/d0", "$defs": defs}).depth == ENDLESS


ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5), st.sampled_from(["#", "#/a", "#/a/b"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.sampled_from(["type", "items", "properties", "anyOf", "enum", "$ref", "not", "a", "b"]),
            inner,
            max_size=5,
        ),
    ),
)


@given(ANYTHING)
def test_whatever_is_no_schema_has_a_shape(document: Any):
    shape = shape_of(document)
    assert shape.depth >= 0
    assert shape_of({"type": "object", "properties": {"x": document}}).depth >= 1
