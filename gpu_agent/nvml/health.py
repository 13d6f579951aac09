"""What state a GPU is in, and what a change of it is worth saying. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpu_agent.events import Severity
from gpu_agent.nvml.readings import FieldValue, GpuState

# A GPU that stops answering is called unresponsive within this many intervals of its last sign of life.
SILENT_INTERVALS = 3


@dataclass(frozen=True)
class Change:
    """An event's kind and severity, and what it says after the GPU's name."""

    kind: str
    severity: Severity
    says: str


_CHANGES: dict[GpuState, Change] = {
    "ok": Change("gpu_recovered", "info", "answers again"),
    "lost": Change("gpu_lost", "critical", "is lost: the driver cannot reach it any more"),
    "error": Change("gpu_error", "warning", "answers every NVML call with an error"),
    "unresponsive": Change("gpu_unresponsive", "critical", "does not answer NVML; its values are no longer reported"),
}


def patience_seconds(interval_seconds: float) -> float:
    """How long an answer may take before its GPU is unresponsive.

    A GPU may hang right after it answered, and is asked only an interval later: that interval counts too.
    """
    return (SILENT_INTERVALS - 1) * interval_seconds


def state_of(fields: Mapping[str, FieldValue]) -> GpuState:
    """State of a GPU that answered with these fields: what it does not support says nothing about it."""
    if "lost" in fields.values():
        return "lost"
    if "error" in fields.values() and not any(isinstance(value, int) for value in fields.values()):
        return "error"
    return "ok"


def change(before: GpuState, after: GpuState) -> Change | None:
    """What to say when a GPU goes from one state to another; None for no change."""
    return None if before == after else _CHANGES[after]
