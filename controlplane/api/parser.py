"""How bodies of REST calls are read."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja.parser import Parser

from controlplane.core.json_text import read_json


class UniqueNames(Parser):
    """JSON in which no object has a name twice."""

    def parse_body(self, request: HttpRequest) -> Any:
        return read_json(request.body)
