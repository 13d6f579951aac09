"""What is known of a node's GPUs at one moment."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType, field

from gpu_agent.nvml.source import FieldValue as FieldValue
from gpu_agent.nvml.source import Source as Source

# `unresponsive`: an answer is overdue. `error`: it answers, with errors alone.
GpuState = Literal["ok", "lost", "error", "unresponsive"]


class GpuIdentity(Struct, frozen=True):
    """Which GPU it is. `index` is NVML's, `minor` that of /dev/nvidiaN. An empty text: the GPU did not say."""

    index: int
    uuid: str = ""
    name: str = ""
    pci_bus_id: str = ""
    minor: int = 0


class XidTally(Struct, frozen=True):
    """XIDs of one GPU since the agent started: the last one (0: none) and how many, repeats included."""

    last: int = 0
    total: int = 0


class GpuReading(Struct, frozen=True):
    """One GPU. `fields` by the names of fields.py; empty unless the GPU is `ok` or `error`. `at_ms` is Unix time."""

    identity: GpuIdentity
    state: GpuState
    fields: dict[str, FieldValue] = field(default_factory=dict)
    at_ms: int = 0
    xids: XidTally | UnsetType = UNSET


class GpuReadings(Struct, frozen=True):
    """A node's GPUs, by index. `problems` says in words what does not work, NVML as a whole included."""

    source: Source = "none"
    driver_version: str | UnsetType = UNSET
    gpus: list[GpuReading] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
