"""Engines that a lever's arguments wait for: each takes them at its next start, by a rollout or by a person."""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.fleet.models import Engine
from wire.canonical import Document
from wire.engine_arguments import differing

_ARGUMENTS = "engine_arguments"


def waiting_for_start(replaced: Iterable[Document]) -> list[str]:
    """By what edits replaced: each engine that runs without what its pool desires since, with those arguments.

    One whose agent tells no arguments, or that has none, is not waited for.
    """
    found = []
    for edit in replaced:
        if edit["noun"] != "pools" or not (wanted := _wanted(edit)):
            continue
        for engine in Engine.objects.filter(pool__name=edit["key"]).order_by("name"):
            told = engine.facts.get("arguments")
            if told and not engine.takes_no_work and (lacking := differing(wanted, told)):
                found.append(f"engine {engine.name} to start with {', '.join(sorted(lacking))}")
    return found


def _wanted(edit: Document) -> Document:
    """The arguments that the edit changed, as they are to be."""
    before, after = (edit["before"] or {}).get(_ARGUMENTS) or {}, edit["after"].get(_ARGUMENTS) or {}
    return {name: value for name, value in after.items() if before.get(name) != value}
