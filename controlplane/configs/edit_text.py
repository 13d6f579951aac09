"""What an edit changes, for people to read: a unified diff of each entry's YAML."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping

from controlplane.configs.edits import Edit
from controlplane.configs.ordering import in_order
from controlplane.configs.removals import keys_in_words
from controlplane.core.yaml_text import write_yaml
from wire.canonical import Document

_NOTHING = "/dev/null"


def diff_text(edit: Edit, keys: Mapping[str, int], max_characters: int | None = None) -> str:
    """The diff, entries in the order in which they are written; a removed tenant says how many `keys` go with it.

    Beyond `max_characters` the entries that are left are counted.
    """
    parts: list[str] = []
    size, left = 0, sum(map(len, edit.entries.values()))
    for part in _parts(edit, keys):
        size += len(part)
        if max_characters is not None and size > max_characters:
            parts.append(f"… {left} more entries differ\n" if left > 1 else "… 1 more entry differs\n")
            break
        parts.append(part)
        left -= 1
    return "".join(parts)


def _parts(edit: Edit, keys: Mapping[str, int]) -> Iterator[str]:
    for section, key, entry in in_order(edit.entries):
        before, place = edit.before[section.name].get(key), f"{section.name}/{key}"
        lines = difflib.unified_diff(
            _lines(key, before),
            _lines(key, entry),
            place if before is not None else _NOTHING,
            place if entry is not None else _NOTHING,
        )
        text = "".join(lines)
        if entry is None and section.name == "tenants" and key in keys:
            text += f"# with it: {keys_in_words(keys[key])}\n"
        yield text


def _lines(key: str, entry: Document | None) -> list[str]:
    return [] if entry is None else write_yaml({key: entry}).splitlines(keepends=True)
