"""JSON that a person types into a form."""

from __future__ import annotations

import json
from typing import Any

from controlplane.core.errors import Refused
from wire.problems import Problem


def read_body(text: str) -> Any:
    """Raises Refused, which says the line and the column, where it is no JSON."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        says = f"line {error.lineno}, column {error.colno}: {error.msg}"
    except (ValueError, RecursionError) as error:
        says = str(error)
    raise Refused(says, [Problem("/body", "json", says)])
