"""`python -m simulator.gpu.fault STATE --gpu N FAULT`: let something happen to a simulated GPU, or end it again."""

from __future__ import annotations

import argparse
import sys
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from msgspec import UNSET, UnsetType

from simulator.gpu.load import HW_THERMAL_REASONS, IDLE_REASON, POWER_BRAKE_REASONS, SLOWDOWN_CELSIUS
from simulator.gpu.state import (
    IDLE_H200,
    MAX_XIDS,
    MIG_INSTANCES,
    MachineState,
    Mig,
    MigInstance,
    Process,
    SimulatedGpu,
    StateFile,
    Xid,
)
from wire.settings import whole_number

# Just past where an H200 slows down by itself; as cool as one is without load.
_HOT_CELSIUS = 93
_COOL_CELSIUS = 30
_HOT_MARGIN_CELSIUS, _COOL_MARGIN_CELSIUS = (SLOWDOWN_CELSIUS - celsius for celsius in (_HOT_CELSIUS, _COOL_CELSIUS))

# A process that is there on every machine and is no engine: the first. 6 GiB are a notebook with a small model.
STRANGER_PID, _STRANGER_BYTES = 1, 6 * 2**30
# NVML's number for "reset the GPU" (field 230).
_RESET_ACTION = 1


class UnknownGpu(ValueError):
    """The machine has no GPU of that index."""


def throw_xid(machine: MachineState, index: int, xid: int, gpu_instance_id: int | UnsetType = UNSET) -> None:
    """The driver reports an XID. A fatal one does not change the GPU: throw `lost` with it where it should."""
    gpu = _gpu(machine, index)
    machine.xid_sequence += 1
    gpu.xids = [*gpu.xids, Xid(machine.xid_sequence, xid, gpu_instance_id)][-MAX_XIDS:]


def lose(machine: MachineState, index: int) -> None:
    """The GPU falls off the bus: every call on it fails."""
    _gpu(machine, index).state = "lost"


def hang(machine: MachineState, index: int) -> None:
    """No call on the GPU returns."""
    _gpu(machine, index).state = "hang"


def heat(machine: MachineState, index: int) -> None:
    """The cooler fails: the GPU is as hot as it may be, and slows itself down."""
    gpu = _gpu(machine, index)
    gpu.condition = "hot"
    gpu.values |= {
        "temperature_celsius": _HOT_CELSIUS,
        "thermal_margin_celsius": _HOT_MARGIN_CELSIUS,
        "clock_event_reasons": HW_THERMAL_REASONS,
    }


def throttle(machine: MachineState, index: int) -> None:
    """The power supply asks the GPU to slow down."""
    gpu = _gpu(machine, index)
    gpu.condition = "throttled"
    gpu.values |= {"clock_event_reasons": POWER_BRAKE_REASONS}


def corrupt(machine: MachineState, index: int) -> None:
    """Memory of the GPU holds errors that ECC cannot correct, and a row is to be remapped at the next reset."""
    gpu = _gpu(machine, index)
    for counter in ("volatile", "aggregate"):
        for name in (f"ecc_uncorrected_{counter}_errors", f"ecc_uncorrected_{counter}_device_memory_errors"):
            gpu.values[name] = _whole(gpu, name) + 1
    gpu.values |= {"remap_pending": 1, "recovery_action": _RESET_ACTION}


def crowd(machine: MachineState, index: int) -> None:
    """A process that belongs to no engine holds memory of the GPU: this one, which nobody takes for an engine."""
    gpu = _gpu(machine, index)
    others = [process for process in gpu.processes if process.pid != STRANGER_PID]
    gpu.processes = [*others, Process(STRANGER_PID, _STRANGER_BYTES)]


def unlink(machine: MachineState, index: int) -> None:
    """The GPU has no NVLink, as a board for PCIe alone."""
    _gpu(machine, index).values["nvlink_links"] = 0


def slice_mig(machine: MachineState, index: int) -> None:
    """MIG on, in as many instances as an H200 has (1g.18gb)."""
    gpu = _gpu(machine, index)
    total = gpu.values.get("memory_total_bytes")
    share = total // (MIG_INSTANCES + 1) if isinstance(total, int) else 0
    gpu.mig = Mig(
        True,
        [
            MigInstance(
                f"MIG-{uuid.uuid5(uuid.NAMESPACE_OID, f'{gpu.uuid}/{number}')}", number + 7, 0, share, 0, "1g.18gb"
            )
            for number in range(MIG_INSTANCES)
        ],
    )


def recover(machine: MachineState, index: int) -> None:
    """All is well again, as after a reset: MIG off, cool. XIDs that were thrown stay."""
    gpu = _gpu(machine, index)
    gpu.state, gpu.condition, gpu.mig = "ok", "normal", Mig()
    gpu.processes = [process for process in gpu.processes if process.pid != STRANGER_PID]
    gpu.values |= {
        "temperature_celsius": _COOL_CELSIUS,
        "thermal_margin_celsius": _COOL_MARGIN_CELSIUS,
        "clock_event_reasons": IDLE_REASON,
        "remap_pending": 0,
        "recovery_action": 0,
        "nvlink_links": IDLE_H200["nvlink_links"],
    }
    # What counts from boot to boot; the aggregate ones stay.
    gpu.values |= {name: 0 for name in gpu.values if name.startswith("ecc_uncorrected_volatile_")}


def _whole(gpu: SimulatedGpu, name: str) -> int:
    value = gpu.values.get(name, 0)
    return value if isinstance(value, int) else 0


def _gpu(machine: MachineState, index: int) -> SimulatedGpu:
    if not 0 <= index < len(machine.gpus):
        raise UnknownGpu(f"GPU {index}: this machine has GPUs 0 to {len(machine.gpus) - 1}")
    return machine.gpus[index]


_FAULTS: dict[str, Callable[[MachineState, int], None]] = {
    "lost": lose,
    "hang": hang,
    "hot": heat,
    "throttle": throttle,
    "ecc": corrupt,
    "crowd": crowd,
    "unlink": unlink,
    "mig": slice_mig,
    "recover": recover,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Prints when it happened. Exit status: 0 done, 2 no such GPU, or a state file that cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m simulator.gpu.fault", description=__doc__)
    parser.add_argument("state", type=Path, metavar="STATE")
    parser.add_argument("--gpu", type=int, required=True, help="NVML index")
    faults = parser.add_subparsers(dest="fault", required=True, metavar="FAULT")
    faults.add_parser("xid", help=_summary(throw_xid)).add_argument("number", type=whole_number(1, 65_535))
    for name, fault in _FAULTS.items():
        faults.add_parser(name, help=_summary(fault))
    arguments = parser.parse_args(argv)
    try:
        with StateFile(arguments.state).change() as machine:
            if arguments.fault == "xid":
                throw_xid(machine, arguments.gpu, arguments.number)
            else:
                _FAULTS[arguments.fault](machine, arguments.gpu)
            # Before others can see it: what is timed from here is not shown shorter than it was.
            at = datetime.now(UTC)
    except (OSError, ValueError) as error:
        print(f"simulator.gpu.fault: {error}", file=sys.stderr)
        return 2
    what = f"XID {arguments.number}" if arguments.fault == "xid" else arguments.fault
    print(f"{at.isoformat(timespec='milliseconds')} {what} on GPU {arguments.gpu}")
    return 0


def _summary(fault: Callable[..., None]) -> str:
    return (fault.__doc__ or "").partition("\n")[0]


if __name__ == "__main__":
    sys.exit(main())
