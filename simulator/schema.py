"""Answers that obey a JSON schema, for `response_format`: the part of JSON Schema that clients' structs come to.

What is not simulated is refused, never ignored.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

_MAX_DEPTH = 16
_MAX_ITEMS = 64
_Example = Callable[[dict[str, Any], random.Random, int], Any]
# Keywords that say nothing of a value's form.
_NOTES = frozenset({"title", "description", "default", "$schema", "additionalProperties", "type"})


class SchemaNotSimulated(ValueError):
    """The message says what of the schema is not."""


def obeying_text(schema: dict[str, Any], rng: random.Random) -> str:
    """A JSON text in ASCII that obeys the schema, without white space between its parts.

    Raises: SchemaNotSimulated.
    """
    return json.dumps(_example(schema, rng, 0), separators=(",", ":"))


def _example(schema: Any, rng: random.Random, depth: int) -> Any:
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        raise SchemaNotSimulated(f"a schema is an object, at most {_MAX_DEPTH} deep")
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        if not isinstance(schema["enum"], list) or not schema["enum"]:
            raise SchemaNotSimulated("enum is a list of at least one value")
        return rng.choice(schema["enum"])
    kind = schema.get("type")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise SchemaNotSimulated(f"type is one of {', '.join(_KINDS)}")
    known, example = _KINDS[kind]
    if unknown := sorted(schema.keys() - known - _NOTES):
        raise SchemaNotSimulated(f"{', '.join(unknown)} of type {kind} is not simulated")
    return example(schema, rng, depth)


def _object(schema: dict[str, Any], rng: random.Random, depth: int) -> dict[str, Any]:
    properties = schema.get("properties", {})
    if not isinstance(properties, dict) or not set(schema.get("required", ())) <= properties.keys():
        raise SchemaNotSimulated("properties is an object that has all that is required")
    return {name: _example(each, rng, depth + 1) for name, each in properties.items()}


def _array(schema: dict[str, Any], rng: random.Random, depth: int) -> list[Any]:
    least, most = _bounds(schema, "minItems", "maxItems", 0, _MAX_ITEMS)
    return [_example(schema.get("items"), rng, depth + 1) for _ in range(min(max(least, 1), most))]


def _integer(schema: dict[str, Any], rng: random.Random, depth: int) -> int:
    return rng.randint(*_bounds(schema, "minimum", "maximum", -(2**53), 2**53))


def _bounds(schema: dict[str, Any], low: str, high: str, least: int, most: int) -> tuple[int, int]:
    """The two bounds as they are given; one that is not given lies near the other."""
    given = {name: schema[name] for name in (low, high) if name in schema}
    if any(type(value) is not int or not least <= value <= most for value in given.values()):
        raise SchemaNotSimulated(f"{low} and {high} are whole numbers from {least} to {most}")
    lower = given.get(low, min(0, given.get(high, 0)))
    upper = given.get(high, lower + 100)
    if lower > upper:
        raise SchemaNotSimulated(f"{low} is at most {high}")
    return lower, min(upper, most)


_KINDS: dict[str, tuple[frozenset[str], _Example]] = {
    "object": (frozenset({"properties", "required"}), _object),
    "array": (frozenset({"items", "minItems", "maxItems"}), _array),
    "integer": (frozenset({"minimum", "maximum"}), _integer),
    "number": (frozenset({"minimum", "maximum"}), _integer),
    "boolean": (frozenset(), lambda schema, rng, depth: rng.random() < 0.5),
    "string": (frozenset(), lambda schema, rng, depth: rng.choice(("north", "south", "east", "west"))),
    "null": (frozenset(), lambda schema, rng, depth: None),
}
