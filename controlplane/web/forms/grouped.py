"""Forms of nouns with so many fields that they stand in groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from django import forms
from django.forms import BoundField
from django.utils.formats import number_format
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from controlplane.web.forms.alert import NounForm
from controlplane.web.forms.numbers import Number, ScaledNumber


class Group(NamedTuple):
    """`names` of the fields, under a title and a sentence that says what they are for."""

    title: Any
    note: Any
    names: tuple[str, ...]


class GroupedForm(NounForm):
    """`groups` names every field but the name, which a new one has first."""

    groups: ClassVar[tuple[Group, ...]] = ()

    @property
    def grouped(self) -> Iterator[tuple[Group, list[BoundField]]]:
        if "name" in self.fields:
            yield Group("", "", ("name",)), [self["name"]]
        for group in self.groups:
            yield group, [self[name] for name in group.names]


@dataclass(frozen=True)
class SettingLine:
    """One field as a page shows it: `text`, or `lines` where it holds several."""

    label: Any
    help: Any
    text: str
    lines: list[str]

    @property
    def wide(self) -> bool:
        return bool(self.lines)


class Settings(NamedTuple):
    title: Any
    note: Any
    settings: list[SettingLine]


def settings_of(form: type[GroupedForm], described: Mapping[str, Any]) -> list[Settings]:
    """A row's public form, grouped, labelled and in the units of its form."""
    return [
        Settings(group.title, group.note, [_setting(bound) for bound in fields])
        for group, fields in form(initial=dict(described)).grouped
    ]


def _setting(bound: BoundField) -> SettingLine:
    value, field = bound.value(), bound.field
    if isinstance(value, bool):
        return SettingLine(bound.label, "", gettext("yes") if value else gettext("no"), [])
    if isinstance(field.widget, forms.Textarea):
        lines = str(value or "").splitlines()
        return SettingLine(bound.label, bound.help_text, "" if lines else "–", lines)
    if isinstance(field, forms.ChoiceField):
        text = next((label for choice, label in bound.field.widget.choices if choice == (value or "")), value)
    elif isinstance(field, Number | ScaledNumber) and value not in (None, ""):
        text = number_format(value, use_l10n=True, force_grouping=True)
    else:
        text = value
    meaning, empty = (field.meaning, field.empty) if isinstance(field, Number | ScaledNumber) else (bound.help_text, "")
    return SettingLine(bound.label, meaning, str(empty or "–") if text in (None, "") else str(text), [])


def name_field(help_text: Any = "") -> forms.CharField:
    return forms.CharField(
        label=_("Name"),
        max_length=200,
        help_text=help_text or _("1 to 63 of a-z, 0-9, '.', '_' and '-', the first a letter or digit."),
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )


def model_name_field() -> forms.CharField:
    return name_field(_("As clients send it, such as meta-llama/Llama-3.1-8B: letters, digits and . _ : / @ + -"))
