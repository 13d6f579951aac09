"""What agents report: inventory and engine states. Only an engine's measured KV capacity is configuration."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from django.db import transaction
from msgspec import UNSET, UnsetType

from controlplane.core import fields as f
from controlplane.core.changes import Actor, unit_of_work
from controlplane.fleet import models as rows
from controlplane.fleet.services.engines import ENGINES
from controlplane.fleet.services.nodes import NODES
from wire.messages import EngineReport, GpuReport, NodeReport
from wire.problems import Problem

_GPU_FACTS = ("index", "model", "memory_bytes", "pci_bus_id", "simulated", "reported_at")
_ENGINE_FACTS = ("state", "version", "error", "reported_at")


def take_report(node_name: str, report: NodeReport, now: datetime) -> list[str]:
    """Store a node's report, all or nothing. Returns the reported engines that are not this node's, which are ignored.

    A unit of work, with audit and revision, opens only when an engine's KV capacity changed. Raises NotFound where
    there is no such node, Refused where a GPU or an engine is reported twice.
    """
    _refuse_doubles(report)
    with transaction.atomic():
        node = NODES.lock(node_name)
        _take_node(node, report, now)
        _take_gpus(node, report.gpus, now)
        return _take_engines(node, report.engines, now)


def _refuse_doubles(report: NodeReport) -> None:
    listed = {"gpus": Counter(gpu.uuid for gpu in report.gpus), "engines": Counter(e.name for e in report.engines)}
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
    node.gpu_source = report.gpu_source
    node.simulated = report.simulated
    node.cordon_applied = report.cordon_applied
    node.reported_at = now
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
                reported_at=now,
            )
            for gpu in reports
        ),
        update_conflicts=True,
        unique_fields=["node", "uuid"],
        update_fields=_GPU_FACTS,
    )


def _take_engines(node: rows.Node, reports: list[EngineReport], now: datetime) -> list[str]:
    by_name = {report.name: report for report in reports}
    locked = ENGINES.queryset().select_for_update(of=("self",)).filter(node=node, name__in=by_name).order_by("pk")
    engines = {engine.name: engine for engine in locked}
    for name, engine in engines.items():
        report = by_name[name]
        engine.state, engine.error, engine.reported_at = report.state, _text(report.error), now
        if report.version is not UNSET:
            engine.version = _text(report.version)
    rows.Engine.objects.bulk_update(engines.values(), _ENGINE_FACTS)
    measured = {
        name: capacity
        for name, engine in engines.items()
        if (capacity := by_name[name].kv_capacity_tokens) is not UNSET and capacity != engine.kv_capacity_tokens
    }
    if measured:
        with unit_of_work(Actor("target", node.name), "the KV capacity that the agent measured changed") as unit:
            for name, capacity in measured.items():
                ENGINES.update(unit, name, {"kv_capacity_tokens": capacity})
    return sorted(by_name.keys() - engines.keys())


def _text(value: str | UnsetType) -> str:
    """Text as it can be stored: PostgreSQL holds no U+0000, and an engine's error may hold anything."""
    return "" if value is UNSET else value.replace("\x00", "\N{REPLACEMENT CHARACTER}")
