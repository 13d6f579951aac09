"""How long a text or list comes out of an operator, a filter or a method of a chat template: known before it is made.

Lengths are in characters. What asks for more than any template needs is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any

from policy.template_work import BadTemplate, Work

MAX_EXPONENT = 64
_MAX_BITS = 4_096
# Spaces before a line, and digits behind a point.
_MAX_WIDTH = 64
# What a field of at most three digits is filled up to.
_MAX_FIELD = 1_000
# A value in a list takes about as much memory.
_CHARACTERS_A_VALUE = 64
# What may ask for a wide field: a number of four digits, or one that comes with the values.
_WIDE = re.compile(r"\d{4}|%[^%]*\*|:[^}]*\{")


def weight_of(work: Work, value: Any, *args: Any, **options: Any) -> int:
    return work.weigh(value)


def length_of(work: Work, value: Any, *args: Any, **options: Any) -> int:
    return len(value) * _CHARACTERS_A_VALUE if isinstance(value, Collection) else 0


def _size_joined(work: Work, values: Any, between: Any = "", attribute: Any = None, *, d: Any = "") -> int:
    return work.weigh(values) + len(values) * work.weigh(between or d) if isinstance(values, Collection) else 0


def _size_replaced(work: Work, value: Any, old: Any, new: Any, count: Any = None) -> int:
    weight = work.weigh(value)
    places = value.count(old) if isinstance(value, str) and isinstance(old, str) else weight + 1
    return weight + places * work.weigh(new)


def _size_indented(work: Work, value: Any, width: Any = 4, *args: Any, **options: Any) -> int:
    weight = work.weigh(value)
    lines = value.count("\n") + 1 if isinstance(value, str) else weight
    return weight + lines * width_of(width)


def _size_rounded(work: Work, value: Any, precision: Any = 0, *args: Any, **options: Any) -> int:
    return width_of(precision)


def _size_summed(work: Work, values: Any, attribute: Any = None, start: Any = 0) -> int:
    if not isinstance(start, int | float):
        raise BadTemplate("only numbers have a sum")
    return length_of(work, values)


SIZES: dict[str, Callable[..., int]] = {
    "join": _size_joined,
    "replace": _size_replaced,
    "indent": _size_indented,
    "round": _size_rounded,
    "sum": _size_summed,
}


def size_of_method(work: Work, text: str, name: str, *args: Any, **options: Any) -> int:
    """Of what a method of a text makes."""
    match name:
        case "join":
            return sum(_size_joined(work, values, text) for values in args)
        case "replace":
            return _size_replaced(work, text, *args, **options)
        case "format":
            return _size_formatted(work, text, "{", [*args, *options.values()])
        case _:
            return len(text)


def _size_formatted(work: Work, text: str, mark: str, values: Any) -> int:
    if _WIDE.search(text):
        raise BadTemplate("it formats with a width of four digits, or one that it computes")
    return len(text) + text.count(mark) * (_MAX_FIELD + work.weigh(values))


def width_of(width: Any) -> int:
    size = len(width) if isinstance(width, str) else abs(int(width or 0))
    if size > _MAX_WIDTH:
        raise BadTemplate(f"it asks for a width above {_MAX_WIDTH}")
    return size


def size_after(work: Work, operator: str, left: Any, right: Any) -> int:
    """The length of the text or list that an operator makes; 0 where it makes neither."""
    if operator == "%":
        return _size_formatted(work, left, "%", right) if isinstance(left, str) else 0
    if isinstance(left, int) and isinstance(right, int):
        _check_number(operator, left, right)
        return 0
    if operator == "**" and abs(right) > MAX_EXPONENT:
        raise BadTemplate(f"it raises to a power above {MAX_EXPONENT}")
    if operator == "+":
        return _length_after(left) + _length_after(right)
    if operator == "*":
        sized, times = (left, right) if isinstance(right, int) else (right, left)
        return _length_after(sized) * times if isinstance(times, int) else 0
    return 0


def _check_number(operator: str, left: int, right: int) -> None:
    if operator == "**" and abs(right) > MAX_EXPONENT:
        raise BadTemplate(f"it raises to a power above {MAX_EXPONENT}")
    bits = left.bit_length() * abs(right) if operator == "**" else left.bit_length() + right.bit_length()
    if bits > _MAX_BITS:
        raise BadTemplate(f"it makes a number of more than {_MAX_BITS} bits")


def _length_after(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    return len(value) * _CHARACTERS_A_VALUE if isinstance(value, list | tuple) else 0
