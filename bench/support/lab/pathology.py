"""One pathology of the lab: what is done to the fleet, and what may be expected of its lever."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from bench.support.lab.clients import Kind
from simulator.gpu.state import MachineState

# One row of the configuration, as a PATCH or, where `create`, a POST of it has it; None: it is deleted.
Edit = tuple[Literal["pools", "models", "routes", "tenants"], str, Mapping[str, Any] | None]


@dataclass(frozen=True)
class GpuEvent:
    """What happens to GPUs of a node, by index."""

    node: str
    gpus: tuple[int, ...]
    what: Callable[[MachineState, int], None]


@dataclass(frozen=True)
class Pathology:
    """Everything that is injected together; what is left out stays as on a healthy day.

    `name`: the detector that is to find it. `subject`: where. `arguments`, `conditions`: by engine, what it is started
    with and what is wrong with it; conditions that are `lasting` outlive a restart. `go_first`: engines that have what
    they need of the machine's processors, however busy it is, until they are started again. `tenants`: those of the
    traffic that comes with it, and `keys`: how many each has. `traffic`: kinds of clients beside the healthy ones.
    `deploys`: engines that are ended in turn without a drain, one each `deploy_seconds`, where it serves. `lever`: the
    one that is pulled; empty: the first that changes anything; one that is advice is followed by hand
    (`Injection.follow`). `goodput_percent`: of what was good before, how much is to be good again with the lever
    applied; None: `but` says why that cannot be.
    """

    name: str
    subject: str
    arguments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    conditions: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    lasting: bool = False
    go_first: Sequence[str] = ()
    gpus: Sequence[GpuEvent] = ()
    edits: Sequence[Edit] = ()
    tenants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    keys: int = 1
    traffic: Mapping[str, Kind] = field(default_factory=dict)
    deploys: Sequence[str] = ()
    deploy_seconds: float = 5.0
    lever: str = ""
    goodput_percent: float | None = 95.0
    but: str = ""
