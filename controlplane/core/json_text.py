"""JSON as callers send it."""

from __future__ import annotations

import json
from typing import Any

from controlplane.core.errors import Malformed

_SHOWN_CHARACTERS = 100


def read_json(text: bytes) -> Any:
    """A document in which no object has a name twice: readers differ in which of the two values counts.

    Raises Malformed for a name that is there twice, ValueError or RecursionError for what is no JSON.
    """
    return json.loads(text, object_pairs_hook=_object)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, value in pairs:
        if name in made:
            raise Malformed(f"the body has {name[:_SHOWN_CHARACTERS]!r} twice in one object; give each name once")
        made[name] = value
    return made
