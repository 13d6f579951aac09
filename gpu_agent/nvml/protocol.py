"""What the agent and its NVML child say to each other: one JSON object a line, over the child's stdin and stdout.

The agent's end, which trusts the child in nothing. The child writes the same with Python's own json, and no types.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from gpu_agent.nvml.fields import Poll
from gpu_agent.nvml.readings import GpuIdentity, Source
from gpu_agent.nvml.source import LINE_LIMIT_BYTES as LINE_LIMIT_BYTES
from gpu_agent.nvml.source import PARTS_LIMIT, PROCESSES_LIMIT, Missing

Index = Annotated[int, Meta(ge=0, le=1023)]
Text = Annotated[str, Meta(max_length=500)]
Label = Annotated[str, Meta(max_length=64, pattern=r"\A[^\x00-\x1f\x7f]*\Z")]
Labels = Annotated[list[Label], Meta(max_length=4)]
Pid = Annotated[int, Meta(ge=1, le=2**32 - 1)]
Number = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Bytes = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class Ask(Struct, frozen=True):
    """To the child: read one GPU's fields and parts of these poll classes; `slow` asks too who the GPU is."""

    number: int
    gpu: Index
    polls: list[Poll]


class Ready(Struct, frozen=True, tag="ready"):
    """NVML is open, and has this many GPUs."""

    source: Source
    driver_version: Text
    gpus: Annotated[int, Meta(ge=0, le=1024)]
    cuda_version: Text = ""


class Failed(Struct, frozen=True, tag="failed"):
    """NVML cannot be used; the child ends. `absent`: there is none on this node."""

    reason: Text
    absent: bool = False


class Answer(Struct, frozen=True, tag="answer"):
    """To one Ask, with all of the poll classes that it asked for.

    `parts` as fields.PARTS has them; `processes` by process id and bytes. `identity` is absent until the GPU said who
    it is. `at_ms` is Unix time after the reading.
    """

    number: int
    gpu: Index
    at_ms: int
    fields: dict[Label, Number | Missing]
    identity: GpuIdentity | None = None
    parts: Annotated[list[tuple[Label, Labels, Number | float]], Meta(max_length=PARTS_LIMIT)] = []
    processes: Annotated[list[tuple[Pid, Bytes]], Meta(max_length=PROCESSES_LIMIT)] = []


class XidSeen(Struct, frozen=True, tag="xid"):
    """NVML's event set delivered an XID. `gpu_instance`: the MIG instance that it is about; None: the whole GPU."""

    gpu: Index
    xid: Annotated[int, Meta(ge=0, le=65_535)]
    at_ms: int
    gpu_instance: Annotated[int, Meta(ge=0, le=2**32 - 1)] | None = None


class Watching(Struct, frozen=True, tag="watching"):
    """Whether XIDs of a GPU come through NVML; `reason` says why not."""

    gpu: Index
    reason: Text = ""


Told = Ready | Failed | Answer | XidSeen | Watching
decode_told = msgspec.json.Decoder(Told).decode


def encode_line(message: Ask) -> bytes:
    return msgspec.json.encode(message) + b"\n"
