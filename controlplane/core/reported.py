"""Texts that targets report: kept for people to read, so made such that any database can hold them."""

from __future__ import annotations

import re

from wire.problems import cut

# PostgreSQL cannot hold U+0000, and no database half of a surrogate pair, which JSON can carry and UTF-8 cannot.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def reported_text(text: str) -> str:
    """`text` as any database can hold it, and of 500 characters at most, the last then an ellipsis."""
    return storable_text(cut(text))


def one_line(text: str) -> str:
    """`text` as a reason of a write may be: one line of 500 characters at most, without control characters."""
    return cut(" ".join("".join(each if each.isprintable() else " " for each in text).split()))


def storable_text(text: str) -> str:
    """`text` as any database can hold it, whatever its length."""
    return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text)
