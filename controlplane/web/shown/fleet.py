"""Nodes, GPUs and engines in the form that pages show. What is wrong with a node is the judgement of `fleet.health`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from django.db.models import Exists, Max, OuterRef, QuerySet
from django.utils import timezone

from controlplane import settings_rows
from controlplane.alerts.models import Incident, IncidentState, PolicyCordon
from controlplane.breakers.standing import Forced
from controlplane.core.models import AuditEntry
from controlplane.fleet.drift import drift_of
from controlplane.fleet.health import failed_probes, node_health
from controlplane.fleet.models import Engine, Gpu, Node, Pool
from controlplane.fleet.services import facts_of
from controlplane.web.readings import Readings, earlier, latest
from wire.canonical import Document

SIMULATED_VERSION = "+simulated"
_MEBIBYTE = 1 << 20
# What the cells of GPUs and engines show.
_IN_CELLS = {
    "gpu_lost", "gpu_unresponsive", "gpu_error", "engine_down", "engine_hung", "engine_paused", "engine_sleeping",
}  # fmt: skip
# Those that need a person come first.
_ORDER = {"lost": 0, "degraded": 1, "cordoned": 2, "unknown": 3, "ok": 4}


@dataclass(frozen=True)
class GpuLine:
    """One GPU. `state` is what its agent sees, unknown where that is silent.

    A value that was not measured within the last minute, or whose GPU does not answer, is None. `as_of`: when the
    values were so, where their agent has been silent since.
    """

    index: int
    uuid: str
    model: str
    pci_bus_id: str
    state: str
    simulated: bool
    memory_bytes: int | None
    memory_used_bytes: int | None
    utilization_percent: float | None
    temperature_celsius: float | None
    as_of: datetime | None = None

    @property
    def failed(self) -> bool:
        return self.state not in ("ok", "unknown")


@dataclass(frozen=True)
class EngineLine:
    """One engine. `state` is what its agent sees, unknown where that is silent; `condition` says more of it than that.

    `cordoned` is its own cordon, `node_cordoned` that of its node. `forced` is the override that holds its breaker, if
    one does. `facts` is what its agent tells of its start, `drift` how it differs from what its pool desires. `as_of`:
    when its numbers were so, where its agent has been silent since.
    """

    name: str
    node: str
    pool: str
    model: str
    kind_label: str
    state: str
    condition: str
    error: str
    version: str
    facts: Document
    drift: Document
    simulated: bool
    cordoned: bool
    node_cordoned: bool
    held_out_by: str
    forced: Document | None
    kv_capacity_tokens: int | None
    kv_usage_percent: float | None
    running: int | None
    waiting: int | None
    as_of: datetime | None = None

    @property
    def drain(self) -> str:
        """How far an engine that gets no new requests has come: draining, drained; empty where it gets them."""
        kept_out = self.cordoned or self.node_cordoned or self.held_out_by
        if not kept_out or self.state != "up" or self.running is None or self.as_of is not None:
            return ""
        return "draining" if self.running + (self.waiting or 0) else "drained"

    @property
    def troubled(self) -> bool:
        return self.state == "down" or self.condition == "hung"

    @property
    def forced_state(self) -> str:
        """The name of its look, empty where nobody forced its breaker."""
        return f"forced_{self.forced['state']}" if self.forced else ""

    @property
    def forced_until(self) -> datetime | None:
        return datetime.fromisoformat(self.forced["expires_at"]) if self.forced else None

    @property
    def started_at(self) -> datetime | None:
        return datetime.fromisoformat(self.facts["started_at"]) if self.facts["started_at"] else None

    @property
    def failed_probes(self) -> str:
        return ", ".join(failed_probes(self))


class Reason(NamedTuple):
    """Why a node is not well, by its name in `fleet.health`; `what` lists all that it is so of."""

    name: str
    what: str


@dataclass(frozen=True)
class NodeLine:
    """One node with what it holds. `cordon` is the audit entry that set its cordon: who, when and why."""

    row: Node
    health: str
    reasons: list[Reason]
    gpus: list[GpuLine]
    engines: list[EngineLine]
    incidents: list[Incident]
    cordon: AuditEntry | None

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def other_reasons(self) -> list[Reason]:
        """Without those that an incident tells of beside the cells of GPUs and engines."""
        return [reason for reason in self.reasons if not self.incidents or reason.name not in _IN_CELLS]

    @property
    def cordon_untold(self) -> str:
        """The cordon's reason, unless the incident that the policy set it for is shown."""
        by_policy = self.cordon is not None and self.cordon.actor_kind == "target"
        told = by_policy and any(incident.has_cordoned for incident in self.incidents)  # type: ignore[attr-defined]
        return "" if told else self.row.cordon_reason

    @property
    def simulated(self) -> bool:
        return self.row.simulated or any(gpu.simulated for gpu in self.gpus)

    @property
    def silent_since(self) -> datetime | None:
        """Since when its agent says nothing, where it does not; what is known of it is as of then."""
        return self.row.reported_at if self.health == "lost" else None

    @property
    def draining(self) -> int:
        """Requests that still run or wait in those of its engines that get no new ones."""
        return sum((each.running or 0) + (each.waiting or 0) for each in self.engines if each.drain)


@dataclass(frozen=True)
class Fleet:
    """All nodes and all engines (by pool), troubled ones first. `readings_missing`: why nothing measured is shown."""

    nodes: list[NodeLine]
    engines: list[EngineLine]
    readings_missing: str

    @property
    def healths(self) -> list[tuple[str, int]]:
        """How many nodes are in each state, the worst first."""
        counted = Counter(node.health for node in self.nodes)
        return [(health, counted[health]) for health in _ORDER if counted[health]]

    @property
    def gpus(self) -> int:
        return sum(len(node.gpus) for node in self.nodes)

    @property
    def gpus_failed(self) -> int:
        return sum(gpu.failed for node in self.nodes for gpu in node.gpus)

    @property
    def engines_down(self) -> int:
        return sum(engine.state == "down" for engine in self.engines)


def headline_of(incident: Incident) -> str:
    """An incident's title where its node is known already, and need not be named again."""
    return incident.title.removeprefix(f"{incident.node}: ")


def fleet() -> Fleet:
    """Everything, in a number of queries that does not grow with it."""
    readings, rows, forced = latest.get(), list(_engines()), Forced(timezone.now())
    nodes = _node_lines(Node.objects.all(), rows, readings, forced)
    nodes.sort(key=lambda node: (_ORDER[node.health], not node.incidents, node.name))
    return Fleet(nodes, _engine_lines(nodes, rows, readings, forced), readings.missing)


def node_line(row: Node) -> tuple[NodeLine, str]:
    """One node, and why nothing measured is shown of it."""
    readings, forced = latest.get(), Forced(timezone.now())
    engines = list(_engines().filter(node=row))
    return _node_lines(Node.objects.filter(pk=row.pk), engines, readings, forced)[0], readings.missing


def engines_of(pool: Pool) -> tuple[list[EngineLine], str]:
    """A pool's engines, troubled ones first, and why nothing measured is shown of them."""
    readings, rows, forced = latest.get(), list(_engines().filter(pool=pool)), Forced(timezone.now())
    holding = Node.objects.filter(pk__in={row.node_id for row in rows if row.node_id})
    nodes = _node_lines(holding, rows, readings, forced)
    return _engine_lines(nodes, rows, readings, forced), readings.missing


def _engine_lines(nodes: list[NodeLine], rows: list[Engine], readings: Readings, forced: Forced) -> list[EngineLine]:
    """Of the nodes and of those that are reached directly."""
    engines = [engine for node in nodes for engine in node.engines]
    engines += [_engine_line(row, readings, forced) for row in rows if row.node is None]
    return sorted(engines, key=lambda engine: (not engine.troubled, engine.pool, engine.name))


def _engines() -> QuerySet[Engine]:
    return Engine.objects.select_related("node", "pool__model").order_by("pool__name", "name")


def _with_gpus(nodes: QuerySet[Node]) -> dict[Node, list[Gpu]]:
    """Nodes by name, each with its GPUs in their order. One query."""
    of_node, of_gpu = ([field.attname for field in model._meta.concrete_fields] for model in (Node, Gpu))
    found: dict[int, tuple[Node, list[Gpu]]] = {}
    joined = nodes.order_by("name", "gpus__index").values_list(*of_node, *(f"gpus__{name}" for name in of_gpu))
    for values in joined:
        row, gpu = values[: len(of_node)], values[len(of_node) :]
        if row[0] not in found:
            found[row[0]] = Node.from_db(nodes.db, of_node, row), []
        # A node without a GPU is joined with nothing.
        if gpu[0] is not None:
            found[row[0]][1].append(Gpu.from_db(nodes.db, of_gpu, gpu))
    return dict(found.values())


def _node_lines(nodes: QuerySet[Node], engine_rows: list[Engine], readings: Readings, forced: Forced) -> list[NodeLine]:
    by_node = _with_gpus(nodes)
    rows, gpus = list(by_node), {row.pk: found for row, found in by_node.items()}
    engines: defaultdict[int | None, list[Engine]] = defaultdict(list)
    for engine in engine_rows:
        engines[engine.node_id].append(engine)
    incidents, cordons = _firing([row.name for row in rows]), _cordons([row.name for row in rows if row.cordoned])
    now, lost_after_seconds = timezone.now(), settings_rows.TARGET_SILENT_SECONDS.read()
    judged = [(row, *node_health(row, gpus[row.pk], engines[row.pk], now, lost_after_seconds)) for row in rows]
    silent = {row.name: row.reported_at for row, health, _reasons in judged if health == "lost" and row.reported_at}
    before = earlier.get(silent)
    lines = []
    for row, health, reasons in judged:
        # What a silent agent said last says nothing of now.
        as_of = silent.get(row.name)
        known = readings if as_of is None else before.get(row.name, Readings())
        gpu_lines = [_gpu_line(gpu, row.name, known, as_of) for gpu in gpus[row.pk]]
        engine_lines = [_engine_line(engine, known, forced, as_of) for engine in engines[row.pk]]
        named = _grouped(reasons)
        lines.append(NodeLine(row, health, named, gpu_lines, engine_lines, incidents[row.name], cordons.get(row.name)))
    return lines


def _grouped(reasons: list[str]) -> list[Reason]:
    """One line a name: "GPU 0, GPU 3" are off the bus. A cordon has a line of its own."""
    whats: dict[str, list[str]] = {}
    for reason in reasons:
        name, _, what = reason.partition(": ")
        if name != "cordoned":
            whats.setdefault(name, []).append(what)
    return [Reason(name, ", ".join(filter(None, listed))) for name, listed in whats.items()]


def _firing(nodes: list[str]) -> Mapping[str, list[Incident]]:
    found: defaultdict[str, list[Incident]] = defaultdict(list)
    cordoned = Exists(PolicyCordon.objects.filter(incident=OuterRef("pk")))
    firing = Incident.objects.filter(state=IncidentState.FIRING, node__in=nodes).annotate(has_cordoned=cordoned)
    for incident in firing.order_by("started_at", "pk"):
        found[incident.node].append(incident)
    return found


def _cordons(nodes: list[str]) -> dict[str, AuditEntry]:
    """The write that cordoned each node, or last gave another reason for it."""
    about = AuditEntry.objects.filter(noun="node", key__in=nodes, after__cordoned=True)
    newest = about.order_by().values("key").annotate(last=Max("pk")).values("last")
    return {entry.key: entry for entry in AuditEntry.objects.filter(pk__in=newest)}


def _gpu_line(row: Gpu, node: str, readings: Readings, as_of: datetime | None) -> GpuLine:
    # Nor does what was measured before a GPU stopped answering.
    values = readings.gpu(node, row.uuid) if row.state == "ok" else {}
    used_mebibytes = values.get("memory_used_mebibytes")
    return GpuLine(
        index=row.index,
        uuid=row.uuid,
        model=row.model,
        pci_bus_id=row.pci_bus_id,
        state=row.state if as_of is None else "unknown",
        simulated=row.simulated,
        memory_bytes=row.memory_bytes,
        memory_used_bytes=None if used_mebibytes is None else round(used_mebibytes * _MEBIBYTE),
        utilization_percent=values.get("utilization_percent"),
        temperature_celsius=values.get("temperature_celsius"),
        as_of=as_of if values else None,
    )


def _engine_line(row: Engine, readings: Readings, forced: Forced, as_of: datetime | None = None) -> EngineLine:
    state = row.state if as_of is None else "unknown"
    values = readings.engine(row.name) if row.state == "up" else {}
    usage = values.get("kv_usage_ratio")
    return EngineLine(
        name=row.name,
        node=row.node.name if row.node else "",
        pool=row.pool.name,
        model=row.pool.model.name,
        kind_label=row.get_kind_display(),
        state=state,
        condition=row.condition if state in ("up", "down") else "ok",
        error=row.error if as_of is None else "",
        version=row.version,
        facts=facts_of(row),
        drift=drift_of(row),
        simulated=row.version.endswith(SIMULATED_VERSION),
        cordoned=row.cordoned,
        node_cordoned=bool(row.node and row.node.cordoned),
        held_out_by=row.held_out_by,
        forced=next(iter(forced.turns(("pool", row.pool.name), ("engine", row.name))), None),
        kv_capacity_tokens=row.kv_capacity_tokens,
        kv_usage_percent=None if usage is None else usage * 100,
        running=_whole(values.get("running")),
        waiting=_whole(values.get("waiting")),
        as_of=as_of if values else None,
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
