"""Label matchers, and which series of the store they choose."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import numpy as np

from controlplane.telemetry.patterns import BadPattern, Pattern, pattern
from controlplane.telemetry.store.columns import Ints

Counted = Callable[[int], None]


class BadMatcher(ValueError):
    """A matcher that cannot be used, such as a regular expression with an error in it."""


class Operator(Enum):
    EQUAL = "="
    NOT_EQUAL = "!="
    MATCHES = "=~"
    MATCHES_NOT = "!~"


@dataclass(frozen=True)
class Matcher:
    """One condition on a label; a label that a series lacks counts as empty. Raises BadMatcher."""

    name: str
    operator: Operator
    value: str

    def __post_init__(self) -> None:
        if self.operator in (Operator.MATCHES, Operator.MATCHES_NOT):
            self.holds("")

    @cached_property
    def _pattern(self) -> Pattern:
        try:
            return pattern(self.value)
        except BadPattern as error:
            raise BadMatcher(str(error)) from error

    def holds(self, value: str) -> bool:
        match self.operator:
            case Operator.EQUAL:
                return value == self.value
            case Operator.NOT_EQUAL:
                return value != self.value
            case Operator.MATCHES:
                return self._pattern.matches(value)
            case Operator.MATCHES_NOT:
                return not self._pattern.matches(value)


def matching_series(connection: sqlite3.Connection, matchers: Sequence[Matcher], counted: Counted) -> Ints:
    """Ids of the series that every matcher holds for, ascending.

    `counted` is called before each value that is tried, since a hostile regular expression takes some 50 ms for one; it
    may raise to end the search.
    """

    def holding(matcher: Matcher, values: Iterable[str]) -> Iterator[tuple[str, bool]]:
        for value in values:
            counted(0)
            yield value, matcher.holds(value)

    chosen: Ints | None = None
    excluded: list[Ints] = []
    for matcher in matchers:
        if matcher.holds(""):
            # Series without the label match too: take away those whose value does not.
            unfit = [value for value, holds in holding(matcher, _values(connection, matcher.name)) if not holds]
            excluded.append(_series_with(connection, matcher.name, unfit))
            continue
        fit = [matcher.value] if matcher.operator is Operator.EQUAL else _values(connection, matcher.name)
        ids = _series_with(connection, matcher.name, [value for value, holds in holding(matcher, fit) if holds])
        chosen = ids if chosen is None else np.intersect1d(chosen, ids, assume_unique=True)
    if chosen is None:
        chosen = _ids(connection.execute("SELECT id FROM series ORDER BY id"))
    for ids in excluded:
        chosen = np.setdiff1d(chosen, ids, assume_unique=True)
    return chosen


def _values(connection: sqlite3.Connection, name: str) -> list[str]:
    return [value for (value,) in connection.execute("SELECT DISTINCT value FROM label WHERE name = ?", (name,))]


def _series_with(connection: sqlite3.Connection, name: str, values: Iterable[str]) -> Ints:
    query = "SELECT series FROM label WHERE name = ? AND value = ?"
    parts = [_ids(connection.execute(query, (name, value))) for value in values]
    # A series has one value of a label, so that no id comes twice.
    return np.sort(np.concatenate(parts)) if parts else np.empty(0, np.int64)


def _ids(cursor: sqlite3.Cursor) -> Ints:
    return np.fromiter((series for (series,) in cursor), np.int64)
