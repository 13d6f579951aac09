"""Fields that offer many names: a page holds each list once, however many of its fields offer it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from django import forms
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

# So many are still found at a glance; more are typed, and the browser completes them.
CHOICES_MAX = 50


class NameList(NamedTuple):
    """What a text field offers: each value with what is said of it, empty where that is the value."""

    id: str
    options: tuple[tuple[str, str], ...]


class NamesInput(forms.Textarea):
    """Several names, one a line, of a field that takes a list. On the way through a review there is one input each.

    `offered`: those that there are, which the page shows folded: browsers complete no text of several lines.
    """

    def __init__(self, offered: Sequence[str], attrs: dict[str, Any]) -> None:
        super().__init__(attrs)
        self.offered = offered

    def value_from_datadict(self, data: Any, files: Any, name: str) -> list[str]:
        typed = data.getlist(name) if hasattr(data, "getlist") else data.get(name) or []
        return [line.strip() for text in typed for line in str(text).splitlines() if line.strip()]

    def format_value(self, value: Any) -> str:
        return "\n".join(value or ())


def shorten(fields: Mapping[str, forms.Field]) -> list[NameList]:
    """Let fields with too many choices be typed; what they may hold stays the same. Returns the lists they offer."""
    ids: dict[tuple[tuple[str, str], ...], str] = {}
    for field in fields.values():
        widget = field.widget
        if not isinstance(widget, forms.Select | forms.CheckboxSelectMultiple):
            continue
        choices = list(_flat(widget.choices))
        if len(choices) <= CHOICES_MAX:
            continue
        if isinstance(widget, forms.Select):
            options = tuple((value, "" if label == value else label) for value, label in choices if value)
            attrs = {"list": ids.setdefault(options, f"names-{len(ids)}"), "autocomplete": "off"}
            if none := dict(choices).get(""):
                attrs["placeholder"] = none
            field.widget = forms.TextInput(attrs={**widget.attrs, **attrs})
        else:
            look = {**widget.attrs, "rows": 4, "class": "code", "spellcheck": "false"}
            field.widget = NamesInput([value for value, _label in choices], look)
            field.help_text = format_lazy("{} {}", _("One name a line."), field.help_text)
        field.widget.is_required = field.required
    return [NameList(id_, options) for options, id_ in ids.items()]


def _flat(choices: Iterable[Any]) -> Iterator[tuple[str, str]]:
    """Choices without their groups, as text."""
    for value, label in choices:
        if isinstance(label, list | tuple):
            yield from _flat(label)
        else:
            yield str(value), str(label)
