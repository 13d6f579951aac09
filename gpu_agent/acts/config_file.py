"""The YAML file that vLLM's `--config` names: some of its arguments changed, everything else kept as it stands.

Without a YAML library: what is written is JSON, which YAML includes, and what is kept is kept line by line. A file
whose lines cannot be told apart is refused.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gpu_agent.acts.outcome import NotDone, refused
from wire.files import read_bounded, write_whole

LIMIT_BYTES = 64 << 10
_ENTRY = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]*)[ \t]*:(?:[ \t]+(.*))?")
_CLOSING = {'"': '"', "'": "'", "[": "]", "{": "}"}
Value = str | int | bool


def with_arguments(text: str, arguments: Mapping[str, Value]) -> tuple[str, dict[str, str]]:
    """The file's new text, and what it said before of the arguments that it named. Raises: NotDone."""
    blocks = _blocks(text)
    lines: list[str] = []
    before: dict[str, str] = {}
    for key, block in blocks:
        if key not in arguments:
            lines += block
            continue
        before[key] = " ".join(" ".join(block).partition(":")[2].split())
        lines.append(_line(key, arguments[key]))
    lines += [_line(key, value) for key, value in arguments.items() if key not in before]
    return "\n".join(lines) + "\n", before


def _line(key: str, value: Value) -> str:
    return f"{key}: {msgspec.json.encode(value).decode()}"


def _blocks(text: str) -> list[tuple[str, list[str]]]:
    """The lines of each argument, under its name as the command line has it; under no name those of none."""
    blocks: list[tuple[str, list[str]]] = []
    keys: set[str] = set()
    lines = text.removesuffix("\n").split("\n") if text else []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#") or (line.rstrip() == "---" and not keys):
            blocks.append(("", [line]))
        elif line[0] in " \t" or line.startswith("- "):
            # Whatever is indented, and the items of a list, belongs to the argument above.
            if not keys:
                raise _refused(number, "it belongs to no argument")
            _last_named(blocks).append(line)
        else:
            key = _key(number, line)
            if key in keys:
                raise _refused(number, f"{key} stands there twice")
            keys.add(key)
            blocks.append((key, [line]))
    return blocks


def _last_named(blocks: list[tuple[str, list[str]]]) -> list[str]:
    """Lines between an argument and its continuation become part of it."""
    while not blocks[-1][0]:
        _, between = blocks.pop()
        blocks[-1][1].extend(between)
    return blocks[-1][1]


def _key(number: int, line: str) -> str:
    match = _ENTRY.fullmatch(line.rstrip())
    if match is None:
        raise _refused(number, "it is not `argument: value`")
    value = match[2] or ""
    closing = _CLOSING.get(value[:1])
    if closing and (len(value) < 2 or closing not in value[1:]):
        raise _refused(number, "its value goes on in the next line")
    if value[:1] in ("&", "*", "!"):
        raise _refused(number, "anchors and tags are not read")
    return match[1].replace("_", "-")


def _refused(number: int, why: str) -> NotDone:
    return refused("config_file", f"line {number} of the configuration file cannot be kept as it is: {why}")


def read_config(file: str) -> str:
    """Raises: NotDone."""
    try:
        return read_bounded(Path(file), LIMIT_BYTES).decode()
    except (OSError, ValueError) as error:
        raise refused("config_file", f"the configuration file cannot be read: {error}") from error


def write_config(file: str, text: str) -> None:
    """Replace it whole; mode, owner and a link to it stay. Raises: NotDone, the old file is untouched then."""
    try:
        path = Path(file).resolve(strict=True)
        found = path.stat()
        write_whole(path, text.encode(), mode=stat.S_IMODE(found.st_mode), owner=(found.st_uid, found.st_gid))
    except (OSError, RuntimeError) as error:
        raise refused("config_file", f"{file} cannot be written with its owner and mode: {error}") from error
