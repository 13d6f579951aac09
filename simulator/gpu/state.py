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
from msgspec import UNSET, Meta, Struct, UnsetType, field

from wire.files import read_bounded

MAX_GPUS = 64
MAX_XIDS = 64
MAX_PROCESSES = 64
MIG_INSTANCES = 7
_MAX_FILE_BYTES = 4 << 20
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Number = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Value = Number | Literal["unsupported"]


class Xid(Struct, frozen=True, forbid_unknown_fields=True):
    """One XID, delivered once to each reader. `gpu_instance_id`: the MIG instance that it is about."""

    sequence: Count
    xid: Annotated[int, Meta(ge=0, le=65_535)]
    gpu_instance_id: Count | UnsetType = UNSET


class MigInstance(Struct, frozen=True, forbid_unknown_fields=True):
    uuid: str
    gpu_instance_id: Count
    compute_instance_id: Count
    memory_total_bytes: Count
    memory_used_bytes: Count
    # As NVML writes it at the end of an instance's name: 1g.18gb.
    profile: str = ""


class Process(Struct, frozen=True, forbid_unknown_fields=True):
    """One process on a GPU. `memory_bytes` of UNSET: NVML does not tell."""

    pid: Annotated[int, Meta(ge=1, le=2**32 - 1)]
    memory_bytes: Count | UnsetType = UNSET


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
    processes: Annotated[list[Process], Meta(max_length=MAX_PROCESSES)] = field(default_factory=list)


class MachineState(Struct, forbid_unknown_fields=True):
    """All of one simulated node."""

    gpus: Annotated[list[SimulatedGpu], Meta(max_length=MAX_GPUS)]
    format: Literal[1] = 1
    driver_version: str = "580.95.05-simulated"
    nvml_version: str = "13.580.95.05-simulated"
    cuda_driver_version: Annotated[int, Meta(ge=0, le=999_999)] = 13_000
    init_result: Annotated[int, Meta(ge=0, le=999)] = 0
    init_hangs: bool = False
    xid_sequence: Count = 0


_THROTTLE_REASONS = (
    "sw_power_cap",
    "sync_boost",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
)
# An idle H200 SXM: 141 GB of HBM3e, 700 W, PCIe 5, 18 NVLinks to switches (NVIDIA H200 data sheet); idle figures as
# such boards show them. It remaps rows, and so retires no pages; ECC errors are told of DRAM and SRAM.
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
    "encoder_utilization_percent": 0,
    "decoder_utilization_percent": 0,
    "thermal_margin_celsius": 57,
    "margin_limit_shutdown_celsius": -8,
    "margin_limit_slowdown_celsius": -2,
    "margin_limit_memory_max_celsius": 0,
    "margin_limit_gpu_max_celsius": 0,
    "power_limit_set_milliwatts": 700_000,
    "power_limit_default_milliwatts": 700_000,
    "power_limit_min_milliwatts": 200_000,
    "power_limit_max_milliwatts": 700_000,
    "pcie_link_generation": 5,
    "pcie_link_width": 16,
    "pcie_link_generation_max": 5,
    "pcie_link_width_max": 16,
    **{f"throttled_{reason}_nanoseconds": 0 for reason in _THROTTLE_REASONS},
    "nvlink_links": 18,
    "nvlink_down_mask": 0,
    "nvlink_tx_kibibytes": 0,
    "nvlink_rx_kibibytes": 0,
    "nvlink_crc_flit_errors": 0,
    "nvlink_crc_data_errors": 0,
    "nvlink_replay_errors": 0,
    "nvlink_recovery_errors": 0,
    "gr_engine_active_per_mille": 0,
    "tensor_active_per_mille": 0,
    "dram_active_per_mille": 0,
    "pcie_tx_mebibytes_per_second": 0,
    "pcie_rx_mebibytes_per_second": 0,
    **{
        f"ecc_{error}_{counter}_{place}_errors": 0
        for error in ("corrected", "uncorrected")
        for counter in ("volatile", "aggregate")
        for place in ("device_memory", "sram")
    },
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
                # Half of them at each of two sockets.
                values={**IDLE_H200, "numa_node": 2 * index // gpus},
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
