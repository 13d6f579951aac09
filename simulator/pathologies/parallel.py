"""What tensor parallelism makes of the time of a step, over NVLink and over PCIe. Source: seed 1, section 7."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from simulator.scheduler import StepCost

Interconnect = Literal["nvlink", "pcie"]
# Of an 8B model: two all-reduces in each of 32 layers, of 8 KiB a token. A round takes some microseconds over NVLink
# and tens of them through the host's memory; the bytes go at 300 GB/s and at 25 GB/s.
_ROUNDS, _BYTES_PER_TOKEN = 64, 64 * 8192
_ROUND_SECONDS: dict[Interconnect, float] = {"nvlink": 8e-6, "pcie": 60e-6}
_BYTES_PER_SECOND: dict[Interconnect, float] = {"nvlink": 300e9, "pcie": 25e9}


def parallel(cost: StepCost, tensor_parallel: int, interconnect: Interconnect) -> StepCost:
    """The cost with the work shared among so many GPUs, which have to agree in every layer."""
    if tensor_parallel == 1:
        return cost
    agreeing_seconds = _BYTES_PER_TOKEN / _BYTES_PER_SECOND[interconnect]
    return replace(
        cost,
        base_seconds=cost.base_seconds / tensor_parallel + _ROUNDS * _ROUND_SECONDS[interconnect],
        prefill_token_seconds=cost.prefill_token_seconds / tensor_parallel + agreeing_seconds,
        decode_sequence_seconds=cost.decode_sequence_seconds / tensor_parallel + agreeing_seconds,
        decode_kv_token_seconds=cost.decode_kv_token_seconds / tensor_parallel,
    )
