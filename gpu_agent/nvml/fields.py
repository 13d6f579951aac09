"""What is read of each GPU: names, how often, and the metric each becomes.

Metric names and units follow dcgm-exporter's default counters, so that boards and rules made for it work.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Poll = Literal["fast", "slow"]
_MEBIBYTE = 2**20


class Field(NamedTuple):
    """One value of a GPU, in NVML's unit. `divisor` turns it into the metric's unit.

    A value above `ceiling` is `clamp`ed to it where a part rounds past the end of a scale, and else a misreading.
    """

    name: str
    metric: str
    poll: Poll = "fast"
    divisor: int = 1
    ceiling: int | None = None
    clamp: bool = False


FIELDS = (
    Field("gpu_utilization_percent", "DCGM_FI_DEV_GPU_UTIL", ceiling=100, clamp=True),
    Field("memory_copy_utilization_percent", "DCGM_FI_DEV_MEM_COPY_UTIL", ceiling=100, clamp=True),
    Field("memory_total_bytes", "DCGM_FI_DEV_FB_TOTAL", divisor=_MEBIBYTE),
    Field("memory_free_bytes", "DCGM_FI_DEV_FB_FREE", divisor=_MEBIBYTE),
    Field("memory_used_bytes", "DCGM_FI_DEV_FB_USED", divisor=_MEBIBYTE),
    Field("memory_reserved_bytes", "DCGM_FI_DEV_FB_RESERVED", divisor=_MEBIBYTE),
    Field("temperature_celsius", "DCGM_FI_DEV_GPU_TEMP", ceiling=200),
    Field("memory_temperature_celsius", "DCGM_FI_DEV_MEMORY_TEMP", ceiling=200),
    Field("power_milliwatts", "DCGM_FI_DEV_POWER_USAGE", divisor=1000),
    Field("energy_millijoules", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"),
    Field("sm_clock_mhz", "DCGM_FI_DEV_SM_CLOCK"),
    Field("memory_clock_mhz", "DCGM_FI_DEV_MEM_CLOCK"),
    Field("clock_event_reasons", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"),
    Field("power_limit_milliwatts", "DCGM_FI_DEV_ENFORCED_POWER_LIMIT", poll="slow", divisor=1000),
    Field("ecc_enabled", "DCGM_FI_DEV_ECC_CURRENT", poll="slow"),
    Field("ecc_corrected_volatile_errors", "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", poll="slow"),
    Field("ecc_uncorrected_volatile_errors", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", poll="slow"),
    Field("ecc_corrected_aggregate_errors", "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", poll="slow"),
    Field("ecc_uncorrected_aggregate_errors", "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", poll="slow"),
    Field("remapped_rows_corrected", "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", poll="slow"),
    Field("remapped_rows_uncorrected", "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", poll="slow"),
    Field("remap_pending", "DCGM_FI_DEV_ROW_REMAP_PENDING", poll="slow"),
    Field("remap_failure", "DCGM_FI_DEV_ROW_REMAP_FAILURE", poll="slow"),
    Field("pcie_replays", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", poll="slow"),
    # 0 nothing, 1 GPU reset, 2 node reboot, 3 drain P2P, 4 drain and reset.
    Field("recovery_action", "headworks_gpu_recovery_action", poll="slow"),
    Field("mig_mode", "DCGM_FI_DEV_MIG_MODE", poll="slow"),
)
FIELD_NAMES = frozenset(field.name for field in FIELDS)

# NVML's clock event reasons (nvmlClocksEventReason*), by bit.
CLOCK_EVENT_REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
