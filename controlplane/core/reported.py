"""Texts that targets report: kept for people to read, so made such that any database can hold them."""

from __future__ import annotations

from wire.problems import cut


def reported_text(text: str) -> str:
    """`text` without U+0000, which PostgreSQL cannot hold, and of 500 characters at most, the last then an ellipsis."""
    return storable_text(cut(text))


def storable_text(text: str) -> str:
    """`text` without U+0000, whatever its length."""
    return text.replace("\x00", "\N{REPLACEMENT CHARACTER}")
