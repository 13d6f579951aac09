"""Inputs that the forms share: of numbers, and of text that a program reads."""

from __future__ import annotations

from typing import Any

from django import forms


def numeric() -> forms.TextInput:
    """Of a whole number: a browser's own number field turns with the wheel and hides what it cannot read."""
    return forms.TextInput(attrs={"inputmode": "numeric"})


def decimal() -> forms.TextInput:
    return forms.TextInput(attrs={"inputmode": "decimal"})


def code(rows: int, **attrs: Any) -> forms.Textarea:
    """Of several lines that no spelling is looked up for."""
    return forms.Textarea(attrs={"rows": rows, "class": "code", "spellcheck": "false", **attrs})
