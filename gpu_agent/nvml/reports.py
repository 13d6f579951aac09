"""GPU readings as a node's report lists them."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import UNSET, UnsetType

from gpu_agent.nvml.readings import GpuReading, GpuReadings
from wire.messages import GpuReport

# What a report takes of problems.
_PROBLEMS_LIMIT, _PROBLEM_CHARACTERS = 64, 2000


def gpu_reports(readings: GpuReadings, before: Iterable[GpuReport] = ()) -> list[GpuReport]:
    """The GPUs as a node report lists them: those that ever said who they are, whether they answer now or not.

    A GPU that does not answer keeps the memory that it had `before`. Each is listed once: while NVML numbers its GPUs
    anew, two readings may bear one UUID, and the later answer is right.
    """
    known = {report.uuid: report for report in before}
    simulated = readings.source == "simulated"
    found: dict[str, GpuReport] = {}
    for gpu in sorted(readings.gpus, key=lambda gpu: gpu.at_ms):
        if uuid := gpu.identity.uuid:
            found[uuid] = _report(gpu, known.get(uuid), simulated)
    return sorted(found.values(), key=lambda report: report.index)


def _report(gpu: GpuReading, before: GpuReport | None, simulated: bool) -> GpuReport:
    total = gpu.fields.get("memory_total_bytes")
    memory_bytes: int | UnsetType = UNSET
    if isinstance(total, int):
        memory_bytes = total
    elif before is not None and total != "unsupported":
        memory_bytes = before.memory_bytes
    return GpuReport(
        uuid=gpu.identity.uuid,
        index=gpu.identity.index,
        model=gpu.identity.name,
        memory_bytes=memory_bytes,
        pci_bus_id=gpu.identity.pci_bus_id or UNSET,
        simulated=simulated,
        state=gpu.state,
    )


def gpu_problems(readings: GpuReadings) -> list[str]:
    """What does not work in reading the GPUs, as far as a node report has room for it."""
    return [problem[:_PROBLEM_CHARACTERS] for problem in readings.problems[:_PROBLEMS_LIMIT]]
