"""Pins of tenants, held against the versions of models: these are no part of the configuration, and pins are.

So a text of the configuration can be brought into a site that knows no version of a family yet; where it knows some, a
pin names one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from controlplane.configs.references import EntryKey, Transition
from controlplane.core.nouns import some_of
from controlplane.fleet.models import ModelVersion
from wire.canonical import Document
from wire.problems import Problem, pointer


def pins_to_others(changed: Mapping[EntryKey, Transition]) -> list[Problem]:
    """Pins of this write, and not of one before it, whose model is no version of the family, or is retired."""
    moved = [
        (tenant, family, model)
        for (section, tenant), (before, after) in changed.items()
        if section == "tenants"
        for family, model in _new_pins(before, after)
    ]
    if not moved:
        return []
    versions: dict[str, dict[str, bool]] = {}
    found = ModelVersion.objects.filter(family__in={family for _, family, _ in moved}).order_by("-pk")
    for family, model, retired_at in found.values_list("family", "model__name", "retired_at"):
        versions.setdefault(family, {})[model] = retired_at is not None
    return [
        problem
        for tenant, family, model in moved
        if family in versions
        for problem in _problems(
            pointer(pointer("/tenants", tenant) + "/pins", family), family, model, versions[family]
        )
    ]


def _problems(at: str, family: str, model: str, versions: Mapping[str, bool]) -> Iterator[Problem]:
    if model not in versions:
        serving = [name for name, is_retired in versions.items() if not is_retired]
        yield Problem(at, "reference", f"{model!r} is no version of {family!r}; there are {some_of(serving)}")
    elif versions[model]:
        yield Problem(at, "retired", f"{model!r} is a retired version of {family!r}; bring it back first")


def _new_pins(before: Document | None, after: Document | None) -> Iterator[tuple[str, str]]:
    had, has = _pins(before), _pins(after)
    for family, model in has.items():
        if had.get(family) != model and isinstance(model, str):
            yield family, model


def _pins(content: Document | None) -> Mapping[str, Any]:
    """None in an entry that is malformed, of which others tell."""
    pins = {} if content is None else content.get("pins")
    return pins if isinstance(pins, dict) else {}
