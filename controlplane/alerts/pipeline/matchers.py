"""Matchers as Alertmanager writes them: `severity="critical"`, `pool=~"chat-.*"`, `tenant!=""`. Pure.

A label that an alert does not have is an empty one. Regular expressions are RE2's and match whole values.
Source: prometheus.io/docs/alerting/latest/configuration, `matcher`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

from controlplane.telemetry.patterns import BadPattern, Pattern, pattern

Operator = Literal["=", "!=", "=~", "!~"]
TEXT_MAX_CHARACTERS = 1000
_FORM = 'give label="value", label!="value", label=~"regex" or label!~"regex"'
_PARTS = re.compile(r"\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*(.*?)\s*", re.DOTALL)
# Alertmanager takes a value without quotes, too, where it has none of these.
_BARE = re.compile(r"[^\s\"'{},=!~\\`]*")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_ESCAPE, _ESCAPES = re.compile(r"\\(.)", re.DOTALL), {"n": "\n", '"': '"', "\\": "\\"}
_CACHED = 4096


class BadMatcher(ValueError):
    """A text that is no matcher; the message says what would be right."""


@dataclass(frozen=True)
class Matcher:
    """`pattern` is there for the two operators that have a regular expression."""

    label: str
    operator: Operator
    value: str
    pattern: Pattern | None = None

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.label, "")
        same = value == self.value if self.pattern is None else self.pattern.matches(value)
        return same == (self.operator in ("=", "=~"))

    def __str__(self) -> str:
        escaped = self.value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        return f'{self.label}{self.operator}"{escaped}"'


@lru_cache(_CACHED)
def matcher(text: str) -> Matcher:
    """Read one. Raises BadMatcher."""
    if len(text) > TEXT_MAX_CHARACTERS:
        raise BadMatcher(f"a matcher may have {TEXT_MAX_CHARACTERS} characters")
    parts = _PARTS.fullmatch(text)
    if parts is None:
        raise BadMatcher(f"{text!r} is no matcher: {_FORM}")
    label, operator, written = parts.groups()
    value = _value(text, written)
    known: Operator = next(each for each in get_args(Operator) if each == operator)
    try:
        return Matcher(label, known, value, pattern(value) if known in ("=~", "!~") else None)
    except BadPattern as error:
        raise BadMatcher(f"{text!r}: {error}") from error


def _value(text: str, written: str) -> str:
    if _BARE.fullmatch(written):
        return written
    if not _QUOTED.fullmatch(written):
        raise BadMatcher(
            f'the value of {text!r} cannot be read: quote it, as in label="value", with \\" and \\\\ inside'
        )
    # As Alertmanager reads it: what is no escape is kept, so that "\\d" is a regular expression.
    return _ESCAPE.sub(lambda found: _ESCAPES.get(found[1], found[0]), written[1:-1])


def read(texts: Iterable[str]) -> tuple[Matcher, ...]:
    """Raises BadMatcher for the first that is none."""
    return tuple(matcher(text) for text in texts)


def all_match(matchers: Iterable[Matcher], labels: Mapping[str, str]) -> bool:
    return all(each.matches(labels) for each in matchers)
