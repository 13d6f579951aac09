"""What is known of a node's GPUs at one moment."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal

from msgspec import UNSET, Struct, UnsetType, field

from gpu_agent.nvml.fields import PARTS, Poll
from gpu_agent.nvml.source import FieldValue as FieldValue
from gpu_agent.nvml.source import Part as Part
from gpu_agent.nvml.source import Process as Process
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
    """XIDs of one GPU, or SXids of one NVSwitch, since the agent started.

    The last one (0: none) and how many, repeats included.
    """

    last: int = 0
    total: int = 0


class GpuReading(Struct, frozen=True):
    """One GPU. `fields` by the names of fields.py; empty unless the GPU is `ok` or `error`. `at_ms` is Unix time.

    `parts` (names, labels and numbers of fields.PARTS) and `processes` (process id, bytes) are empty unless it is `ok`.
    `released`: NVML is closed on purpose, or was and the GPU has not answered since; `state` is the last known.
    `xids_by_class`: how many XIDs that ask for something there were since the agent started (xids.COUNTED_CLASSES).
    """

    identity: GpuIdentity
    state: GpuState
    fields: dict[str, FieldValue] = field(default_factory=dict)
    at_ms: int = 0
    xids: XidTally | UnsetType = UNSET
    parts: list[Part] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    released: bool = False
    xids_by_class: dict[str, int] = field(default_factory=dict)


class GpuReadings(Struct, frozen=True):
    """A node's GPUs, by index. `problems` says in words what does not work, NVML as a whole included.

    `xids_elsewhere`, by PCI address: those of GPUs that are not among `gpus`. `sxids`: of NVSwitches.
    """

    source: Source = "none"
    driver_version: str | UnsetType = UNSET
    gpus: list[GpuReading] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    xids_elsewhere: dict[str, XidTally] = field(default_factory=dict)
    sxids: dict[str, XidTally] = field(default_factory=dict)
    cuda_version: str | UnsetType = UNSET


def merged_parts(before: Iterable[Part], answered: Iterable[Part], polls: Collection[Poll]) -> list[Part]:
    """The parts that stand once a GPU answered for these poll classes: the others stay as they were.

    Each is there once. What the answer may not hold is passed over: unknown names, other labels, a class not asked for.
    """
    parts = {(part[0], *part[1]): part for part in before if PARTS[part[0]].poll not in polls}
    for part in answered:
        kind = PARTS.get(part[0])
        if kind is not None and kind.poll in polls and len(part[1]) == len(kind.labels):
            parts[(part[0], *part[1])] = part
    return list(parts.values())
