"""GPU readings as metrics, under dcgm-exporter's names and labels. Pure.

What a GPU does not support, or cannot say now, has no sample: never 0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

from msgspec import UnsetType

from gpu_agent.nvml.fields import CLOCK_EVENT_REASONS, FIELDS, PARTS, Field
from gpu_agent.nvml.readings import GpuReading, GpuReadings, XidTally
from gpu_agent.nvml.xids import UNKNOWN, XidRule
from gpu_agent.samples import Sample

_NO_XID = "No Error"


def samples(
    readings: GpuReadings,
    *,
    hostname: str,
    rules: Mapping[int, XidRule],
    engine_of: Callable[[int], str | None],
    hostname_label: str = "Hostname",
) -> Iterator[Sample]:
    """Every sample of a reading, as of when the GPU answered; that it does not work is so now.

    `engine_of`: the engine that a process belongs to, by its id on the host. What is released has none at all. GPU by
    GPU: a node of eight H200s has 800, and who takes them keeps few of their labels.
    """
    where = {hostname_label: hostname}
    if not isinstance(readings.driver_version, UnsetType):
        where["DCGM_FI_DRIVER_VERSION"] = readings.driver_version
    for gpu in readings.gpus:
        if not gpu.identity.uuid or gpu.released:
            continue
        which = {
            "gpu": str(gpu.identity.index),
            "UUID": gpu.identity.uuid,
            "pci_bus_id": gpu.identity.pci_bus_id,
            "device": f"nvidia{gpu.identity.minor}",
            "modelName": gpu.identity.name,
        }
        labels = which | where
        works = gpu.state == "ok"
        yield Sample("headworks_gpu_up", labels, float(works), gpu.at_ms if works else 0)
        yield from _field_samples(gpu, labels)
        yield from _part_samples(gpu, which, where)
        yield from _process_samples(gpu, labels, engine_of)
        if not isinstance(gpu.xids, UnsetType):
            yield from _xid_samples(gpu.xids, labels, rules)
        for kind, total in gpu.xids_by_class.items():
            yield Sample("headworks_gpu_xid_class_total", {**labels, "class": kind}, float(total), 0)
    for pci_bus_id, xids in readings.xids_elsewhere.items():
        yield from _xid_samples(xids, {"pci_bus_id": pci_bus_id, **where}, rules)
    for pci_bus_id, sxids in readings.sxids.items():
        yield Sample("headworks_nvswitch_last_sxid", {"pci_bus_id": pci_bus_id, **where}, float(sxids.last), 0)
        yield Sample("headworks_nvswitch_sxids_total", {"pci_bus_id": pci_bus_id, **where}, float(sxids.total), 0)


def _field_samples(gpu: GpuReading, labels: dict[str, str]) -> Iterator[Sample]:
    for field in FIELDS:
        value = gpu.fields.get(field.name)
        if isinstance(value, int) and (number := _converted(field, value)) is not None:
            yield Sample(field.metric, labels, number, gpu.at_ms)
    mask = gpu.fields.get("clock_event_reasons")
    if isinstance(mask, int):
        for bit, reason in CLOCK_EVENT_REASONS.items():
            active = float(bool(mask & bit))
            yield Sample("headworks_gpu_clock_event_active", {**labels, "reason": reason}, active, gpu.at_ms)


def _part_samples(gpu: GpuReading, which: dict[str, str], where: dict[str, str]) -> Iterator[Sample]:
    """dcgm-exporter has the labels of a MIG instance between those of its GPU and those of the host."""
    for name, told, number in gpu.parts:
        kind = PARTS[name]
        labels = {**which, **dict(zip(kind.labels, told, strict=True)), **where}
        yield Sample(kind.metric, labels, number / kind.divisor, gpu.at_ms)


def _process_samples(gpu: GpuReading, labels: dict[str, str], engine_of: Callable[[int], str | None]) -> list[Sample]:
    """How many processes hold memory of the GPU, and how much, by engine; without that label, those of no engine."""
    held: defaultdict[str | None, list[int]] = defaultdict(list)
    for pid, memory_bytes in gpu.processes:
        held[engine_of(pid)].append(memory_bytes)
    found = []
    for engine, sizes_bytes in held.items():
        own = labels if engine is None else {**labels, "engine": engine}
        found.append(Sample("headworks_gpu_processes", own, float(len(sizes_bytes)), gpu.at_ms))
        found.append(Sample("headworks_gpu_process_memory_bytes", own, float(sum(sizes_bytes)), gpu.at_ms))
    return found


def _converted(field: Field, value: int) -> float | None:
    if field.ceiling is not None and value > field.ceiling:
        if not field.clamp:
            return None
        value = field.ceiling
    return value / field.divisor


def _xid_samples(xids: XidTally, labels: dict[str, str], rules: Mapping[int, XidRule]) -> list[Sample]:
    """The last XID as dcgm-exporter has it, and a count, since a repeat of the same one does not show in the first.

    They are the agent's own, and so hold now, of a GPU that has not answered for a while, too.
    """
    last = xids.last
    message = rules.get(last, UNKNOWN).name if last else _NO_XID
    return [
        Sample("DCGM_FI_DEV_XID_ERRORS", {**labels, "err_code": str(last), "err_msg": message}, float(last), 0),
        Sample("headworks_gpu_xid_errors_total", labels, float(xids.total), 0),
    ]
