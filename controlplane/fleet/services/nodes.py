"""Nodes: machines with GPUs, and their cordon."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.db.models import prefetch_related_objects

from controlplane import settings_rows
from controlplane.core import fields as f
from controlplane.core.changes import UnitOfWork
from controlplane.core.models import Target, TargetKind
from controlplane.core.nouns import PAGE_ROWS, Noun, page_of, present
from controlplane.fleet import models as rows
from controlplane.fleet.health import node_health
from wire.canonical import Document


class NodeFields(f.Fields):
    """A node has a name; everything else its agent reports, or its cordon sets."""


class NodeNoun(Noun[rows.Node]):
    noun = "node"
    row = rows.Node
    fields = NodeFields
    section = "nodes"
    # POST /nodes/report is where agents report.
    reserved_names = frozenset({"report"})

    def describe(self, row: rows.Node) -> Document:
        return {
            "name": row.name,
            "cordoned": row.cordoned,
            "cordon_reason": row.cordon_reason or None,
            "cordon_applied": row.cordon_applied,
            "agent_version": row.agent_version or None,
            "driver_version": row.driver_version or None,
            "cuda_version": row.cuda_version or None,
            "gpu_source": row.gpu_source,
            "gpu_problems": row.gpu_problems,
            "host_problems": row.host_problems,
            "simulated": row.simulated,
            "reported_at": f.iso(row.reported_at),
        }

    def wire_form(self, row: rows.Node) -> Document:
        return present({"name": row.name, "cordoned": row.cordoned, "cordon_reason": row.cordon_reason or None})

    def users(self, row: rows.Node) -> list[str]:
        engines = [f"engine {name!r}" for name in row.engines.order_by("name").values_list("name", flat=True)]
        agent = Target.objects.filter(kind=TargetKind.NODE, name=row.name, revoked_at=None)
        return (
            engines
            + open_acts(row)
            + ([f"its enrolled agent (revoke the target node/{row.name})"] if agent.exists() else [])
        )

    def touch(self, unit: UnitOfWork, row: rows.Node, name: str) -> None:
        """Gateways know no nodes: a cordon reaches them through the node's engines."""
        super().touch(unit, row, name)
        for engine in row.engines.order_by("name").values_list("name", flat=True):
            unit.touch("engines", engine)

    def ensure(self, unit: UnitOfWork, name: str) -> rows.Node:
        """The node, made if there is none."""
        return self.find(name, lock=True) or self.create(unit, name, {})

    def cordon(self, unit: UnitOfWork, name: str) -> rows.Node:
        """Let the node's engines take no new work. The reason is that of the unit of work."""
        return self._set_cordon(unit, name, cordoned=True, reason=unit.reason)

    def uncordon(self, unit: UnitOfWork, name: str) -> rows.Node:
        """Take the node's cordon back. An engine that was cordoned itself stays so."""
        return self._set_cordon(unit, name, cordoned=False, reason="")

    def _set_cordon(self, unit: UnitOfWork, name: str, *, cordoned: bool, reason: str) -> rows.Node:
        row = self.lock(name)
        before = self.describe(row)
        row.cordoned, row.cordon_reason = cordoned, reason
        return self._save(unit, row, name, before)


NODES = NodeNoun()


def described_with_health(nodes: Sequence[rows.Node], now: datetime) -> list[Document]:
    """The public forms with what agents found and allow, and `health` with its reasons, which time can change.

    Two queries, however many nodes.
    """
    prefetch_related_objects(nodes, "gpus", "engines")
    silent_seconds = settings_rows.TARGET_SILENT_SECONDS.read()
    described = []
    for row in nodes:
        health, reasons = node_health(row, row.gpus.all(), row.engines.all(), now, silent_seconds)
        told = {"allowed_acts": row.allowed_acts, "found_engines": row.found_engines}
        described.append({**NODES.describe(row), **told, "health": health, "health_reasons": reasons})
    return described


def open_acts(subject: rows.Node | rows.Engine) -> list[str]:
    """The acts on a node, its engines' included, or on one engine that have not ended, in words."""
    ids = subject.acts.filter(state__in=rows.OPEN_STATES).order_by("pk").values_list("act_id", flat=True)
    return [f"act {act_id}" for act_id in ids]


def describe_gpu(row: rows.Gpu) -> Document:
    return {
        "id": row.pk,
        "node": row.node.name,
        "uuid": row.uuid,
        "index": row.index,
        "model": row.model,
        "memory_bytes": row.memory_bytes,
        "pci_bus_id": row.pci_bus_id or None,
        "simulated": row.simulated,
        "state": row.state,
        "reported_at": f.iso(row.reported_at),
    }


def page_gpus(node: str = "", limit: int = PAGE_ROWS, after: int = 0) -> tuple[list[rows.Gpu], int | None]:
    """GPUs as reported, of one node or of all, in the order in which they were first seen."""
    gpus = rows.Gpu.objects.select_related("node").filter(pk__gt=after)
    if node:
        gpus = gpus.filter(node=NODES.get(node))
    return page_of(gpus.order_by("pk"), limit, lambda row: row.pk)
