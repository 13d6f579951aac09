"""`--config FILE` of a simulated engine: the flat part of the YAML that vLLM's takes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

_LINE = re.compile(r"([A-Za-z][A-Za-z0-9_-]*):[ \t]+(.*\S)")


def insert_config(arguments: Sequence[str]) -> list[str]:
    """The arguments with those of the file that `--config` names before them, so that the command line wins.

    Raises: OSError, or ValueError that says what is wrong in the file.
    """
    given = list(arguments)
    if "--config" not in given[:-1]:
        return given
    file = Path(given[given.index("--config") + 1])
    if file.suffix not in (".yaml", ".yml"):
        raise ValueError(f"{file} must be a .yaml or .yml file")
    return [*_options(file.read_text()), *given]


def _options(text: str) -> list[str]:
    found: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith(("#", "---")):
            continue
        match = _LINE.fullmatch(line.rstrip())
        if match is None:
            raise ValueError(f"line {number} is not `option: value`; this simulated engine reads no other YAML")
        option, value = "--" + match[1].replace("_", "-"), _scalar(match[2])
        if isinstance(value, bool):
            found += [option] if value else []
        else:
            found += [option, *(map(str, value) if isinstance(value, list) else [str(value)])]
    return found


def _scalar(text: str) -> object:
    """A JSON value; text without quotes is itself."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text.strip("'")
