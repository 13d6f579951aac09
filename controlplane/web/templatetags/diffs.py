"""Parts of a diff: what a value is called, in the form and in the REST call, and each of its two sides."""

from __future__ import annotations

from collections.abc import Sequence

from django import template

from controlplane.web.field_labels import in_its_unit, place_label
from controlplane.web.templatetags.headworks import readable

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
    return readable(value if isinstance(value, bool) else in_its_unit(steps, noun, value))
