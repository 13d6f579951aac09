"""How the GPUs of a node are connected, and what uses them, as its agent measures it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from django.utils.translation import gettext as _

from controlplane.telemetry import query
from controlplane.web.measured import LATE, WAIT_SECONDS, Numbers, Question, ask
from controlplane.web.shown.fleet import GpuLine

_THREADS = ThreadPoolExecutor(2, "web-topology")
_NVLINK = re.compile(r"NV(\d+)")
# As `nvidia-smi topo -m` names what two GPUs go over, the nearest first.
UNDER_ONE_SWITCH = frozenset({"PIX", "PXB"})


@dataclass(frozen=True)
class MigSlice:
    """A MIG instance that a GPU is cut into."""

    number: str
    profile: str
    memory_mebibytes: float


@dataclass(frozen=True)
class GpuPart:
    """One GPU among the others of its node. `links_up` of its `links` NVLinks are up; `numa` None: it is not told."""

    index: int
    state: str
    numa: int | None = None
    links_up: int = 0
    links: int = 0
    engines: tuple[str, ...] = ()
    slices: tuple[MigSlice, ...] = ()

    @property
    def links_down(self) -> int:
        return self.links - self.links_up

    @property
    def failed(self) -> bool:
        return self.state not in ("ok", "unknown")


@dataclass(frozen=True)
class Topology:
    """The GPUs of a node in their order, and what each two of them, the lower index first, go over (NV18, PIX, SYS …).

    `missing`: why nothing was told at all.
    """

    gpus: tuple[GpuPart, ...] = ()
    between: Mapping[tuple[int, int], str] = field(default_factory=dict)
    missing: str = ""

    @property
    def is_told(self) -> bool:
        """Whether the agent told anything that the list of GPUs does not say."""
        return bool(self.between) or any(gpu.links or gpu.engines or gpu.slices for gpu in self.gpus)

    def over(self, one: int, other: int) -> str:
        """What two GPUs go over; empty where it is not told."""
        return self.between.get((min(one, other), max(one, other)), "")

    def nvlinks(self, one: int, other: int) -> int:
        """How many NVLinks join two GPUs, straight or over switches."""
        found = _NVLINK.fullmatch(self.over(one, other))
        return int(found[1]) if found else 0

    @property
    def matrix(self) -> list[tuple[GpuPart, list[str]]]:
        """Each GPU with what it goes over to each: ✕ to itself, – where it is not told."""
        return [
            (gpu, ["✕" if peer is gpu else self.over(gpu.index, peer.index) or "–" for peer in self.gpus])
            for gpu in self.gpus
        ]

    @property
    def switched(self) -> frozenset[int]:
        """The GPUs whose NVLinks go to switches: each reaches every one of several peers by all of its links."""
        return frozenset(
            gpu.index
            for gpu in self.gpus
            if sum(self.nvlinks(gpu.index, peer.index) for peer in self.gpus if peer.index != gpu.index)
            > max(gpu.links_up, 1)
        )


def questions(node: str) -> dict[str, Question]:
    """What the metrics store is asked of a node. What is read slowly counts for as long as Prometheus looks back."""
    on = f"{{node={json.dumps(node)}}}"
    return {
        "between": Question(f"headworks_gpu_topology_info{on}", ("gpu", "peer", "link")),
        "nvlink": Question(f"headworks_gpu_nvlink_up{on}", ("gpu", "link")),
        "numa": Question(f"headworks_gpu_numa_node{on}", ("gpu",)),
        "engines": Question(f"headworks_gpu_processes{on}", ("gpu", "engine")),
        "slices": Question(f"DCGM_FI_DEV_FB_TOTAL{on}", ("gpu", "GPU_I_ID", "GPU_I_PROFILE")),
    }


def topology(node: str, gpus: Sequence[GpuLine], at_ms: int) -> Topology:
    """As of a moment (Unix time in ms). Never raises for the store, and does not wait for it long."""
    answer = _THREADS.submit(ask, questions(node), at_ms)
    if answer not in wait([answer], WAIT_SECONDS).done:
        answer.cancel()
        return Topology(missing=_(LATE))
    try:
        return topology_of(gpus, answer.result())
    except query.QueryError as error:
        return Topology(missing=str(error))


def topology_of(gpus: Sequence[GpuLine], told: Numbers) -> Topology:
    """The same from what the store answered. Pure."""
    between = {}
    for gpu, peer, link in told.all("between"):
        if gpu.isdecimal() and peer.isdecimal() and gpu != peer:
            between[min(int(gpu), int(peer)), max(int(gpu), int(peer))] = link
    return Topology(tuple(_part(gpu, told) for gpu in gpus), between)


def _part(gpu: GpuLine, told: Numbers) -> GpuPart:
    index = str(gpu.index)
    links = [up for (owner, _link), up in told.all("nvlink").items() if owner == index]
    numa = told.of("numa", index)
    slices = [
        MigSlice(number, profile, mebibytes)
        for (owner, number, profile), mebibytes in told.all("slices").items()
        if owner == index and number
    ]
    return GpuPart(
        index=gpu.index,
        state=gpu.state,
        numa=None if numa is None else int(numa),
        links_up=sum(up > 0 for up in links),
        links=len(links),
        engines=tuple(sorted(engine for owner, engine in told.all("engines") if owner == index and engine)),
        slices=tuple(sorted(slices, key=lambda each: (len(each.number), each.number))),
    )
