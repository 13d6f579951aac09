"""Engines that a lever waits for: arguments, and files, are taken at their next start, by a rollout or a person."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from controlplane.core.fields import epoch_ms
from controlplane.fleet.models import Act, ActState, Engine
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
        for engine in Engine.objects.select_related("node").filter(pool__name=edit["key"]).order_by("name"):
            told = engine.facts.get("arguments")
            if told and not engine.takes_no_work and (lacking := differing(wanted, told)):
                found.append(f"engine {engine.name} to start with {', '.join(sorted(lacking))}")
    return found


def waiting_for_files(act_ids: Collection[str], pools: Collection[str]) -> list[str]:
    """By acts that brought files to nodes: each engine of these pools there that has not started since.

    Nodes tell both times by their own clock. An engine that does not tell is not waited for.
    """
    found = []
    brought = Act.objects.filter(act_id__in=act_ids, action="fetch_model", state=ActState.DONE)
    for node, at in brought.order_by("pk").values_list("node", "state_at"):
        for engine in Engine.objects.select_related("node").filter(node=node, pool__name__in=pools).order_by("name"):
            started_at_ms = engine.facts.get("started_at_ms")
            if started_at_ms is not None and not engine.takes_no_work and started_at_ms < epoch_ms(at):
                found.append(f"engine {engine.name} to start from its files")
    return found


def _wanted(edit: Document) -> Document:
    """The arguments that the edit changed, as they are to be."""
    before, after = (edit["before"] or {}).get(_ARGUMENTS) or {}, edit["after"].get(_ARGUMENTS) or {}
    return {name: value for name, value in after.items() if before.get(name) != value}
