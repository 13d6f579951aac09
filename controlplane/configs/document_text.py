"""The document as the text that is kept: YAML or JSON, read within bounds."""

from __future__ import annotations

from typing import Any

from controlplane import settings_rows as rows
from controlplane.core.errors import TooLarge
from controlplane.core.json_text import not_json, read_json
from controlplane.core.yaml_text import YamlForm

# The document, a section, an entry, a schedule, its hours, their days, and two to spare.
_MAX_DEPTH = 8


def read_document(text: bytes, *, json: bool) -> Any:
    """Raises TooLarge, or Malformed: neither form takes a name twice, and YAML neither tags nor anchors."""
    most = rows.BODY_MAX_BYTES.read()
    if len(text) > most:
        raise TooLarge(f"a configuration may have at most {most} bytes (HEADWORKS_BODY_MAX_BYTES)")
    if not json:
        return YamlForm("configurations", most, _MAX_DEPTH).read(text)
    try:
        return read_json(text)
    except (ValueError, RecursionError) as error:
        raise not_json() from error
