"""How a GPU behaves under load: utilisation, memory, power, clocks and temperature over time. No I/O."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from simulator.gpu.state import IDLE_H200, SimulatedGpu, Value

# Clock event reasons, NVML's bits.
IDLE_REASON = 0x1
SW_POWER_CAP_REASON = 0x4
HW_THERMAL_REASONS = 0x8 | 0x40
POWER_BRAKE_REASONS = 0x8 | 0x80
_THROTTLED_BY = {"sw_power_cap": 0x4, "hw_thermal_slowdown": 0x40, "hw_power_brake_slowdown": 0x80}

# Decoding is bound by memory: a few sequences keep the GPU busy, many raise its power (seed 1, section 4).
_BUSY_REQUESTS = 1.5
_FULL_REQUESTS = 64
# Share of the memory that vLLM takes at its start (gpu_memory_utilization's default) and of memory bandwidth at work.
_ENGINE_MEMORY_RATIO = 0.9
_MEMORY_COPY_RATIO = 0.6
# A board's cooler: where it settles above the inlet air at full power, how fast, and where a fault takes it.
_INLET_CELSIUS = 26.0
_FULL_POWER_RISE_CELSIUS = 44.0
_THERMAL_SECONDS = 25.0
_FAULT_RISE_CELSIUS = 48.0
_MEMORY_HOTTER_CELSIUS = 9
# Where an H200 slows down by itself, and so what its thermal margin is counted from.
SLOWDOWN_CELSIUS = 87
# Of a full batch with tensor parallelism: all-reduce over NVLink, tokens and prompts over PCIe, tensor cores at work.
_NVLINK_KIBIBYTES_PER_SECOND = 40 * 2**20
_PCIE_MEBIBYTES_PER_SECOND = 200
_TENSOR_RATIO = 0.35
_SLOW_SM_CLOCK_MHZ = 345
_SLOW_POWER_RATIO = 0.35


@dataclass
class Load:
    """What runs on a GPU: requests in a running batch, and whether an engine holds its memory at all."""

    running_requests: float
    engine_up: bool = True


@dataclass
class GpuModel:
    """The state that a GPU carries from one step to the next. `rng` makes boards differ, repeatably."""

    rng: random.Random
    temperature_celsius: float = 30.0
    energy_millijoules: float = 0.0

    def __post_init__(self) -> None:
        # Places in a chassis differ by some degrees.
        self._place_celsius = self.rng.uniform(0, 7)

    @classmethod
    def of(cls, gpu: SimulatedGpu, rng: random.Random) -> GpuModel:
        """Go on from what the state file says."""
        return cls(rng, _number(gpu, "temperature_celsius"), _number(gpu, "energy_millijoules"))

    def step(self, gpu: SimulatedGpu, load: Load, seconds: float) -> None:
        """Write into `gpu` what it shows `seconds` later. What it does not support stays unsupported."""
        if (shown_celsius := _number(gpu, "temperature_celsius")) != round(self.temperature_celsius):
            # A fault put it there: go on from it.
            self.temperature_celsius = shown_celsius
        busy_ratio = 1 - math.exp(-load.running_requests / _BUSY_REQUESTS)
        batch_ratio = min(1.0, load.running_requests / _FULL_REQUESTS)
        idle_milliwatts, limit_milliwatts = _idle("power_milliwatts"), _number(gpu, "power_limit_milliwatts")
        wanted_ratio = 0.5 * busy_ratio + 0.55 * batch_ratio + self.rng.gauss(0, 0.01) * busy_ratio
        slowed = gpu.condition != "normal"
        power_ratio = min(max(wanted_ratio, 0.0), _SLOW_POWER_RATIO if slowed else 1.0)
        power_milliwatts = idle_milliwatts + power_ratio * max(0.0, limit_milliwatts - idle_milliwatts)
        self._warm(power_milliwatts / max(limit_milliwatts, 1.0), gpu.condition == "hot", seconds)
        self.energy_millijoules += power_milliwatts * seconds
        reasons = _reasons(gpu, busy=busy_ratio > 0, capped=wanted_ratio >= 1)
        utilization = min(100.0, max(0.0, 100 * busy_ratio * (1 + self.rng.gauss(0, 0.02))))
        memory_ratio = _ENGINE_MEMORY_RATIO if load.engine_up else 0.0
        available_bytes = _number(gpu, "memory_total_bytes") - _number(gpu, "memory_reserved_bytes")
        shown = {
            "gpu_utilization_percent": utilization,
            "memory_copy_utilization_percent": utilization * _MEMORY_COPY_RATIO,
            "memory_used_bytes": memory_ratio * max(0.0, available_bytes),
            "power_milliwatts": power_milliwatts,
            "energy_millijoules": self.energy_millijoules,
            "temperature_celsius": self.temperature_celsius,
            "memory_temperature_celsius": self.temperature_celsius + _MEMORY_HOTTER_CELSIUS * (1 + busy_ratio) / 2,
            "thermal_margin_celsius": SLOWDOWN_CELSIUS - self.temperature_celsius,
            "gr_engine_active_per_mille": 10 * utilization,
            "tensor_active_per_mille": 1000 * batch_ratio * _TENSOR_RATIO,
            "dram_active_per_mille": 10 * utilization * _MEMORY_COPY_RATIO,
            "pcie_tx_mebibytes_per_second": batch_ratio * _PCIE_MEBIBYTES_PER_SECOND,
            "pcie_rx_mebibytes_per_second": batch_ratio * _PCIE_MEBIBYTES_PER_SECOND,
            **_counted(gpu, reasons, batch_ratio, seconds),
            "sm_clock_mhz": _SLOW_SM_CLOCK_MHZ if slowed else _idle("sm_clock_mhz"),
            "clock_event_reasons": reasons,
        }
        gpu.values |= {name: round(value) for name, value in shown.items() if isinstance(gpu.values.get(name), int)}

    def _warm(self, power_ratio: float, faulty: bool, seconds: float) -> None:
        rise = _FULL_POWER_RISE_CELSIUS * power_ratio + (_FAULT_RISE_CELSIUS if faulty else 0.0)
        settled = _INLET_CELSIUS + self._place_celsius + rise
        # First-order lag, exact for any step.
        self.temperature_celsius += (settled - self.temperature_celsius) * (1 - math.exp(-seconds / _THERMAL_SECONDS))


class Wander:
    """A load without an engine to follow: running requests that wander between nothing and a full batch."""

    _MEAN_LOGARITHM = math.log(8)
    _SPREAD = 1.2
    _CORRELATION_SECONDS = 60.0

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._deviation = rng.gauss(0, self._SPREAD)

    def step(self, seconds: float) -> Load:
        kept = math.exp(-seconds / self._CORRELATION_SECONDS)
        self._deviation = self._deviation * kept + self._rng.gauss(0, self._SPREAD) * math.sqrt(1 - kept * kept)
        return Load(min(float(_FULL_REQUESTS), math.exp(self._MEAN_LOGARITHM + self._deviation)))


def _reasons(gpu: SimulatedGpu, *, busy: bool, capped: bool) -> int:
    if gpu.condition == "hot":
        return HW_THERMAL_REASONS
    if gpu.condition == "throttled":
        return POWER_BRAKE_REASONS
    if capped:
        return SW_POWER_CAP_REASON
    return 0 if busy else IDLE_REASON


def _counted(gpu: SimulatedGpu, reasons: int, batch_ratio: float, seconds: float) -> dict[str, float]:
    """Counters `seconds` later: bytes over NVLink, and the time that each reason held clocks down."""
    sent = batch_ratio * _NVLINK_KIBIBYTES_PER_SECOND * seconds
    counted = {name: _number(gpu, name) + sent for name in ("nvlink_tx_kibibytes", "nvlink_rx_kibibytes")}
    for reason, bit in _THROTTLED_BY.items():
        name = f"throttled_{reason}_nanoseconds"
        counted[name] = _number(gpu, name) + (seconds * 1e9 if reasons & bit else 0)
    return counted


def _number(gpu: SimulatedGpu, name: str) -> float:
    value: Value = gpu.values.get(name, 0)
    return float(value) if isinstance(value, int) else 0.0


def _idle(name: str) -> float:
    value = IDLE_H200[name]
    return float(value) if isinstance(value, int) else 0.0
