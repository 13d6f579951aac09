"""The fleet's GPUs as machines to plan with: nodes that have the same, and how their GPUs reach each other."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import NamedTuple

from django.utils import timezone

from controlplane.core import fields as f
from controlplane.fleet.models import Gpu as GpuRow
from controlplane.planner.plan_described import gpu_described
from controlplane.planner.plan_fields import GPUS_PER_NODE_MAX, NODES_MAX, GpusAsked
from controlplane.telemetry import query
from policy.planning.gpus import GPUS, Gpu, Link, Machines, called
from policy.planning.known import KNOWN
from wire.canonical import Document
from wire.problems import Problem

log = logging.getLogger(__name__)
# What agents read of the links between the GPUs of a node, by `nvidia-smi topo`'s names: NV4, PIX, SYS …
LINKS_QUERY = "count by (node, link) (headworks_gpu_topology_info)"
_NVLINK = "NV"
_USABLE = "ok"


class Group(NamedTuple):
    """Nodes with as many of the same GPU. `link` is None where no agent told: then the usual one is taken."""

    gpu: Gpu
    per_node: int
    nodes: tuple[str, ...]
    link: Link | None

    @property
    def machines(self) -> Machines:
        return Machines(self.gpu, self.per_node, len(self.nodes), self.link or self.gpu.link)


def groups() -> list[Group]:
    """Nodes with the same GPUs that are well and whose memory is known; those with most GPUs first."""
    by_node: dict[str, list[GpuRow]] = {}
    for row in GpuRow.objects.filter(state=_USABLE).select_related("node").order_by("node__name", "index"):
        by_node.setdefault(row.node.name, []).append(row)
    links = _links()
    found: dict[tuple[Gpu, int, Link | None], list[str]] = {}
    for name, rows in by_node.items():
        # Of several kinds in a node an engine spans one.
        for gpu, count in _kinds(rows):
            found.setdefault((gpu, count, links.get(name)), []).append(name)
    made = [Group(gpu, count, tuple(nodes), link) for (gpu, count, link), nodes in found.items()]
    return sorted(made, key=lambda group: (-group.machines.gpus, group.gpu.name))


def _kinds(rows: Iterable[GpuRow]) -> list[tuple[Gpu, int]]:
    counts: dict[Gpu, int] = {}
    for row in rows:
        gpu = called(row.model, row.memory_bytes)
        if gpu is not None and gpu.memory_bytes > 0:
            counts[gpu] = counts.get(gpu, 0) + 1
    return list(counts.items())


def _links() -> dict[str, Link]:
    """Node → the slowest link between two of its GPUs, which binds an all-reduce of all."""
    try:
        samples = query.instant(LINKS_QUERY, f.epoch_ms(timezone.now()), seconds_max=query.PAGE_SECONDS)
    except query.QueryError as error:
        log.info("the links of GPUs are not known: %s", error)
        return {}
    found: dict[str, Link] = {}
    for sample in samples:
        node, link = sample.labels.get("node", ""), sample.labels.get("link", "")
        if not link.startswith(_NVLINK):
            found[node] = "pcie"
        else:
            found.setdefault(node, "nvlink")
    return found


def machines_of(asked: GpusAsked) -> Machines:
    """The nodes that are like `fleet_node`; what is given beside it counts instead. Raises Refused."""
    group = next((group for group in groups() if asked.fleet_node in group.nodes), None)
    if group is None:
        says = f"no GPU of a node {asked.fleet_node!r} is known and well; GET /api/v1/plans/gpus lists those that are"
        raise f.refused([Problem("/gpus/fleet_node", "reference", says)])
    return Machines(
        group.gpu,
        min(asked.per_node or group.per_node, GPUS_PER_NODE_MAX),
        min(asked.nodes or len(group.nodes), NODES_MAX),
        asked.link or group.machines.link,
    )


def describe() -> Document:
    """What can be planned with: the table's GPUs, the fleet's, the models that are known by name."""
    return {
        "known": [gpu_described(gpu) for gpu in GPUS],
        "fleet": [
            {
                "nodes": list(group.nodes),
                "gpu": group.gpu.name,
                "memory_bytes": group.gpu.memory_bytes,
                "per_node": group.per_node,
                "link": group.machines.link,
                "link_is_measured": group.link is not None,
            }
            for group in groups()
        ],
        "models": list(KNOWN),
    }
