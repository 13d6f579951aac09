"""Fields of numbers, each typed in the unit that its label names. Ranges that are the service's own stay with it."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from controlplane.web.forms.common import ScaledField
from controlplane.web.forms.inputs import numeric


class Number(forms.IntegerField):
    """A whole number. `meaning` is what the field says of itself, `empty` what it means to leave it so, if one may."""

    def __init__(self, meaning: Any, empty: Any, **options: Any) -> None:
        widget = numeric()
        super().__init__(help_text=_help(meaning, empty), required=not empty, widget=widget, **options)
        self.meaning, self.empty = meaning, empty


class ScaledNumber(ScaledField):
    """As `Number`, typed in a larger unit."""

    def __init__(self, scale: int, meaning: Any, empty: Any, **options: Any) -> None:
        super().__init__(scale, help_text=_help(meaning, empty), required=not empty, **options)
        self.meaning, self.empty = meaning, empty


def _help(meaning: Any, empty: Any) -> Any:
    said = format_lazy(_("Empty: {meaning}."), meaning=empty)
    return (format_lazy("{} {}", meaning, said) if meaning else said) if empty else meaning


def whole(label: Any, meaning: Any = "", *, empty: Any = "", least: int = 0) -> Number:
    return Number(meaning, empty, label=label, min_value=least)


def percent(
    label: Any, meaning: Any = "", *, empty: Any = "", least_permille: int = 0, most_permille: int = 1000
) -> ScaledNumber:
    """Per mille, typed as percent."""
    bounds = {"min_value": least_permille / 10, "max_value": most_permille / 10}
    return ScaledNumber(10, meaning, empty, label=label, decimal_places=1, **bounds)


def seconds(label: Any, meaning: Any = "", *, empty: Any = "") -> ScaledNumber:
    """Milliseconds, typed as seconds."""
    return ScaledNumber(1000, meaning, empty, label=label, min_value=0, decimal_places=3)
