"""JSON as callers send it."""

from __future__ import annotations

import json
from typing import Any

from controlplane.core.errors import Malformed
from wire.problems import Problem

_SHOWN_CHARACTERS = 100


def not_json(why: object = "") -> Malformed:
    """How a body that is no JSON is refused."""
    says = f"the body is not JSON: {why}" if why else "the body is not JSON"
    return Malformed(says, [Problem("/", "json", "send one JSON document")])


def read_json(text: bytes) -> Any:
    """A document in which no object has a name twice: readers differ in which of the two values counts.

    Raises Malformed for a name that is there twice, ValueError or RecursionError for what is no JSON.
    """
    return json.loads(text, object_pairs_hook=_object)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, value in pairs:
        if name in made:
            says = f"the body has {name[:_SHOWN_CHARACTERS]!r} twice in one object; give each name once"
            raise Malformed(says, [Problem("/", "unique", says)])
        made[name] = value
    return made
