"""What a text of a rule is made of: each part gives a text, a number, or whether something is so, for a series.

What parts may take is checked when they are made, so that what was taken is rendered whatever the values are; only what
a query finds is not known before. Source: Go's text/template, whose truth these are, and Prometheus' functions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from controlplane.alerts.template_functions import (
    OF_NUMBERS,
    OF_TEXTS,
    BadFormat,
    check_format,
    printf,
    shown,
    shown_labels,
)


class Found(NamedTuple):
    """One series that a query found."""

    labels: Mapping[str, str]
    value: float


# Series that a text goes through, and characters of a text: more nobody reads.
RANGE_MAX, TEXT_MAX = 200, 32_768
Kind = type[Any]
# `list`: what a query found.
_NAMES: Mapping[Kind, str] = {
    str: "text", float: "number", bool: "truth value", dict: "set of labels", list: "query's result", Found: "series",
}  # fmt: skip
# What a query finds now. Raises Failed.
Ask = Callable[[str], Sequence[Found]]


class NotKnown(ValueError):
    """What is not known here."""


class Failed(Exception):
    """A text that cannot be rendered for what a query found, or did not; the message says why."""


class NoAnswer(Failed):
    """It was not asked, or nothing answered: what it would find is not known now."""


def ask_nothing(promql: str) -> Sequence[Found]:
    """Where no query is answered."""
    raise Failed(f"nothing answers {promql}")


@dataclass(frozen=True)
class Series:
    """`dot`: what `.` is there: what a `with` has, or which one of a `range` is looked at."""

    labels: Mapping[str, str]
    value: float
    ask: Ask = ask_nothing
    dot: Any = None


class Part:
    """`kind`: what it gives for a series. `ranges`: whether a range is in it."""

    kind: Kind = str
    ranges: bool = False

    def of(self, series: Series) -> Any:
        raise NotImplementedError

    def text(self, series: Series) -> str:
        """As it stands in a text."""
        value = self.of(series)
        if self.kind is float:
            return shown(value)
        if self.kind is bool:
            return "true" if value else "false"
        return shown_labels(value) if self.kind is dict else str(value)

    def holds(self, series: Series) -> bool:
        """As `if` takes it: no empty text, not 0, not false."""
        return bool(self.of(series))


def joined(texts: Iterable[str]) -> str:
    """One after the other, as far as anybody reads."""
    told: list[str] = []
    left = TEXT_MAX
    for text in texts:
        told.append(text[:left])
        left -= len(text)
        if left <= 0:
            break
    return "".join(told)


@dataclass(frozen=True)
class Text(Part):
    written: str

    def of(self, series: Series) -> str:
        return self.written


@dataclass(frozen=True)
class Number(Part):
    number: float
    kind = float

    def of(self, series: Series) -> float:
        return self.number


@dataclass(frozen=True)
class Label(Part):
    name: str

    def of(self, series: Series) -> str:
        # A label that a series does not have is empty, as with Prometheus.
        return series.labels.get(self.name, "")


class Labels(Part):
    kind = dict

    def of(self, series: Series) -> Mapping[str, str]:
        return series.labels


class Value(Part):
    kind = float

    def of(self, series: Series) -> float:
        return series.value


@dataclass(frozen=True)
class If(Part):
    """The first parts where the condition holds, else the others."""

    condition: Part
    then: Sequence[Part]
    otherwise: Sequence[Part]

    @property
    def ranges(self) -> bool:  # type: ignore[override]
        return any(part.ranges for part in (*self.then, *self.otherwise))

    def of(self, series: Series) -> str:
        chosen = self.then if self.condition.holds(series) else self.otherwise
        return joined(part.text(series) for part in chosen)


class With(If):
    """So too, and `.` is what the condition gave."""

    def of(self, series: Series) -> str:
        given = self.condition.of(series)
        inside, chosen = (replace(series, dot=given), self.then) if given else (series, self.otherwise)
        return joined(part.text(inside) for part in chosen)


@dataclass(frozen=True)
class Range(Part):
    """The parts once for each that is found; the others where nothing is."""

    found: Part
    each: Sequence[Part]
    otherwise: Sequence[Part]
    ranges = True

    def __post_init__(self) -> None:
        if any(part.ranges for part in self.each):
            raise NotKnown("a range in a range, which may be without end, is not supported")

    def of(self, series: Series) -> str:
        found = self.found.of(series)
        if len(found) > RANGE_MAX:
            raise Failed(f"range over {len(found)} series; {RANGE_MAX} are the most")
        if not found:
            return joined(part.text(series) for part in self.otherwise)
        return joined(part.text(replace(series, dot=one)) for one in found for part in self.each)


@dataclass(frozen=True)
class Dot(Part):
    """What `.` is in a `with` or a `range`."""

    kind: Kind

    def of(self, series: Series) -> Any:
        return series.dot


@dataclass(frozen=True)
class FieldOf(Part):
    """A label, by its name, or with none the value of what `.` is."""

    found: Part
    label: str = ""

    @property
    def kind(self) -> Kind:  # type: ignore[override]
        return str if self.label else float

    def of(self, series: Series) -> Any:
        found: Found = self.found.of(series)
        return found.labels.get(self.label, "") if self.label else found.value


@dataclass(frozen=True)
class LabelsOf(Part):
    found: Part
    kind = dict

    def of(self, series: Series) -> Mapping[str, str]:
        found: Found = self.found.of(series)
        return found.labels


def _first(found: Sequence[Found]) -> Found:
    if not found:
        raise Failed("first of a query that found nothing")
    return found[0]


# What each takes, what it gives, and how.
_OF_QUERIES: Mapping[str, tuple[list[Kind], Kind, Callable[..., Any]]] = {
    "first": ([list], Found, _first),
    "value": ([Found], float, lambda one: one.value),
    "label": ([str, Found], str, lambda name, one: one.labels.get(name, "")),
    "strvalue": ([Found], str, lambda one: one.labels.get("__value__", "")),
    "sortByLabel": ([str, list], list, lambda name, found: sorted(found, key=lambda one: one.labels.get(name, ""))),
}


def _is_less(left: Any, right: Any) -> bool:
    return bool(left < right)


def _is_at_most(left: Any, right: Any) -> bool:
    return bool(left < right or left == right)


# Of NaN Go's `gt` and `ge` are so: they are what the others are not.
_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "eq": lambda left, right: bool(left == right),
    "ne": lambda left, right: bool(left != right),
    "lt": _is_less,
    "le": _is_at_most,
    "gt": lambda left, right: not _is_at_most(left, right),
    "ge": lambda left, right: not _is_less(left, right),
}
_OF_TRUTH = ("and", "or", "not")
_NUMBER = re.compile(r"[-+]?[0-9]{1,18}(?:\.[0-9]{1,18})?")
_QUERY = "query"
FUNCTIONS = (*OF_NUMBERS, "printf", *OF_TEXTS, *_COMPARISONS, *_OF_TRUTH, _QUERY, *_OF_QUERIES)


def call(function: str, arguments: Sequence[Part]) -> Part:
    """A function of these arguments. Raises NotKnown where it does not take them."""
    if function not in FUNCTIONS:
        raise NotKnown(f"{function} is not known here")
    if function == "printf":
        return _Printf(tuple(arguments))
    if function == _QUERY:
        return Query(tuple(arguments))
    if function in _OF_QUERIES:
        return _OfQuery(function, tuple(arguments))
    if function in _COMPARISONS:
        return _Comparison(function, tuple(arguments))
    if function in _OF_TRUTH:
        return _OfTruth(function, tuple(arguments))
    return _Call(function, tuple(map(_number_in, arguments) if function in OF_NUMBERS else arguments))


def _number_in(part: Part) -> Part:
    """A number that is written as a text, which Prometheus' functions of numbers read as one."""
    return Number(float(part.written)) if isinstance(part, Text) and _NUMBER.fullmatch(part.written) else part


@dataclass(frozen=True)
class _Call(Part):
    function: str
    arguments: tuple[Part, ...]

    def __post_init__(self) -> None:
        of_numbers = self.function in OF_NUMBERS
        if [argument.kind for argument in self.arguments] != [float if of_numbers else str]:
            takes = "one number, such as $value" if of_numbers else "one text, such as a label"
            raise NotKnown(f"{self.function} takes {takes}")

    def of(self, series: Series) -> str:
        (given,) = (argument.of(series) for argument in self.arguments)
        return OF_NUMBERS[self.function](given) if self.function in OF_NUMBERS else OF_TEXTS[self.function](given)


@dataclass(frozen=True)
class _Printf(Part):
    arguments: tuple[Part, ...]

    def __post_init__(self) -> None:
        form, *others = self.arguments or (Value(),)
        if not isinstance(form, Text):
            raise NotKnown("printf takes its format as a quoted text")
        kinds: list[type[float] | type[str]] = []
        for other in others:
            if other.kind is not float and other.kind is not str:
                raise NotKnown(f"printf takes numbers and texts, no {_NAMES[other.kind]}")
            kinds.append(float if other.kind is float else str)
        try:
            check_format(form.written, kinds)
        except BadFormat as error:
            raise NotKnown(f"printf {error}") from error

    def of(self, series: Series) -> str:
        form, *others = (argument.of(series) for argument in self.arguments)
        # Of `.` in a `with` in a `with` it would grow without end.
        return printf(form, *others)[:TEXT_MAX]


@dataclass(frozen=True)
class _Comparison(Part):
    function: str
    arguments: tuple[Part, ...]
    kind = bool

    def __post_init__(self) -> None:
        kinds = [argument.kind for argument in self.arguments]
        if kinds not in ([float, float], [str, str]):
            given = ", ".join(_NAMES[kind] for kind in kinds) or "nothing"
            raise NotKnown(f"{self.function} takes two numbers or two texts, not {given}")

    def of(self, series: Series) -> bool:
        left, right = (argument.of(series) for argument in self.arguments)
        return _COMPARISONS[self.function](left, right)


@dataclass(frozen=True)
class _OfTruth(Part):
    """Go's `and` and `or` give one of what they take; here all of it is of one kind."""

    function: str
    arguments: tuple[Part, ...]

    def __post_init__(self) -> None:
        if self.function == "not" and len(self.arguments) != 1:
            raise NotKnown("not takes one thing")
        if not self.arguments or len({argument.kind for argument in self.arguments}) > 1:
            raise NotKnown(f"{self.function} takes things of one kind")

    @property
    def kind(self) -> Kind:  # type: ignore[override]
        return bool if self.function == "not" else self.arguments[0].kind

    def of(self, series: Series) -> Any:
        if self.function == "not":
            return not self.arguments[0].holds(series)
        given: Any = None
        for one in self.arguments:
            given = one.of(series)
            if bool(given) == (self.function == "or"):
                break
        return given


@dataclass(frozen=True)
class Query(Part):
    arguments: tuple[Part, ...]
    kind = list

    def __post_init__(self) -> None:
        if [argument.kind for argument in self.arguments] != [str]:
            raise NotKnown("query takes one text, PromQL")

    def of(self, series: Series) -> Sequence[Found]:
        return series.ask(self.arguments[0].of(series))


@dataclass(frozen=True)
class _OfQuery(Part):
    function: str
    arguments: tuple[Part, ...]

    def __post_init__(self) -> None:
        takes, _, _ = _OF_QUERIES[self.function]
        if [argument.kind for argument in self.arguments] != takes:
            raise NotKnown(f"{self.function} takes {', '.join(f'a {_NAMES[kind]}' for kind in takes)}")

    @property
    def kind(self) -> Kind:  # type: ignore[override]
        return _OF_QUERIES[self.function][1]

    def of(self, series: Series) -> Any:
        return _OF_QUERIES[self.function][2](*(argument.of(series) for argument in self.arguments))


def shown_part(part: Part) -> Part:
    """The part, which stands in a text. Raises NotKnown where people could not read it."""
    if part.kind in (list, Found):
        raise NotKnown(f"a {_NAMES[part.kind]} is no text; give its first, value, label, or range over it")
    return part
