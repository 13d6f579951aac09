"""Parts of a diff: what a value is called, in the form and in the REST call, and each of its two sides."""

from __future__ import annotations

from collections.abc import Sequence

from django import template

from controlplane.web.differences import NOUN_OF_SECTION, shown_key
from controlplane.web.field_labels import in_its_unit, place_label
from controlplane.web.labels import noun_label
from controlplane.web.templatetags.headworks import readable
from controlplane.web.value_words import in_words
from wire.problems import Problem

register = template.Library()


@register.filter
def place(steps: Sequence[str], noun: str) -> str:
    """Where a value of a diff stands, as the form calls it."""
    return place_label(steps, noun)


@register.filter
def as_in_rest(steps: Sequence[str], noun: str) -> str:
    """The same as the REST call has it; empty where pages call it so, too."""
    called = place_label(steps, noun).casefold()
    return "" if called in (".".join(steps).casefold(), " › ".join(steps).casefold()) else ".".join(steps)


@register.simple_tag
def side(value: str | bool, steps: Sequence[str], noun: str) -> str:
    return readable(value if isinstance(value, bool) else in_words(steps, noun, in_its_unit(steps, noun, value)))


@register.filter
def warned_place(warning: Problem) -> str:
    """What a warning is about, where it does not name it itself: an object, or a place in a file; else empty."""
    section, _slash, key = warning.path.removeprefix("/").partition("/")
    if section not in NOUN_OF_SECTION:
        return warning.path if key else ""
    name = key.replace("~1", "/").replace("~0", "~")
    noun = NOUN_OF_SECTION[section]
    if not name or f"'{name}'" in warning.message:
        return ""
    return f"{noun_label(noun)} {shown_key(noun, name)}"
