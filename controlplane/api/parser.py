"""How bodies of REST calls are read."""

from __future__ import annotations

import json
from typing import Any

from django.http import HttpRequest
from ninja.parser import Parser

from controlplane.core.errors import Malformed

_SHOWN_CHARACTERS = 100


class UniqueNames(Parser):
    """JSON in which no object has a name twice: readers differ in which of the two values counts."""

    def parse_body(self, request: HttpRequest) -> Any:
        return json.loads(request.body, object_pairs_hook=_object)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, value in pairs:
        if name in made:
            raise Malformed(f"the body has {name[:_SHOWN_CHARACTERS]!r} twice in one object; give each name once")
        made[name] = value
    return made
