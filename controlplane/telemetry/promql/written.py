"""Parts of PromQL as this program writes it. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection


def one_of(values: Collection[str]) -> str:
    """What stands behind `=~` for a label that is one of these."""
    return json.dumps("|".join(re.escape(value) for value in sorted(values)), ensure_ascii=False)
