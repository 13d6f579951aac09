"""What the NVML child reads GPUs through: the real library, or a state file of simulated ones.

The child imports this, and each module that it need not import is memory that a node has for other work.
"""

from __future__ import annotations

from typing import Literal, Protocol, TypedDict

from gpu_agent.nvml.fields import Poll

# A line of the protocol is longer than any answer: 30 fields of one GPU take about 1 KiB.
LINE_LIMIT_BYTES = 64 * 1024
# A field's value in NVML's unit, or why there is none.
Missing = Literal["unsupported", "lost", "error"]
FieldValue = int | Missing
Source = Literal["nvml", "simulated", "none"]


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
    count: int

    def identify(self, index: int) -> Identity:
        """Raises: Unreadable."""

    def read(self, index: int, poll: Poll) -> dict[str, FieldValue]:
        """All fields of that poll class, each with its value or why there is none."""

    def watch(self, index: int) -> None:
        """Let `next_xid` deliver this GPU's XIDs from now on. Raises: Unreadable."""

    def next_xid(self, timeout_seconds: float) -> tuple[int, int] | None:
        """The next (GPU index, XID) of a watched GPU; None after the timeout. Raises: Unreadable."""
