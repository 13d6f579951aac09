"""What agents report: inventory, engine states, acts. Of it, KV capacity and the end of an act are configuration."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import NamedTuple

from django.db import transaction
from msgspec import UNSET, UnsetType

from controlplane.core import fields as f
from controlplane.core.changes import Actor, UnitOfWork, unit_of_work
from controlplane.core.reported import reported_text
from controlplane.fleet import models as rows
from controlplane.fleet.services import acts, model_files
from controlplane.fleet.services.engines import ENGINES, LEAVING
from controlplane.fleet.services.nodes import NODES
from wire.canonical import Document
from wire.messages import EngineReport, FoundEngine, GpuReport, NodeReport
from wire.problems import Problem

_GPU_FACTS = ("index", "model", "memory_bytes", "pci_bus_id", "simulated", "state", "reported_at")
_ENGINE_FACTS = ("state", "version", "error", "condition", "facts", "reported_at")


class Ignored(NamedTuple):
    """What a report names and its node does not have."""

    engines: list[str]
    acts: list[str]


def take_report(node_name: str, report: NodeReport, now: datetime) -> Ignored:
    """Store a node's report, all or nothing. Returns the reported engines and acts that are not this node's.

    A unit of work, with audit and revision, opens only when an engine's KV capacity changed or an act ended. Raises
    NotFound where there is no such node, Refused where a GPU, an engine or an act is reported twice.
    """
    _refuse_doubles(report)
    reasons = []
    if _measures_anew(node_name, report):
        reasons.append("the KV capacity that the agent measured changed")
    if _leaves_or_is_back(node_name, report):
        reasons.append("an engine is about to be ended by its node, or is back")
    if acts.changes_any(node_name, report.acts):
        reasons.append("the agent told what became of an act")
    if reasons:
        with unit_of_work(Actor("target", f"node/{node_name}"), "; ".join(reasons)) as unit:
            return _take(unit, node_name, report, now)
    with transaction.atomic():
        return _take(None, node_name, report, now)


def _measures_anew(node_name: str, report: NodeReport) -> bool:
    """Whether an engine's KV capacity is another than the known one.

    Asked before anything is locked, since a unit of work must open before that. A capacity that someone changes in
    between is taken from the next report.
    """
    reported = {engine.name: engine.kv_capacity_tokens for engine in report.engines}
    known = rows.Engine.objects.filter(node__name=node_name, name__in=reported)
    return any(
        reported[name] not in (UNSET, capacity) for name, capacity in known.values_list("name", "kv_capacity_tokens")
    )


def _leaves_or_is_back(node_name: str, report: NodeReport) -> bool:
    """Whether an engine is to be held out, or put back, that nothing else holds out. Asked before any lock is held."""
    leaving = {engine.name: engine.leaving for engine in report.engines}
    known = rows.Engine.objects.filter(node__name=node_name, name__in=leaving, held_out_by__in=("", LEAVING))
    return any(leaving[name] != (held == LEAVING) for name, held in known.values_list("name", "held_out_by"))


def _take(unit: UnitOfWork | None, node_name: str, report: NodeReport, now: datetime) -> Ignored:
    by_name = {engine.name: engine for engine in report.engines}
    # Engines before their node, as a write to an engine locks them: in one order, none waits in a circle.
    locked = ENGINES.queryset().select_for_update(of=("self",)).filter(node__name=node_name, name__in=by_name)
    engines = list(locked.order_by("pk"))
    node = NODES.lock(node_name)
    _take_node(node, report, now)
    _take_gpus(node, report.gpus, now)
    model_files.take(node, report.model_files, now)
    _take_engines(engines, by_name, now)
    if unit is not None:
        for engine in engines:
            capacity = by_name[engine.name].kv_capacity_tokens
            if capacity is not UNSET and capacity != engine.kv_capacity_tokens:
                ENGINES.measured(unit, engine, capacity)
            if engine.held_out_by in ("", LEAVING):
                ENGINES.left_or_back(unit, engine, by_name[engine.name].leaving)
    unknown_acts = acts.take_results(unit, node, report.acts, now)
    return Ignored(sorted(by_name.keys() - {engine.name for engine in engines}), unknown_acts)


def _refuse_doubles(report: NodeReport) -> None:
    # By what is stored of them: two texts that no database tells apart are the same.
    listed = {
        "gpus": Counter(_text(gpu.uuid) for gpu in report.gpus),
        "engines": Counter(engine.name for engine in report.engines),
        "acts": Counter(act.id for act in report.acts),
    }
    f.refuse_if(
        [
            Problem(f"/{part}", "unique", f"{key!r} is reported {count} times; report each once")
            for part, counts in listed.items()
            for key, count in counts.items()
            if count > 1
        ]
    )


def _take_node(node: rows.Node, report: NodeReport, now: datetime) -> None:
    node.agent_version = _text(report.version)
    node.driver_version = _text(report.driver_version)
    node.cuda_version = _text(report.cuda_version)
    node.gpu_source = report.gpu_source
    node.gpu_problems = [_text(problem) for problem in report.gpu_problems]
    node.host_problems = [_text(problem) for problem in report.host_problems]
    node.simulated = report.simulated
    node.cordon_applied = report.cordon_applied
    node.allowed_acts = {
        _text(engine): [_text(action) for action in actions] for engine, actions in report.allowed_acts.items()
    }
    node.found_engines = [_found(engine) for engine in report.found_engines]
    node.reported_at = now
    node.reported_revision = None if report.revision is UNSET else report.revision
    node.save()


def _take_gpus(node: rows.Node, reports: list[GpuReport], now: datetime) -> None:
    """Keep what was reported and forget what is gone."""
    node.gpus.exclude(uuid__in=[_text(gpu.uuid) for gpu in reports]).delete()
    rows.Gpu.objects.bulk_create(
        (
            rows.Gpu(
                node=node,
                uuid=_text(gpu.uuid),
                index=gpu.index,
                model=_text(gpu.model),
                memory_bytes=None if gpu.memory_bytes is UNSET else gpu.memory_bytes,
                pci_bus_id=_text(gpu.pci_bus_id),
                simulated=gpu.simulated,
                state=gpu.state,
                reported_at=now,
            )
            for gpu in reports
        ),
        update_conflicts=True,
        unique_fields=["node", "uuid"],
        update_fields=_GPU_FACTS,
    )


def _take_engines(engines: list[rows.Engine], by_name: dict[str, EngineReport], now: datetime) -> None:
    for engine in engines:
        report = by_name[engine.name]
        engine.state, engine.error, engine.reported_at = report.state, _text(report.error), now
        engine.condition, engine.facts = report.condition, _facts(report)
        if report.version is not UNSET:
            engine.version = _text(report.version)
    rows.Engine.objects.bulk_update(engines, _ENGINE_FACTS)


def _found(engine: FoundEngine) -> Document:
    return {
        "url": _text(engine.url),
        "kind": engine.kind,
        "version": _text(engine.version) or None,
        "models": [_text(model) for model in engine.models],
    }


def _facts(report: EngineReport) -> Document:
    """What is told; a time that no calendar has is not."""
    facts: Document = {
        "arguments": {_text(name): _text(value) for name, value in report.arguments.items()},
        "start_phases_ms": {_text(phase): took_ms for phase, took_ms in report.start_phases_ms.items()},
        "adapters": {_text(name): _text(folder) for name, folder in report.adapters.items()},
        "adapter_problems": {_text(name): _text(why) for name, why in report.adapter_problems.items()},
        "probes": {_text(name): outcome for name, outcome in report.probes.items()},
        "versions": {_text(name): _text(value) for name, value in report.versions.items()},
        "digests": {_text(name): digest for name, digest in report.digests.items()},
    }
    if report.max_length_tokens is not UNSET:
        facts["max_length_tokens"] = report.max_length_tokens
    if report.started_at_ms is not UNSET and report.started_at_ms <= f.EPOCH_MS_MAX:
        facts["started_at_ms"] = report.started_at_ms
    if report.model_path is not UNSET:
        facts["model_path"] = _text(report.model_path)
    if report.model_bytes is not UNSET:
        facts["model_bytes"] = report.model_bytes
    return facts


def _text(value: str | UnsetType) -> str:
    return "" if value is UNSET else reported_text(value)
