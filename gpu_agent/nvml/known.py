"""What the agent knows of one GPU between its answers."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpu_agent.nvml.fields import Poll
from gpu_agent.nvml.protocol import Ask
from gpu_agent.nvml.readings import FieldValue, GpuIdentity, GpuReading, GpuState, Part, Process


@dataclass
class KnownGpu:
    """Times are the event loop's. `asked`: when each poll class was asked for.

    `watched`: its XIDs come through NVML; `unwatched` says why they do not. `released`: NVML was closed on purpose
    since it answered last; its state is the one that it had then.
    """

    identity: GpuIdentity
    state: GpuState = "ok"
    fields: dict[str, FieldValue] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    at_ms: int = 0
    answered: float | None = None
    asked: dict[Poll, float] = field(default_factory=dict)
    pending: Ask | None = None
    watched: bool = False
    unwatched: str = ""
    released: bool = False

    def forget(self, *, released: bool) -> None:
        """What it answered holds no more. All of it is asked for again, once it answers."""
        self.fields, self.parts, self.processes, self.asked = {}, [], [], {}
        self.answered, self.released = None, released

    def let_go(self) -> None:
        """The child that was asked about it is gone."""
        self.pending, self.asked, self.watched = None, {}, False

    def reading(self, oldest: float) -> GpuReading:
        """The GPU now. What it answered before `oldest` holds no more."""
        if self.released:
            return GpuReading(self.identity, self.state, released=True)
        if self.state in ("ok", "error") and (self.answered is None or self.answered < oldest):
            return GpuReading(self.identity, "unresponsive")
        return GpuReading(
            self.identity, self.state, self.fields, self.at_ms, parts=self.parts, processes=self.processes
        )

    def problems(self) -> list[str]:
        """What does not work in reading it, in words."""
        who = f"GPU {self.identity.index}"
        found = [f"{who} has not answered yet since NVML was released"] if self.released else []
        if not self.identity.uuid:
            found.append(f"{who} has not said which it is, and is not listed")
        if self.unwatched:
            found.append(f"{who}: no XIDs through NVML: {self.unwatched}")
        return found
