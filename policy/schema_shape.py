"""How much work a JSON schema is for the engine that compiles it into a grammar. Source: seed 1, section 17."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

# Keywords whose value is a schema, a list of schemas, or schemas by name.
_ONE = ("additionalProperties", "additionalItems", "items", "contains", "not", "if", "then", "else", "propertyNames")
_SEVERAL = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_NAMED = ("properties", "patternProperties", "dependentSchemas")
_CONTAINERS = frozenset({"object", "array"})
_OF_CONTAINERS = frozenset({"properties", "patternProperties", "additionalProperties", "items", "prefixItems"})
_CHOICES = ("anyOf", "oneOf", "enum")
# The depth of references that lead on and on.
ENDLESS = 1_000_000


class Shape(NamedTuple):
    """`depth`: of objects and arrays within each other; `alternatives`: the most of one anyOf, oneOf or enum."""

    depth: int
    alternatives: int


def shape_of(schema: Any) -> Shape:
    """The shape of a schema as it was decoded.

    A reference counts as what it refers to. One that leads back to where it stands makes the grammar no deeper.
    """
    walk = _Walk(schema)
    try:
        return Shape(walk.depth(schema), walk.alternatives)
    except RecursionError:
        return Shape(ENDLESS, walk.alternatives)


class _Walk:
    def __init__(self, root: Any) -> None:
        self.alternatives = 0
        self._root = root
        # By identity, since one place can be referred to in any number of spellings; 0 while it is being looked at.
        self._depths: dict[int, int] = {}

    def depth(self, schema: Any) -> int:
        if not isinstance(schema, dict):
            return 0
        known = self._depths.get(id(schema))
        if known is None:
            self._depths[id(schema)] = 0
            known = self._depths[id(schema)] = self._depth_of(schema)
        return known

    def _depth_of(self, schema: dict[str, Any]) -> int:
        for keyword in _CHOICES:
            if isinstance(choices := schema.get(keyword), list):
                self.alternatives = max(self.alternatives, len(choices))
        deepest = max(map(self.depth, _within(schema)), default=0)
        if isinstance(reference := schema.get("$ref"), str):
            deepest = max(deepest, self.depth(_at(self._root, reference)))
        return deepest + _is_container(schema)


def _within(schema: dict[str, Any]) -> Iterator[Any]:
    for keyword in _ONE:
        yield schema.get(keyword)
    for keyword in _SEVERAL:
        if isinstance(several := schema.get(keyword), list):
            yield from several
    for keyword in _NAMED:
        if isinstance(named := schema.get(keyword), dict):
            yield from named.values()


def _is_container(schema: dict[str, Any]) -> bool:
    types = schema.get("type")
    if isinstance(types, list):
        return not _CONTAINERS.isdisjoint(filter(lambda each: isinstance(each, str), types))
    return types in _CONTAINERS if isinstance(types, str) else not _OF_CONTAINERS.isdisjoint(schema)


def _at(root: Any, reference: str) -> Any:
    """What a JSON pointer within the document leads to; None for any other reference, which no engine follows."""
    found = root if reference.startswith("#") else None
    for part in reference[1:].split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, dict) else None
    return found
