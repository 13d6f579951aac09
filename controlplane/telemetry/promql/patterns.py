"""Regular expressions with groups, as RE2 reads them: from text to a program. What is not supported is refused by name.

Python's own engine reads some expressions otherwise, and takes exponential time for others.
Source: https://github.com/google/re2/wiki/Syntax, and Go's regexp/syntax.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from controlplane.telemetry.promql.backtracking import (
    Assert,
    Jump,
    Program,
    Save,
    Split,
    Take,
    at_begin,
    at_end,
    at_word_edge,
    groups_of,
    inside_word_or_not,
)
from controlplane.telemetry.promql.errors import Unanswerable

_MAX_CHARACTERS = 4096
_MAX_DEPTH = 50
_MAX_REPEAT = 1000
_MAX_INSTRUCTIONS = 10_000
_COUNTED = re.compile(r"\{([0-9]{1,4})(?:(,)([0-9]{1,4})?)?\}")
_GROUP_NAME = re.compile(r"\(\?P?<([0-9A-Za-z_]+)>")
_HEXADECIMAL = re.compile(r"\\x(?:([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]{1,6})\})")
# RE2's are of ASCII alone.
_CLASSES = {"d": "0-9", "w": "0-9A-Za-z_", "s": r"\t\n\f\r "}
_CONTROLS = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ASSERTIONS = {"A": at_begin, "z": at_end, "b": at_word_edge, "B": inside_word_or_not}


@dataclass(frozen=True)
class Pattern:
    """Matches whole values; `names` of the groups from 1 on, empty for those without."""

    program: Program
    names: tuple[str, ...]

    def groups(self, value: str) -> tuple[str, ...] | None:
        """The value and what its groups matched; None where it does not match. Raises Unanswerable."""
        found = groups_of(self.program, len(self.names), value)
        return None if found is None else (value, *found)


@dataclass(frozen=True)
class _Part:
    """`empty`: it can match no character; `repeats`: the product of the counts of repetitions within each other."""

    program: Program
    empty: bool = False
    repeats: int = 1


def pattern(text: str) -> Pattern:
    """Raises Unanswerable."""
    if len(text) > _MAX_CHARACTERS:
        raise Unanswerable(f"a regular expression may have {_MAX_CHARACTERS} characters")
    parser = _Parser(text)
    part = parser.alternation()
    if parser.left:
        raise parser.error("a parenthesis is closed that was not opened")
    return Pattern(part.program, tuple(parser.names))


class _Parser:
    def __init__(self, text: str) -> None:
        self.left, self.names = text, list[str]()
        self._text, self._depth = text, 0

    def alternation(self) -> _Part:
        part = self._sequence()
        while self.left.startswith("|"):
            self._take(1)
            other = self._sequence()
            program = [
                Split(1, len(part.program) + 2),
                *part.program,
                Jump(len(other.program) + 1),
                *other.program,
            ]
            part = _Part(program, part.empty or other.empty, max(part.repeats, other.repeats))
        return part

    def error(self, why: str) -> Unanswerable:
        return Unanswerable(f"the regular expression {self._text!r} cannot be used: {why}")

    def _sequence(self) -> _Part:
        program: Program = []
        empty, repeats = True, 1
        while self.left and self.left[0] not in "|)":
            part = self._repeated()
            program += part.program
            empty, repeats = empty and part.empty, max(repeats, part.repeats)
            if len(program) > _MAX_INSTRUCTIONS:
                raise self.error("it is too large")
        return _Part(program, empty, repeats)

    def _repeated(self) -> _Part:
        part = self._atom()
        bounds = self._bounds()
        if bounds is None:
            return part
        low, high, counted = bounds
        lazy = self.left.startswith("?")
        self._take(int(lazy))
        if self._bounds() is not None:
            raise self.error("a repetition of a repetition")
        repeats = part.repeats * max(low, high or 0, 1) if counted else part.repeats
        if repeats > _MAX_REPEAT:
            raise self.error(f"more than {_MAX_REPEAT} counted repetitions")
        if len(part.program) * max(low, high or 0) > _MAX_INSTRUCTIONS:
            raise self.error("it is too large")
        return _Part(_repetition(part, low, high, lazy=lazy), part.empty or low == 0, repeats)

    def _bounds(self) -> tuple[int, int | None, bool] | None:
        """The least and the most of a repetition, and whether it is a counted one."""
        sign = self.left[:1]
        if sign and sign in "*+?":
            self._take(1)
            return int(sign == "+"), 1 if sign == "?" else None, False
        counted = _COUNTED.match(self.left)
        if counted is None:
            return None
        self._take(len(counted[0]))
        low = int(counted[1])
        high = low if counted[2] is None else int(counted[3]) if counted[3] else None
        if high is not None and high < low:
            raise self.error(f"{counted[0]} is no number of repetitions")
        return low, high, True

    def _atom(self) -> _Part:
        character = self.left[0]
        match character:
            case "(":
                return self._group()
            case "[":
                return self._class()
            case "\\":
                return self._escape()
            case "^" | "$":
                self._take(1)
                return _Part([Assert(at_begin if character == "^" else at_end)], empty=True)
            case ".":
                self._take(1)
                return _Part([Take(lambda any_character: True)])
            case "*" | "+" | "?" | "{":
                raise self.error(f"{character} repeats nothing; write \\{character} for the character")
        return _Part([Take(self._take(1).__eq__)])

    def _group(self) -> _Part:
        if named := _GROUP_NAME.match(self.left):
            if named[1] in self.names:
                raise self.error(f"two groups are named {named[1]}")
            self.names.append(named[1])
        elif not self.left.startswith("(?"):
            self.names.append("")
        elif not self.left.startswith("(?:"):
            raise self.error(f"{self.left[:4]} is not supported: flags are not, and RE2 has nothing that looks around")
        slot = 2 * (len(self.names) - 1)
        remembered = not self.left.startswith("(?:")
        self._take(len(named[0]) if named else 1 if remembered else 3)
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self.error(f"groups are nested deeper than {_MAX_DEPTH}")
        inner = self.alternation()
        if not self.left:
            raise self.error("a parenthesis is not closed")
        self._take(1)
        self._depth -= 1
        if not remembered:
            return inner
        return _Part([Save(slot), *inner.program, Save(slot + 1)], inner.empty, inner.repeats)

    def _class(self) -> _Part:
        self._take(1)
        source = "[^" if self.left.startswith("^") else "["
        self._take(len(source) - 1)
        first = True
        while first or not self.left.startswith("]"):
            source += self._item()
            first = False
        self._take(1)
        return _Part([Take(re.compile(f"{source}]").match)])

    def _item(self) -> str:
        """A character, a range or \\d, \\w, \\s of a class."""
        if self.left.startswith("[:"):
            raise self.error("named classes such as [:alpha:] are not supported; write their characters")
        if self.left[:1] == "\\" and self.left[1:2] in _CLASSES:
            return _CLASSES[self._take(2)[1]]
        begin = end = self._character()
        if self.left.startswith("-") and not self.left.startswith("-]"):
            self._take(1)
            end = self._character()
        if end < begin:
            raise self.error(f"{begin}-{end} is no range")
        return re.escape(begin) if begin == end else f"{re.escape(begin)}-{re.escape(end)}"

    def _escape(self) -> _Part:
        kind = self.left[1:2]
        if kind in _ASSERTIONS:
            self._take(2)
            return _Part([Assert(_ASSERTIONS[kind])], empty=True)
        if kind.lower() in _CLASSES:
            self._take(2)
            negated = "^" if kind.isupper() else ""
            return _Part([Take(re.compile(f"[{negated}{_CLASSES[kind.lower()]}]").match)])
        return _Part([Take(self._character().__eq__)])

    def _character(self) -> str:
        """The next character, which may be escaped."""
        if not self.left:
            raise self.error("a class is not closed")
        if self.left[0] != "\\":
            return self._take(1)
        kind = self.left[1:2]
        if kind in _CONTROLS:
            return _CONTROLS[self._take(2)[1]]
        if hexadecimal := _HEXADECIMAL.match(self.left):
            self._take(len(hexadecimal[0]))
            code = int(hexadecimal[1] or hexadecimal[2], 16)
            if code <= 0x10FFFF:
                return chr(code)
        if kind and kind.isascii() and not kind.isalnum():
            return self._take(2)[1]
        raise self.error(f"\\{kind} is not supported")

    def _take(self, count: int) -> str:
        taken, self.left = self.left[:count], self.left[count:]
        return taken


def _repetition(part: _Part, low: int, high: int | None, *, lazy: bool) -> Program:
    """`low` copies, then as many as may be; `lazy`: as few."""
    program = part.program
    if high is None:
        if low == 0 and not part.empty:
            around = Split(len(program) + 2, 1) if lazy else Split(1, len(program) + 2)
            return [around, *program, Jump(-len(program) - 1)]
        # What can be empty is tried once before it is left out: as in Go, so that groups are the same.
        again = Split(1, -len(program)) if lazy else Split(-len(program), 1)
        once = [*program, again]
        return program * (low - 1) + once if low else _optional(once, lazy=lazy)
    rest: Program = []
    for _ in range(high - low):
        rest = _optional(program + rest, lazy=lazy)
    return program * low + rest


def _optional(program: Program, *, lazy: bool) -> Program:
    around = Split(len(program) + 1, 1) if lazy else Split(1, len(program) + 1)
    return [around, *program]
