"""What is read of each GPU: names, how often, and the metric each becomes.

Metric names, units and help follow dcgm-exporter's default counters, so that boards and rules made for it work.
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
    help: str
    poll: Poll = "fast"
    type: Literal["gauge", "counter"] = "gauge"
    divisor: int = 1
    ceiling: int | None = None
    clamp: bool = False


FIELDS = (
    Field(
        "gpu_utilization_percent", "DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", ceiling=100, clamp=True
    ),
    Field(
        "memory_copy_utilization_percent",
        "DCGM_FI_DEV_MEM_COPY_UTIL", "Memory utilization (in %).", ceiling=100, clamp=True,
    ),
    Field("memory_total_bytes", "DCGM_FI_DEV_FB_TOTAL", "Framebuffer memory total (in MiB).", divisor=_MEBIBYTE),
    Field("memory_free_bytes", "DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB).", divisor=_MEBIBYTE),
    Field("memory_used_bytes", "DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).", divisor=_MEBIBYTE),
    Field(
        "memory_reserved_bytes", "DCGM_FI_DEV_FB_RESERVED", "Framebuffer memory reserved (in MiB).", divisor=_MEBIBYTE
    ),
    Field("temperature_celsius", "DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", ceiling=200),
    Field("memory_temperature_celsius", "DCGM_FI_DEV_MEMORY_TEMP", "Memory temperature (in C).", ceiling=200),
    Field("power_milliwatts", "DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", divisor=1000),
    Field(
        "energy_millijoules", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        "Total energy consumption since boot (in mJ).", type="counter",
    ),
    Field("sm_clock_mhz", "DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz)."),
    Field("memory_clock_mhz", "DCGM_FI_DEV_MEM_CLOCK", "Memory clock frequency (in MHz)."),
    Field(
        "clock_event_reasons", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "Current clock event reasons (NVML's bit mask)."
    ),
    Field(
        "power_limit_milliwatts", "DCGM_FI_DEV_ENFORCED_POWER_LIMIT",
        "Power limit that the driver enforces (in W).", poll="slow", divisor=1000,
    ),
    Field("ecc_enabled", "DCGM_FI_DEV_ECC_CURRENT", "Whether ECC is on.", poll="slow"),
    Field(
        "ecc_corrected_volatile_errors", "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
        "Total number of single-bit volatile ECC errors.", poll="slow", type="counter",
    ),
    Field(
        "ecc_uncorrected_volatile_errors", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
        "Total number of double-bit volatile ECC errors.", poll="slow", type="counter",
    ),
    Field(
        "ecc_corrected_aggregate_errors", "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL",
        "Total number of single-bit persistent ECC errors.", poll="slow", type="counter",
    ),
    Field(
        "ecc_uncorrected_aggregate_errors", "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL",
        "Total number of double-bit persistent ECC errors.", poll="slow", type="counter",
    ),
    Field(
        "remapped_rows_corrected", "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
        "Number of remapped rows for correctable errors", poll="slow", type="counter",
    ),
    Field(
        "remapped_rows_uncorrected", "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "Number of remapped rows for uncorrectable errors", poll="slow", type="counter",
    ),
    Field("remap_pending", "DCGM_FI_DEV_ROW_REMAP_PENDING", "Whether remapping of rows waits for a reset", poll="slow"),
    Field("remap_failure", "DCGM_FI_DEV_ROW_REMAP_FAILURE", "Whether remapping of rows has failed", poll="slow"),
    Field(
        "pcie_replays", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
        "Total number of PCIe retries.", poll="slow", type="counter",
    ),
    Field(
        "recovery_action", "headworks_gpu_recovery_action",
        "What the driver asks for: 0 nothing, 1 GPU reset, 2 node reboot, 3 drain P2P, 4 drain and reset.", poll="slow",
    ),
    Field("mig_mode", "DCGM_FI_DEV_MIG_MODE", "Whether MIG is on.", poll="slow"),
)  # fmt: skip
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
