"""Regular expressions by RE2 itself: what Go reads alike is read, the rest is refused by name.

Python's own engine reads some expressions otherwise, and takes exponential time for others.
Source: https://github.com/google/re2/wiki/Syntax
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import re2

_MAX_CHARACTERS = 16_384
# Go refuses more than some 1,000.
_MAX_DEPTH = 500
# Of one expression once it is compiled.
_MAX_BYTES = 10 << 20
_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.max_mem = _MAX_BYTES
# RE2 takes both, and Go refuses them: one byte, and a second group of one name.
_ANY_BYTE = re.compile(r"(?<!\\)(?:\\\\)*\\C")
_GROUP_NAME = re.compile(r"\(\?P?<([0-9A-Za-z_]+)>")


class BadPattern(ValueError):
    """An expression that cannot be used; the message says why."""


@dataclass(frozen=True)
class Pattern:
    """Matches whole values; `names` of the groups from 1 on, empty for those without."""

    compiled: Any
    names: tuple[str, ...]

    def matches(self, value: str) -> bool:
        return self.compiled.fullmatch(value) is not None

    def groups(self, value: str) -> tuple[str, ...] | None:
        """The value and what its groups matched; None where it does not match."""
        found = self.compiled.fullmatch(value)
        return None if found is None else (value, *(group or "" for group in found.groups()))


def pattern(text: str) -> Pattern:
    """Raises BadPattern."""
    if len(text) > _MAX_CHARACTERS:
        raise BadPattern(f"a regular expression may have {_MAX_CHARACTERS} characters")
    if _ANY_BYTE.search(text):
        raise BadPattern(f"the regular expression {text!r} cannot be used: \\C is not supported")
    depths = accumulate((char == "(") - (char == ")") for char in text)
    if max(depths, default=0) > _MAX_DEPTH:
        raise BadPattern(f"a regular expression may have groups nested {_MAX_DEPTH} deep")
    twice = [name for name, count in Counter(_GROUP_NAME.findall(text)).items() if count > 1]
    if twice:
        raise BadPattern(f"the regular expression {text!r} cannot be used: two groups are named {twice[0]}")
    try:
        # As Prometheus has it: a dot matches a line end, too.
        compiled = re2.compile(f"^(?s:{text})$", _OPTIONS)
    except re2.error as error:
        (reason,) = error.args
        said = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise BadPattern(f"the regular expression {text!r} cannot be used: {said}") from error
    by_place = {place: name for name, place in compiled.groupindex.items()}
    return Pattern(compiled, tuple(by_place.get(place, "") for place in range(1, compiled.groups + 1)))
