"""What the agent and its NVML child say to each other: one JSON object a line, over the child's stdin and stdout.

The agent's end, which trusts the child in nothing. The child writes the same with Python's own json, and no types.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from gpu_agent.nvml.readings import FieldValue, GpuIdentity, Source
from gpu_agent.nvml.source import LINE_LIMIT_BYTES as LINE_LIMIT_BYTES

Index = Annotated[int, Meta(ge=0, le=1023)]
Text = Annotated[str, Meta(max_length=500)]


class Ask(Struct, frozen=True):
    """To the child: read one GPU. `slow` asks for the slow fields too, and who the GPU is."""

    number: int
    gpu: Index
    slow: bool


class Ready(Struct, frozen=True, tag="ready"):
    """NVML is open, and has this many GPUs."""

    source: Source
    driver_version: Text
    gpus: Annotated[int, Meta(ge=0, le=1024)]


class Failed(Struct, frozen=True, tag="failed"):
    """NVML cannot be used; the child ends. `absent`: there is none on this node."""

    reason: Text
    absent: bool = False


class Answer(Struct, frozen=True, tag="answer"):
    """To one Ask. `identity` is absent until the GPU said who it is. `at_ms` is Unix time after the reading."""

    number: int
    gpu: Index
    at_ms: int
    fields: dict[str, FieldValue]
    identity: GpuIdentity | None = None


class XidSeen(Struct, frozen=True, tag="xid"):
    """NVML's event set delivered an XID."""

    gpu: Index
    xid: Annotated[int, Meta(ge=0, le=65_535)]
    at_ms: int


class Watching(Struct, frozen=True, tag="watching"):
    """Whether XIDs of a GPU come through NVML; `reason` says why not."""

    gpu: Index
    reason: Text = ""


Told = Ready | Failed | Answer | XidSeen | Watching
decode_told = msgspec.json.Decoder(Told).decode


def encode_line(message: Ask) -> bytes:
    return msgspec.json.encode(message) + b"\n"
