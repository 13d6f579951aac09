"""What of an engine's model files decides its prompts: SHA-256 of its tokenizer and of its chat template.

The digests are those of the files that an operator uploads as artifacts, so that both can be compared. Belongs into a
thread: a network disk may not answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

TOKENIZER, CHAT_TEMPLATE = "tokenizer", "chat_template"
# Larger than any; what is more is no such file.
_BYTES_MAX = 64 * 2**20


class _Config(msgspec.Struct):
    chat_template: Any = None


def model_digests(path: Path) -> dict[str, str]:
    """By what each is of. What is not there, or not of that form, is left out. Raises: OSError."""
    if not path.is_dir():
        return {}
    found = {TOKENIZER: _content(path / "tokenizer.json"), CHAT_TEMPLATE: _template(path)}
    return {of: hashlib.sha256(content).hexdigest() for of, content in found.items() if content is not None}


def of_start(digests: Mapping[str, str], arguments: Mapping[str, str]) -> dict[str, str]:
    """Those that hold of an engine that was started so: it may have been given a tokenizer or a template of its own."""
    return {of: digest for of, digest in digests.items() if not arguments.get(of)}


def _template(folder: Path) -> bytes | None:
    content = _content(folder / "chat_template.jinja")
    if content is not None:
        return content
    config = _content(folder / "tokenizer_config.json")
    try:
        template = msgspec.json.decode(config, type=_Config).chat_template if config is not None else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    # Of a list of named ones none is surely the one that is used.
    return template.encode() if isinstance(template, str) else None


def _content(file: Path) -> bytes | None:
    try:
        with file.open("rb") as opened:
            content = opened.read(_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    return content if len(content) <= _BYTES_MAX else None
