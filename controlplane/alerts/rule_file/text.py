"""Rule files and their unit tests as YAML: maps, lists and texts, read within bounds."""

from __future__ import annotations

from typing import Any

import yaml

from controlplane.core.yaml_text import YamlForm, as_text

MAX_BYTES = 1 << 20
_NULL = ("", "~", "null", "Null", "NULL")


def _scalar(event: yaml.ScalarEvent) -> str:
    """A text; of what is not set, the empty one."""
    return "" if not event.style and event.value in _NULL else as_text(event)


# Rule files have eight levels, tests of rules ten; and two to spare.
_FORM = YamlForm("rules", MAX_BYTES, max_depth=12, scalar=_scalar, strict=False)


def read_yaml(text: bytes) -> Any:
    """Every scalar is a text. Raises: TooLarge, Malformed (with the line and column)."""
    return _FORM.read(text)
