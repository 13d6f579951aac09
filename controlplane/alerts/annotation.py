"""Texts of rules with the labels and the value of the series they are about.

The part of Prometheus' template language that rules use: `{{ $labels.name }}`, `{{ $labels }}`, `{{ $value }}`, the
same as `.Labels` and `.Value`, the functions of template_parts.py, called or piped into, `if`, `with` and `range` over
a query. Everything else is refused when the rule is written, and not shown half-rendered to somebody on call: what was
taken is rendered whatever the values are, but for queries that find nothing or have no answer.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from controlplane.alerts import template_parts as parts
from controlplane.alerts.template_parts import Ask, Failed, NotKnown, Part, ask_nothing

_END = re.compile(r"""(?:[^"`}]|"(?:[^"\\\n]|\\.)*"|`[^`]*`|}(?!}))*?(?P<trim>\s-)?}}(?P<after>\s*)""", re.DOTALL)
_COMMENT = re.compile(r"(?:-\s)?/\*.*?\*/(?:\s-)?}}", re.DOTALL)
_TOKEN = re.compile(
    r"""\s*(?:(?P<label>(?:\$labels|\.Labels)\.(?P<name>[a-zA-Z_][a-zA-Z0-9_]*)(?![\w.]))"""
    r"""|(?P<labels>(?:\$labels|\.Labels)(?![\w.]))|(?P<value>(?:\$value|\.Value)(?![\w.]))|(?P<dot>\.(?![\w.]))"""
    r"""|(?P<number>[-+]?[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?(?![\w.]))"""
    r"""|(?P<quoted>"(?:[^"\\\n]|\\.)*")|`(?P<raw>[^`]*)`|(?P<mark>[|()])|(?P<function>[a-zA-Z_]\w*)|(?P<other>\S+))"""
)
# Escapes that Go's strings have and JSON's do not.
_GO_ESCAPES = re.compile(r"\\(?![\"\\/bfnrtu])")
_KEYWORD = re.compile(r"\s*(if|with|range|else|end)(?!\w)\s*", re.DOTALL)
_IF, _WITH, _RANGE, _ELSE, _FINISH = "if", "with", "range", "else", "end"
KNOWN = (
    "there are {{ $labels.name }}, {{ $labels }}, {{ $value }}, if, with, range, else, end and the functions "
    f"{', '.join(parts.FUNCTIONS)}"
)
_DEPTH_MAX = 10
_BRANCHES: Mapping[str, Callable[[Part, Sequence[Part], Sequence[Part]], Part]] = {
    _IF: parts.If, _WITH: parts.With, _RANGE: parts.Range,
}  # fmt: skip
# What `.` is inside of a `with` or `range`; None outside.
_Dot = Part | None
_Tokens = Sequence[re.Match[str]]


class _Action(NamedTuple):
    """What stands in braces, and those with it."""

    whole: str
    inner: str

    @property
    def keyword(self) -> str:
        found = _KEYWORD.match(self.inner)
        return found[1] if found else ""

    @property
    def rest(self) -> str:
        """What stands behind the keyword."""
        return _KEYWORD.sub("", self.inner, count=1)


_Pieces = deque[Part | _Action]


def refusal(text: str) -> str | None:
    """What is not known here, or None where all of it is."""
    try:
        _parsed(text)
    except NotKnown as refused:
        return f"{refused}; {KNOWN}"
    return None


def asks(text: str) -> bool:
    """Whether a text that was not refused may ask the metric store."""
    return "query" in text and "{{" in text


def rendered(
    text: str, labels: Mapping[str, str], value: str | float, ask: Ask = ask_nothing, *, must_answer: bool = False
) -> str:
    """The text of one series: its labels, and its value, which may be written as Prometheus does. It was not refused.

    As in Prometheus the labels are those of the expression's result, without the rule's own; and where a query has no
    answer, the text says so in its place. With `must_answer` it raises NoAnswer then.
    """
    if "{{" not in text:
        return text
    series = parts.Series(labels, float(value), ask)
    try:
        return parts.joined(part.text(series) for part in _parsed(text))
    except Failed as failed:
        if must_answer and isinstance(failed, parts.NoAnswer):
            raise
        return f"<error expanding template: {failed}>"


@lru_cache(maxsize=4096)
def _parsed(text: str) -> tuple[Part, ...]:
    found, ending = _block(deque(_pieces(text)), None, 0)
    if ending is not None:
        raise NotKnown(f"{ending.whole} ends nothing")
    return tuple(found)


def _pieces(text: str) -> Iterator[Part | _Action]:
    """Texts and actions, the white space of trimmed ones gone."""
    place = 0
    while (begin := text.find("{{", place)) >= 0:
        before, action = _plain(text[place:begin]), begin + 2
        if text[action : action + 1] == "-" and text[action + 1 : action + 2].isspace():
            before, action = before.rstrip(), action + 1
        yield parts.Text(before)
        end = _COMMENT.match(text, begin + 2)
        inner, trims, place = ("", end[0].endswith("-}}"), end.end()) if end else _until_end(text, action)
        if end is None:
            yield _Action(text[begin:place].rstrip(), inner)
        if trims:
            while text[place : place + 1].isspace():
                place += 1
    yield parts.Text(_plain(text[place:]))


def _plain(text: str) -> str:
    if "}}" in text:
        raise NotKnown("braces }} that nothing opens")
    return text


def _until_end(text: str, action: int) -> tuple[str, bool, int]:
    """What stands in an action, whether the space after it goes, and where it ends."""
    if (end := _END.match(text, action)) is None:
        raise NotKnown("braces {{ that nothing closes")
    return (
        text[action : end.start("trim") if end["trim"] else end.start("after") - 2],
        bool(end["trim"]),
        end.start("after"),
    )


def _block(pieces: _Pieces, dot: _Dot, depth: int) -> tuple[list[Part], _Action | None]:
    """The parts up to an `else` or `end`, which comes with them, or to the text's end."""
    if depth > _DEPTH_MAX:
        raise NotKnown(f"more than {_DEPTH_MAX} of if and with in one another")
    found: list[Part] = []
    while pieces:
        piece = pieces.popleft()
        if isinstance(piece, Part):
            found.append(piece)
        elif piece.keyword in (_ELSE, _FINISH):
            return found, piece
        elif piece.keyword:
            found.append(_branch(piece, pieces, dot, depth))
        else:
            found.append(_pipeline(piece.whole, piece.inner, dot, is_shown=True))
    return found, None


def _branch(action: _Action, pieces: _Pieces, dot: _Dot, depth: int) -> Part:
    condition = _pipeline(action.whole, action.rest, dot)
    inside = {_WITH: parts.Dot(condition.kind), _RANGE: parts.Dot(parts.Found)}.get(action.keyword, dot)
    if action.keyword == _RANGE and condition.kind is not list:
        raise NotKnown(f"{action.whole} is not supported: range takes a query")
    then, ending = _block(pieces, inside, depth + 1)
    otherwise: list[Part] = []
    if ending is not None and ending.keyword == _ELSE:
        further = ending._replace(inner=ending.rest)
        if further.keyword == action.keyword == _IF:
            return parts.If(condition, then, [_branch(further, pieces, dot, depth + 1)])
        if further.inner.strip():
            raise NotKnown(f"{ending.whole} is not supported")
        otherwise, ending = _block(pieces, dot, depth + 1)
    if ending is None:
        raise NotKnown(f"{action.whole} has no {{{{ end }}}}")
    if ending.keyword != _FINISH or ending.rest:
        raise NotKnown(f"{ending.whole} has no place there")
    return _BRANCHES[action.keyword](condition, then, otherwise)


def _pipeline(whole: str, inner: str, dot: _Dot, *, is_shown: bool = False) -> Part:
    try:
        tokens = list(_TOKEN.finditer(inner.strip()))
        part, left = _piped(tokens, dot, 0)
        if left:
            raise NotKnown(f"{left[0][0].strip()} has no place there")
        return parts.shown_part(part) if is_shown else part
    except NotKnown as refused:
        raise NotKnown(f"{whole} is not supported: {refused}") from refused


def _piped(tokens: _Tokens, dot: _Dot, depth: int) -> tuple[Part, _Tokens]:
    """One pipeline, and the tokens behind it."""
    if depth > _DEPTH_MAX:
        raise NotKnown("too many brackets")
    part, tokens = _command(tokens, (), dot, depth)
    pipes = 0
    while tokens and tokens[0]["mark"] == "|":
        pipes += 1
        if pipes > _DEPTH_MAX:
            raise NotKnown(f"more than {_DEPTH_MAX} pipes one after the other")
        part, tokens = _command(tokens[1:], (part,), dot, depth)
    return part, tokens


def _command(tokens: _Tokens, piped: tuple[Part, ...], dot: _Dot, depth: int) -> tuple[Part, _Tokens]:
    if not tokens:
        raise NotKnown("something is missing")
    if not tokens[0]["function"]:
        if piped:
            raise NotKnown(f"{tokens[0][0].strip()} is no function to pipe into")
        return _operand(tokens, dot, depth)
    name, tokens = tokens[0]["function"], tokens[1:]
    if name not in parts.FUNCTIONS:
        raise NotKnown(f"{name} is not known here")
    arguments: list[Part] = []
    while tokens and tokens[0]["mark"] not in ("|", ")"):
        argument, tokens = _operand(tokens, dot, depth)
        arguments.append(argument)
    return parts.call(name, (*arguments, *piped)), tokens


def _operand(tokens: _Tokens, dot: _Dot, depth: int) -> tuple[Part, _Tokens]:
    token, left = tokens[0], tokens[1:]
    if token["mark"] == "(":
        part, left = _piped(left, dot, depth + 1)
        if not left or left[0]["mark"] != ")":
            raise NotKnown("a bracket that nothing closes")
        return part, left[1:]
    return _single(token, dot), left


def _single(token: re.Match[str], dot: _Dot) -> Part:
    written = token[0].strip()
    if dot is not None and written.startswith("."):
        return _of_dot(token, dot, written)
    if token["label"]:
        return parts.Label(token["name"])
    if token["labels"]:
        return parts.Labels()
    if token["value"]:
        return parts.Value()
    if token["number"]:
        return _number(written)
    if token["quoted"]:
        return parts.Text(_unquoted(token["quoted"]))
    if token["raw"] is not None:
        return parts.Text(token["raw"])
    raise NotKnown(f"{written} is not known here")


def _of_dot(token: re.Match[str], dot: Part, written: str) -> Part:
    if token["dot"]:
        return dot
    if dot.kind is not parts.Found:
        raise NotKnown(f"{written} where . is no series; write ${written[1:].lower()}")
    if token["labels"]:
        return parts.LabelsOf(dot)
    if token["label"] or token["value"]:
        return parts.FieldOf(dot, token["name"] or "")
    raise NotKnown(f"{written} is not known here")


def _number(written: str) -> Part:
    if not set(written) & set(".eE"):
        raise NotKnown(f"{written} is a whole number, which Go compares with no value; write {written}.0")
    return parts.Number(float(written))


def _unquoted(quoted: str) -> str:
    if _GO_ESCAPES.search(quoted):
        raise NotKnown(f'{quoted} has an escape beside \\n, \\t, \\" and \\\\')
    try:
        return str(json.loads(quoted, strict=False))
    except ValueError as error:
        raise NotKnown(f"{quoted} is no text") from error
