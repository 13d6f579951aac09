"""Keeping secrets out of what is shown of an attempt: some services answer with what they were sent. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, unquote, urlsplit

HIDDEN = "[hidden]"
# Shorter texts are found in everything, and give little away.
_SHORTEST = 6


def redacted(text: str, clues: Iterable[str]) -> str:
    """The text without these, nor the parts of those that are URLs, however they are written in it."""
    forms = {form for clue in clues for part in _parts(clue) for form in _forms(part) if len(form) >= _SHORTEST}
    if not forms:
        return text
    # The longest first: a part of a URL must not leave the rest of it behind.
    pattern = "|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True))
    return re.sub(pattern, HIDDEN, text)


def longest(clues: Iterable[str]) -> int:
    """Characters that a text's end may hold of a secret whose rest was cut off."""
    return max((len(form) for clue in clues for part in _parts(clue) for form in _forms(part)), default=0)


def _parts(clue: str) -> Iterator[str]:
    yield clue
    _, separator, rest = clue.partition("://")
    if not separator:
        return
    yield rest
    try:
        parts = urlsplit(clue)
        yield from filter(None, (parts.username, parts.password))
    except ValueError:
        return
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    yield path
    yield from re.split(r"[/?&=]", path)
    if parts.scheme not in ("http", "https"):
        # Of an Apprise URL the host is often a token.
        yield parts.netloc


def _forms(part: str) -> set[str]:
    return {part, unquote(part), quote(part, safe=""), quote(part), part.replace("/", "\\/"), json.dumps(part)[1:-1]}
