"""What the NVML child reads GPUs through: the real library, or a state file of simulated ones.

The child imports this, and each module that it need not import is memory that a node has for other work.
"""

from __future__ import annotations

from typing import Literal, Protocol, TypedDict

from gpu_agent.nvml.fields import Poll

# A line of the protocol is longer than any answer: a whole one of an H200 takes 5 KiB, and the bounds below 40 KiB.
LINE_LIMIT_BYTES = 64 * 1024
# What one answer tells at most: 63 peers, 36 NVLinks and 7 MIG instances have room, and processes by their memory.
PARTS_LIMIT, PROCESSES_LIMIT = 256, 512
# A field's value in NVML's unit, or why there is none.
Missing = Literal["unsupported", "lost", "error"]
FieldValue = int | Missing
# A name of fields.PARTS, its labels' values, and a number.
Part = tuple[str, list[str], int | float]
# Process id as the host counts it, and bytes of the GPU's memory.
Process = tuple[int, int]
Source = Literal["nvml", "simulated", "none"]


def cuda_version(number: int) -> str:
    """In the words of people: NVML says 13010 for 13.1, and nothing is said by 0."""
    return f"{number // 1000}.{number % 1000 // 10}" if number > 0 else ""


class Identity(TypedDict):
    """What a GPU says of itself; the agent keeps it as a GpuIdentity."""

    index: int
    uuid: str
    name: str
    pci_bus_id: str
    minor: int


class Unusable(Exception):
    """No GPU can be read at all; the message says why. `absent`: this node has no NVML."""

    def __init__(self, reason: str, *, absent: bool = False) -> None:
        super().__init__(reason)
        self.absent = absent


class Unreadable(Exception):
    """A call on one GPU failed as a whole; the message says why."""


class GpuSource(Protocol):
    """Calls on different GPUs come from different threads, and any call may hang."""

    kind: Source
    driver_version: str
    # Of the newest CUDA that the driver can run, such as 13.0; empty: it does not say.
    cuda_version: str
    count: int

    def identify(self, index: int) -> Identity:
        """Raises: Unreadable."""

    def read(self, index: int, poll: Poll) -> dict[str, FieldValue]:
        """All fields of that poll class, each with its value or why there is none."""

    def parts(self, index: int, poll: Poll) -> list[Part]:
        """The parts of that poll class. One that cannot be read is not there: the fields say why."""

    def processes(self, index: int) -> list[Process]:
        """What runs on the GPU, MIG instances included; empty where that cannot be told."""

    def topology(self, index: int) -> list[Part]:
        """How the GPU is connected to each other one. Called from a thread of its own: it asks about the others too."""

    def watch(self, index: int) -> None:
        """Let `next_xid` deliver this GPU's XIDs from now on. Raises: Unreadable."""

    def next_xid(self, timeout_seconds: float) -> tuple[int, int, int | None] | None:
        """The next (GPU index, XID, MIG GPU instance) of a watched GPU; None after the timeout. Raises: Unreadable.

        The instance is None where the whole GPU is meant.
        """
