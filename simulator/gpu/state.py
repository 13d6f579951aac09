"""The state file of simulated GPUs (STATE.md): its model, a healthy machine to begin with, reading and writing."""

from __future__ import annotations

import contextlib
import fcntl
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct, field

from wire.files import read_bounded

MAX_GPUS = 64
MAX_XIDS = 64
MIG_INSTANCES = 7
_MAX_FILE_BYTES = 4 << 20
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Value = Count | Literal["unsupported"]


class Xid(Struct, frozen=True, forbid_unknown_fields=True):
    """One XID, delivered once to each reader."""

    sequence: Count
    xid: Annotated[int, Meta(ge=0, le=65_535)]


class MigInstance(Struct, frozen=True, forbid_unknown_fields=True):
    uuid: str
    gpu_instance_id: Count
    compute_instance_id: Count
    memory_total_bytes: Count
    memory_used_bytes: Count


class Mig(Struct, forbid_unknown_fields=True):
    enabled: bool = False
    instances: Annotated[list[MigInstance], Meta(max_length=MIG_INSTANCES)] = field(default_factory=list)


class SimulatedGpu(Struct, forbid_unknown_fields=True):
    """One GPU. `values` is in NVML's units; what it lacks, or calls unsupported, this GPU does not support.

    `condition` is for whoever writes the values: readers do not look at it.
    """

    name: str
    uuid: str
    pci_bus_id: str
    state: Literal["ok", "lost", "hang"] = "ok"
    condition: Literal["normal", "hot", "throttled"] = "normal"
    values: dict[str, Value] = field(default_factory=dict)
    xids: list[Xid] = field(default_factory=list)
    mig: Mig = field(default_factory=Mig)


class MachineState(Struct, forbid_unknown_fields=True):
    """All of one simulated node."""

    gpus: Annotated[list[SimulatedGpu], Meta(max_length=MAX_GPUS)]
    format: Literal[1] = 1
    driver_version: str = "580.95.05-simulated"
    nvml_version: str = "13.580.95.05-simulated"
    init_result: Annotated[int, Meta(ge=0, le=999)] = 0
    init_hangs: bool = False
    xid_sequence: Count = 0


# An idle H200 SXM: 141 GB of HBM3e, 700 W (NVIDIA H200 data sheet); idle figures as such boards show them.
IDLE_H200: dict[str, Value] = {
    "gpu_utilization_percent": 0,
    "memory_copy_utilization_percent": 0,
    "memory_total_bytes": 150_754_820_096,
    "memory_reserved_bytes": 642_777_088,
    "memory_used_bytes": 0,
    "temperature_celsius": 30,
    "memory_temperature_celsius": 38,
    "power_milliwatts": 76_000,
    "power_limit_milliwatts": 700_000,
    "energy_millijoules": 0,
    "sm_clock_mhz": 1980,
    "memory_clock_mhz": 3201,
    "clock_event_reasons": 1,
    "ecc_enabled": 1,
    "ecc_corrected_volatile_errors": 0,
    "ecc_uncorrected_volatile_errors": 0,
    "ecc_corrected_aggregate_errors": 0,
    "ecc_uncorrected_aggregate_errors": 0,
    "remapped_rows_corrected": 0,
    "remapped_rows_uncorrected": 0,
    "remap_pending": 0,
    "remap_failure": 0,
    "pcie_replays": 0,
    "recovery_action": 0,
}


def healthy_machine(gpus: int, *, name: str = "node") -> MachineState:
    """Idle GPUs. Their UUIDs follow from the node's `name`, so that a restart shows the same ones.

    Raises: ValueError if there are too many.
    """
    if not 0 <= gpus <= MAX_GPUS:
        raise ValueError(f"{gpus} GPUs: give 0 to {MAX_GPUS}")
    return MachineState(
        [
            SimulatedGpu(
                name="Simulated NVIDIA H200",
                uuid=f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, f'{name}/{index}')}",
                pci_bus_id=f"00000000:{index + 1:02X}:00.0",
                values=dict(IDLE_H200),
            )
            for index in range(gpus)
        ]
    )


class StateFile:
    """The file of one machine. Several processes may change it: each change is read, made and written under a lock."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def create(self, machine: MachineState) -> None:
        """Write a machine, replacing what was there. Raises: OSError."""
        with self._locked():
            self._write(machine)

    def read(self) -> MachineState:
        """Raises: OSError, or ValueError naming what is wrong with the file."""
        try:
            return msgspec.json.decode(read_bounded(self.path, _MAX_FILE_BYTES), type=MachineState)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"{self.path} is no state file of simulated GPUs: {error}") from error

    @contextlib.contextmanager
    def change(self) -> Iterator[MachineState]:
        """The machine, to be changed in the block and written at its end. An exception in the block writes nothing.

        Raises: as `read`.
        """
        with self._locked():
            machine = self.read()
            yield machine
            self._write(machine)

    def _write(self, machine: MachineState) -> None:
        # Readers never see half a file. It need not outlive a crash of the host, so nothing waits for the disk.
        fresh = self.path.with_name(f".{self.path.name}.tmp")
        fresh.write_bytes(msgspec.json.encode(machine))
        os.replace(fresh, self.path)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Not the file itself, which each change replaces.
        with self.path.with_name(f"{self.path.name}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
