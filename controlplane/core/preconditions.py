"""Which state of a row a writer saw: ETag on what is read, If-Match and If-None-Match on what is written.

RFC 9110, 8.8.3 and 13.1. A tag is strong and of the row's public form, so what is observed beside a row (health, what
an engine reports) makes no edit stale.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from django.http import HttpRequest

from controlplane.core.answer_headers import set_answer_header
from controlplane.core.errors import Malformed, PreconditionFailed
from wire.canonical import Document
from wire.problems import Problem, pointer

# The row's public form as it stands, None where there is none yet. Raises NotFound where there must be one.
Current = Callable[[], Document | None]

_ANY = "*"
_TAG = r'"[\x21\x23-\x7e]*"'
_LIST_OF_TAGS = rf"{_TAG}(?:[ \t]*,[ \t]*{_TAG})*"
_TAGS = re.compile(_LIST_OF_TAGS)
_WEAK = re.compile(r'(?:^|,)[ \t]*W/"')
HEADER_MAX_CHARACTERS = 2000
# `openapi_extra` of an act on one row that compares it. Edits (PATCH, PUT, DELETE) all do, and need not say so.
IF_MATCH: dict[str, Any] = {
    "parameters": [
        {
            "name": "If-Match",
            "in": "header",
            "description": "ETags of the row, or `*`: write only while one of them is current, 412 `stale` otherwise.",
            "schema": {"type": "string", "pattern": rf"^(?:\*|{_LIST_OF_TAGS})$"},
        }
    ]
}
# `openapi_extra` of a call that creates a row under a name that its caller gives.
IF_NONE_MATCH: dict[str, Any] = {
    "parameters": [
        {
            "name": "If-None-Match",
            "in": "header",
            "description": "`*`: only where there is none of this name yet; 412 `exists` with its ETag otherwise.",
            "schema": {"type": "string", "const": _ANY},
        }
    ]
}
# 128 bits of SHA-256: two states of one row never share it.
_TAG_HEX_DIGITS = 32


def entity_tag(document: Document) -> str:
    """The strong ETag of a row's public form, quotes included."""
    content = msgspec.json.encode(document, order="sorted")
    return f'"{hashlib.sha256(content).hexdigest()[:_TAG_HEX_DIGITS]}"'


def tagged(request: HttpRequest, row: Document, shown: Document | None = None) -> Document:
    """What a read of one row answers, with its ETag: the public form, or `shown` where the answer says more."""
    set_answer_header(request, "ETag", entity_tag(row))
    return row if shown is None else shown


@dataclass(frozen=True)
class Preconditions:
    """What a write says of the row that it expects. `if_match`: the tags it takes; empty where it did not say."""

    if_match: frozenset[str]
    if_none_match: bool

    @staticmethod
    def of(request: HttpRequest) -> Preconditions:
        """Raises Malformed for a header that is neither * nor strong tags, or an If-None-Match other than *."""
        if_match = request.headers.get("if-match")
        if_none_match = request.headers.get("if-none-match")
        if if_none_match is not None and if_none_match.strip() != _ANY:
            raise _malformed("If-None-Match", "any", "send If-None-Match: * on a write, or leave it out")
        return Preconditions(frozenset() if if_match is None else _tags(if_match), if_none_match is not None)

    def check(self, current: Current | None) -> None:
        """Compare with the row, inside the unit of work. Raises PreconditionFailed; NotFound from `current`.

        A call without a row of its own (`current` None) refuses preconditions: ignored, they would protect nothing.
        """
        if not self.if_match and not self.if_none_match:
            return
        if current is None:
            header = "If-Match" if self.if_match else "If-None-Match"
            raise _malformed(header, "not_served", f"this call compares no row; leave {header} out")
        row = current()
        tag = None if row is None else entity_tag(row)
        if self.if_match and tag not in self.if_match and (tag is None or _ANY not in self.if_match):
            raise _stale(tag)
        if self.if_none_match and tag is not None:
            says = f"it exists already, with the ETag {tag}; choose another name, or change it with If-Match"
            raise PreconditionFailed(says, [Problem("/If-None-Match", "exists", says)], code="exists", etag=tag)


def _stale(tag: str | None) -> PreconditionFailed:
    if tag is None:
        says = "there is nothing yet that If-Match could match; leave it out to create"
    else:
        says = f"it changed since it was read and its ETag is {tag} now; read it again and decide anew"
    return PreconditionFailed(says, [Problem("/If-Match", "stale", says)], code="stale", etag=tag)


def _tags(header: str) -> frozenset[str]:
    header = header.strip()
    if header == _ANY:
        return frozenset({_ANY})
    if _WEAK.search(header):
        raise _malformed("If-Match", "weak", "a weak tag (W/…) never matches here; send the ETag as it was answered")
    if len(header) > HEADER_MAX_CHARACTERS or not _TAGS.fullmatch(header):
        raise _malformed(
            "If-Match",
            "entity_tag",
            f"send * or ETags in double quotes, separated by commas, {HEADER_MAX_CHARACTERS} characters at most",
        )
    return frozenset(re.findall(_TAG, header))


def _malformed(header: str, rule: str, says: str) -> Malformed:
    return Malformed(says, [Problem(pointer("", header), rule, says)])
