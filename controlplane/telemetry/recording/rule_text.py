"""Rule files of Prometheus as people write them: YAML of maps, lists and texts, read within bounds.

All scalars are texts, as every field of a recording rule is.
"""

from __future__ import annotations

from typing import Any

from controlplane.core.yaml_text import YamlForm, as_text, write_yaml

MAX_BYTES = 128 << 10
# Eight levels: the document, its groups, a group, its rules, a rule, its labels, and two to spare.
_RULES = YamlForm("rules", MAX_BYTES, max_depth=8, scalar=as_text, strict=False)

write_rules = write_yaml


def read_rules(text: bytes) -> Any:
    """Raises: TooLarge, Malformed (with the line and column)."""
    return _RULES.read(text)
