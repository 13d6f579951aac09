"""Texts of rules with the labels and the value of the series they are about. Pure.

The part of Prometheus' template language that rules use: `{{ $labels.name }}`, `{{ $value }}`, the same as
`.Labels.name` and `.Value`, and the functions of template_functions.py, called or piped into. Everything else is
refused when the rule is written, and not shown half-rendered to somebody on call: what was taken is rendered whatever
the values are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from controlplane.alerts.template_functions import OF_NUMBERS, OF_TEXTS, BadFormat, check_format, printf, shown

_END = re.compile(r"""(?:[^"`}]|"(?:[^"\\\n]|\\.)*"|`[^`]*`|}(?!}))*?(?P<trim>\s-)?}}(?P<after>\s*)""", re.DOTALL)
_COMMENT = re.compile(r"(?:-\s)?/\*.*?\*/(?:\s-)?}}", re.DOTALL)
_TOKEN = re.compile(
    r"""\s*(?:(?P<label>(?:\$labels|\.Labels)\.(?P<name>[a-zA-Z_][a-zA-Z0-9_]*)(?![\w.]))|(?P<value>(?:\$value|\.Value)(?![\w.]))"""
    r"""|(?P<quoted>"(?:[^"\\\n]|\\.)*")|`(?P<raw>[^`]*)`|(?P<mark>[|()])|(?P<function>[a-zA-Z_]\w*)|(?P<other>\S+))"""
)
# Escapes that Go's strings have and JSON's do not.
_GO_ESCAPES = re.compile(r"\\(?![\"\\/bfnrtu])")
_FUNCTIONS = (*OF_NUMBERS, "printf", *OF_TEXTS)
KNOWN = f"there are {{{{ $labels.name }}}}, {{{{ $value }}}} and the functions {', '.join(_FUNCTIONS)}"
_DEPTH_MAX = 10


class _Refused(ValueError):
    """What is not known here."""


@dataclass(frozen=True)
class _Series:
    labels: Mapping[str, str]
    value: float


class _Part:
    """Something that gives a text or a number for a series. `kind` says which."""

    kind: type[str] | type[float] = str

    def of(self, series: _Series) -> str | float:
        raise NotImplementedError


@dataclass(frozen=True)
class _Text(_Part):
    text: str

    def of(self, series: _Series) -> str:
        return self.text


@dataclass(frozen=True)
class _Label(_Part):
    name: str

    def of(self, series: _Series) -> str:
        # A label that a series does not have is empty, as with Prometheus.
        return series.labels.get(self.name, "")


class _Value(_Part):
    kind = float

    def of(self, series: _Series) -> float:
        return series.value


@dataclass(frozen=True)
class _Call(_Part):
    function: str
    arguments: tuple[_Part, ...]

    def __post_init__(self) -> None:
        kinds = [argument.kind for argument in self.arguments]
        if self.function == "printf":
            form = self.arguments[0] if self.arguments else None
            if not isinstance(form, _Text):
                raise _Refused("printf takes its format as a quoted text")
            try:
                check_format(form.text, kinds[1:])
            except BadFormat as error:
                raise _Refused(f"printf {error}") from error
        elif kinds != [float if self.function in OF_NUMBERS else str]:
            takes = "one number, such as $value" if self.function in OF_NUMBERS else "one text, such as a label"
            raise _Refused(f"{self.function} takes {takes}")

    def of(self, series: _Series) -> str:
        given = [argument.of(series) for argument in self.arguments]
        if self.function == "printf":
            return printf(str(given[0]), *given[1:])
        if self.function in OF_NUMBERS:
            return OF_NUMBERS[self.function](float(given[0]))
        return OF_TEXTS[self.function](str(given[0]))


def refusal(text: str) -> str | None:
    """What is not known here, or None where all of it is."""
    try:
        _parsed(text)
    except _Refused as refused:
        return f"{refused}; {KNOWN}"
    return None


def rendered(text: str, labels: Mapping[str, str], value: str | float) -> str:
    """The text of one series: its labels, and its value, which may be written as Prometheus does. It was not refused.

    As in Prometheus the labels are those of the expression's result, without the rule's own.
    """
    if "{{" not in text:
        return text
    series = _Series(labels, float(value))
    return "".join(_shown(part.of(series)) for part in _parsed(text))


def _shown(value: str | float) -> str:
    return value if isinstance(value, str) else shown(value)


@lru_cache(maxsize=4096)
def _parsed(text: str) -> tuple[_Part, ...]:
    return tuple(_parts(text))


def _parts(text: str) -> Iterator[_Part]:
    place = 0
    while (begin := text.find("{{", place)) >= 0:
        before, action = _plain(text[place:begin]), begin + 2
        if text[action : action + 1] == "-" and text[action + 1 : action + 2].isspace():
            before, action = before.rstrip(), action + 1
        yield _Text(before)
        end = _COMMENT.match(text, begin + 2)
        inner, trims, place = ("", end[0].endswith("-}}"), end.end()) if end else _until_end(text, action)
        if end is None:
            yield _pipeline(text[begin:place], inner)
        if trims:
            while text[place : place + 1].isspace():
                place += 1
    yield _Text(_plain(text[place:]))


def _plain(text: str) -> str:
    if "}}" in text:
        raise _Refused("braces }} that nothing opens")
    return text


def _until_end(text: str, action: int) -> tuple[str, bool, int]:
    """What stands in an action, whether the space after it goes, and where it ends."""
    if (end := _END.match(text, action)) is None:
        raise _Refused("braces {{ that nothing closes")
    return (
        text[action : end.start("trim") if end["trim"] else end.start("after") - 2],
        bool(end["trim"]),
        end.start("after"),
    )


def _pipeline(whole: str, inner: str) -> _Part:
    try:
        tokens = list(_TOKEN.finditer(inner.strip()))
        part, left = _piped(tokens, 0)
        if left:
            raise _Refused(f"{left[0][0].strip()} has no place there")
        return part
    except _Refused as refused:
        raise _Refused(f"{whole} is not supported: {refused}") from refused


def _piped(tokens: Sequence[re.Match[str]], depth: int) -> tuple[_Part, Sequence[re.Match[str]]]:
    """One pipeline, and the tokens behind it."""
    if depth > _DEPTH_MAX:
        raise _Refused("too many brackets")
    part, tokens = _command(tokens, (), depth)
    while tokens and tokens[0]["mark"] == "|":
        part, tokens = _command(tokens[1:], (part,), depth)
    return part, tokens


def _command(
    tokens: Sequence[re.Match[str]], piped: tuple[_Part, ...], depth: int
) -> tuple[_Part, Sequence[re.Match[str]]]:
    if not tokens:
        raise _Refused("something is missing")
    if not tokens[0]["function"]:
        if piped:
            raise _Refused(f"{tokens[0][0].strip()} is no function to pipe into")
        return _operand(tokens, depth)
    name, tokens = tokens[0]["function"], tokens[1:]
    if name not in _FUNCTIONS:
        raise _Refused(f"{name} is not known here")
    arguments: list[_Part] = []
    while tokens and tokens[0]["mark"] not in ("|", ")"):
        argument, tokens = _operand(tokens, depth)
        arguments.append(argument)
    return _Call(name, (*arguments, *piped)), tokens


def _operand(tokens: Sequence[re.Match[str]], depth: int) -> tuple[_Part, Sequence[re.Match[str]]]:
    token, left = tokens[0], tokens[1:]
    if token["label"]:
        return _Label(token["name"]), left
    if token["value"]:
        return _Value(), left
    if token["quoted"]:
        return _Text(_unquoted(token["quoted"])), left
    if token["raw"] is not None:
        return _Text(token["raw"]), left
    if token["mark"] == "(":
        part, left = _piped(left, depth + 1)
        if not left or left[0]["mark"] != ")":
            raise _Refused("a bracket that nothing closes")
        return part, left[1:]
    raise _Refused(f"{token[0].strip()} is not known here")


def _unquoted(quoted: str) -> str:
    if _GO_ESCAPES.search(quoted):
        raise _Refused(f'{quoted} has an escape beside \\n, \\t, \\" and \\\\')
    try:
        return str(json.loads(quoted, strict=False))
    except ValueError as error:
        raise _Refused(f"{quoted} is no text") from error
