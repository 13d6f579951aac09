"""Simulated GPUs where there is no C compiler: the state file that else drives a simulated NVML, read here.

The file's form is documented in simulator/gpu/STATE.md. A test holds this reader and the library to the same answers.
"""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from gpu_agent.nvml import simulated_parts
from gpu_agent.nvml.fields import FIELDS, Poll
from gpu_agent.nvml.parts.nvlink import Traffic
from gpu_agent.nvml.simulated_parts import Count, Mig
from gpu_agent.nvml.source import FieldValue, Identity, Part, Process, Source, Unreadable, Unusable, cuda_version
from wire.files import read_bounded

_MAX_FILE_BYTES = 4 << 20
_HANG_POLL_SECONDS = 0.01
_XID_POLL_SECONDS = 0.02
# What the driver does not tell of a whole GPU that is cut into MIG instances.
_HIDDEN_BY_MIG = frozenset(
    {
        "gpu_utilization_percent",
        "memory_copy_utilization_percent",
        "encoder_utilization_percent",
        "decoder_utilization_percent",
        "remapped_rows_corrected",
        "remapped_rows_uncorrected",
        "remap_pending",
        "remap_failure",
    }
)
_MEMORY = ("memory_total_bytes", "memory_reserved_bytes", "memory_used_bytes")
_INIT_RESULTS = {0: "Success", 9: "Driver Not Loaded", 18: "RM has detected an NVML/RM version mismatch."}
Number = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class _Xid(Struct, frozen=True):
    sequence: Count
    xid: Annotated[int, Meta(ge=0, le=65_535)]
    gpu_instance_id: Count | None = None


class _Process(Struct, frozen=True):
    pid: Annotated[int, Meta(ge=1, le=2**32 - 1)]
    memory_bytes: Count | UnsetType = UNSET


class _Gpu(Struct, frozen=True):
    name: str
    uuid: str
    pci_bus_id: str
    state: Literal["ok", "lost", "hang"] = "ok"
    values: dict[str, Number | str] = {}
    xids: list[_Xid] = []
    mig: Mig = Mig()
    processes: list[_Process] = []


class _Machine(Struct, frozen=True):
    format: Literal[1]
    gpus: Annotated[list[_Gpu], Meta(max_length=64)]
    driver_version: str
    cuda_driver_version: Count = 0
    init_result: int = 0
    init_hangs: bool = False


class SimulatedSource:
    """A machine's state file as a GpuSource. The last whole file holds while a new one is being written."""

    kind: Source = "simulated"

    def __init__(self, path: Path) -> None:
        """Raises: Unusable."""
        self._path = path
        self._lock = threading.Lock()
        self._stamp: tuple[int, ...] = ()
        self._latest: _Machine | None = None
        # Sequence of the last XID that was delivered, of each watched GPU.
        self._delivered: dict[int, int] = {}
        # GPUs of which a profiling metric has its first sample.
        self._sampled: set[int] = set()
        while self._machine().init_hangs:
            time.sleep(_HANG_POLL_SECONDS)
        machine = self._machine()
        if machine.init_result:
            raise Unusable(_INIT_RESULTS.get(machine.init_result, "Unknown Error"))
        self.driver_version = machine.driver_version
        self.cuda_version = cuda_version(machine.cuda_driver_version)
        self.count = len(machine.gpus)
        self._traffic = [Traffic(simulated_parts.link_bytes) for _ in range(self.count)]

    def identify(self, index: int) -> Identity:
        gpu = self._gpu(index)
        if gpu.state == "lost":
            raise Unreadable("GPU is lost")
        return {"index": index, "uuid": gpu.uuid, "name": gpu.name, "pci_bus_id": gpu.pci_bus_id, "minor": index}

    def read(self, index: int, poll: Poll) -> dict[str, FieldValue]:
        gpu = self._gpu(index)
        names = [field.name for field in FIELDS if field.poll == poll]
        if gpu.state == "lost":
            return dict.fromkeys(names, "lost")
        return {name: _value(gpu, name) for name in names}

    def parts(self, index: int, poll: Poll) -> list[Part]:
        gpu = self._gpu(index)
        if gpu.state == "lost":
            return []
        match poll:
            case "fast":
                parts = simulated_parts.throttled(gpu.values) + self._traffic[index].read(gpu.values)
                return parts + self._profiling(index, gpu)
            case "slow":
                return simulated_parts.slow(gpu.values, gpu.mig)
            case "once":
                return simulated_parts.once(gpu.values)
            case "processes":
                return []

    def _profiling(self, index: int, gpu: _Gpu) -> list[Part]:
        """NVML measures between two readings, and not in MIG mode."""
        if gpu.mig.enabled:
            self._sampled.discard(index)
            return []
        before = index in self._sampled
        self._sampled.add(index)
        return simulated_parts.profiling(gpu.values) if before else []

    def processes(self, index: int) -> list[Process]:
        gpu = self._gpu(index)
        told = [] if gpu.state == "lost" else gpu.processes
        return [(process.pid, process.memory_bytes) for process in told if isinstance(process.memory_bytes, int)]

    def topology(self, index: int) -> list[Part]:
        # Waits for all of them, as the driver does.
        with contextlib.suppress(Unreadable):
            gpus = [self._gpu(number) for number in range(self.count)]
            told = simulated_parts.topology(index, [gpu.values for gpu in gpus])
            lost = {str(number) for number, gpu in enumerate(gpus) if gpu.state == "lost"}
            return [part for part in told if part[1][0] not in lost] if str(index) not in lost else []
        return []

    def watch(self, index: int) -> None:
        gpu = self._gpu(index)
        if gpu.state == "lost":
            raise Unreadable("GPU is lost")
        self._delivered[index] = max((seen.sequence for seen in gpu.xids), default=0)

    def next_xid(self, timeout_seconds: float) -> tuple[int, int, int | None] | None:
        deadline = time.monotonic() + timeout_seconds
        while True:
            gpus = self._machine().gpus
            for index, delivered in list(self._delivered.items()):
                for seen in gpus[index].xids if index < len(gpus) else ():
                    if seen.sequence > delivered:
                        self._delivered[index] = seen.sequence
                        return index, seen.xid, seen.gpu_instance_id
            if time.monotonic() >= deadline:
                return None
            time.sleep(_XID_POLL_SECONDS)

    def _gpu(self, index: int) -> _Gpu:
        """The GPU, once it does not hang. Raises: Unreadable."""
        while True:
            gpus = self._machine().gpus
            if index >= len(gpus):
                raise Unreadable("Invalid Argument")
            if gpus[index].state != "hang":
                return gpus[index]
            time.sleep(_HANG_POLL_SECONDS)

    def _machine(self) -> _Machine:
        """Raises: Unusable where no whole file was ever there."""
        with self._lock:
            latest = self._latest
            try:
                found = self._path.stat()
                stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
                if latest is None or stamp != self._stamp:
                    latest = msgspec.json.decode(read_bounded(self._path, _MAX_FILE_BYTES), type=_Machine)
                    self._latest, self._stamp = latest, stamp
            except (OSError, ValueError) as error:
                if latest is None:
                    raise Unusable(f"{self._path} is no state file of simulated GPUs: {error}") from error
            return latest


def _value(gpu: _Gpu, name: str) -> FieldValue:
    if name == "mig_mode":
        return int(gpu.mig.enabled)
    if gpu.mig.enabled and name in _HIDDEN_BY_MIG:
        return "unsupported"
    if name in (*_MEMORY, "memory_free_bytes"):
        # NVML gives all of it or none.
        total, reserved, used = (gpu.values.get(part) for part in _MEMORY)
        if not (isinstance(total, int) and isinstance(reserved, int) and isinstance(used, int)):
            return "unsupported"
        if name == "memory_free_bytes":
            return max(0, total - reserved - used)
    value = gpu.values.get(name)
    return value if isinstance(value, int) else "unsupported"
