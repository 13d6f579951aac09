"""One regular expression for many names of metrics, tried letter by letter and not name by name. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

_Node = dict[str, "_Node"]
_END, _ANYTHING = "", "*"
_NAME_LETTERS = rb"[a-zA-Z0-9_:]*+"


def any_of(names: Iterable[str]) -> bytes:
    """Matches each of the names, and whatever name begins with one that ends in *."""
    root: _Node = {}
    for name in names:
        node = root
        for letter in name:
            node = node.setdefault(letter, {})
        node[_END] = {}
    return _pattern(root)


def _pattern(node: _Node) -> bytes:
    if _ANYTHING in node:
        return _NAME_LETTERS
    branches = [re.escape(letter).encode() + _pattern(after) for letter, after in node.items() if letter != _END]
    if not branches:
        return b""
    one = branches[0] if len(branches) == 1 and _END not in node else b"(?:" + b"|".join(branches) + b")"
    return one + b"?" if _END in node else one
