"""Fields of names and their values, one pair a line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from wire.canonical import MAX_INTEGER

_DIGITS = re.compile(r"-?[0-9]{1,16}")


class ArgumentsField(forms.CharField):
    """Engine arguments, one a line as name=value. true and false are switches, digits alone a number.

    What stands in double quotes is a text whatever it looks like.
    """

    def prepare_value(self, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        return "\n".join(f"{name}={_written(each)}" for name, each in value.items())

    def clean(self, value: Any) -> dict[str, Any]:
        lines = [line.strip() for line in (super().clean(value) or "").splitlines()]
        pairs = [line.partition("=") for line in lines if line]
        for name, separator, _value in pairs:
            if not separator:
                text = _("Give each argument as name=value, not “%(line)s”.")
                raise forms.ValidationError(text % {"line": name})
        given: dict[str, Any] = {}
        for typed, _separator, value_typed in pairs:
            name = typed.strip().removeprefix("--")
            if name in given:
                raise forms.ValidationError(_("“%(name)s” is given twice.") % {"name": name})
            given[name] = _read(value_typed.strip())
        return given


def _read(text: str) -> str | int | bool:
    if text in ("true", "false"):
        return text == "true"
    if len(text) > 1 and text[0] == text[-1] == '"':
        return text[1:-1]
    # 007 stays a name.
    is_number = _DIGITS.fullmatch(text) and str(int(text)) == text and abs(int(text)) <= MAX_INTEGER
    return int(text) if is_number else text


def _written(value: str | int | bool) -> str:
    """As it is typed, so that it is read as the same again."""
    if not isinstance(value, str):
        return str(value).lower()
    return value if _read(value.strip()) == value else f'"{value}"'
