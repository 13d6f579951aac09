"""Filters above lists: chosen from a few, or typed where there are many names, and then the browser completes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from controlplane.web.forms.long_choices import CHOICES_MAX


class Choice(NamedTuple):
    """A filter (parts/choice.html). `values`: each with what it is called; `everything`: what all are called."""

    name: str
    label: str
    everything: str
    values: list[tuple[str, str]]
    chosen: str

    @property
    def is_typed(self) -> bool:
        return len(self.values) > CHOICES_MAX


def among(name: str, label: str, everything: str, names: Iterable[str], chosen: str) -> Choice:
    """A filter by names; the chosen one is among them also where it is there no more."""
    return Choice(name, label, everything, [(each, each) for each in sorted({*names, chosen} - {""})], chosen)
