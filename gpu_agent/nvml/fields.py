"""What is read of each GPU: names, how often, and the metric each becomes.

Metric names and units follow dcgm-exporter, so that boards and rules made for it work.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

# `once`: with the first answer, and again when the GPU's identity or MIG mode is another. `processes`: the list of
# processes alone, which is slow and holds the driver's lock.
Poll = Literal["fast", "slow", "once", "processes"]
POLLS: frozenset[Poll] = frozenset(get_args(Poll))
_MEBIBYTE = 2**20


class Field(NamedTuple):
    """One value of a GPU, in NVML's unit. `divisor` turns it into the metric's unit. `counter`: it only rises.

    A value above `ceiling` is `clamp`ed to it where a part rounds past the end of a scale, and else a misreading.
    """

    name: str
    metric: str
    poll: Poll = "fast"
    divisor: int = 1
    ceiling: int | None = None
    clamp: bool = False
    counter: bool = False


# NVML's kinds of ECC errors, its two counters, and the memories that it tells apart, as DCGM writes each.
ECC_ERRORS = {"corrected": "SBE", "uncorrected": "DBE"}
ECC_COUNTERS = {"volatile": "VOL", "aggregate": "AGG"}
ECC_PLACES = {
    "l1_cache": "L1",
    "l2_cache": "L2",
    "device_memory": "DEV",
    "register_file": "REG",
    "texture_memory": "TEX",
    "texture_shm": "SHM",
    "cbu": "CBU",
    "sram": "SRM",
}


def ecc_errors_name(error: str, counter: str, place: str) -> str:
    return f"ecc_{error}_{counter}_{place}_errors"


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
    Field("energy_millijoules", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", counter=True),
    Field("sm_clock_mhz", "DCGM_FI_DEV_SM_CLOCK"),
    Field("memory_clock_mhz", "DCGM_FI_DEV_MEM_CLOCK"),
    Field("clock_event_reasons", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"),
    Field("encoder_utilization_percent", "DCGM_FI_DEV_ENC_UTIL", ceiling=100, clamp=True),
    Field("decoder_utilization_percent", "DCGM_FI_DEV_DEC_UTIL", ceiling=100, clamp=True),
    # How far from the temperature at which the GPU slows down: below 0 where it is past that.
    Field("thermal_margin_celsius", "DCGM_FI_DEV_GPU_TEMP_LIMIT", ceiling=200),
    Field("power_limit_milliwatts", "DCGM_FI_DEV_ENFORCED_POWER_LIMIT", poll="slow", divisor=1000),
    Field("power_limit_set_milliwatts", "DCGM_FI_DEV_POWER_MGMT_LIMIT", poll="slow", divisor=1000),
    Field("power_limit_default_milliwatts", "DCGM_FI_DEV_POWER_MGMT_LIMIT_DEF", poll="once", divisor=1000),
    Field("power_limit_min_milliwatts", "DCGM_FI_DEV_POWER_MGMT_LIMIT_MIN", poll="once", divisor=1000),
    Field("power_limit_max_milliwatts", "DCGM_FI_DEV_POWER_MGMT_LIMIT_MAX", poll="once", divisor=1000),
    Field("ecc_enabled", "DCGM_FI_DEV_ECC_CURRENT", poll="slow"),
    Field("ecc_corrected_volatile_errors", "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", poll="slow", counter=True),
    Field("ecc_uncorrected_volatile_errors", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", poll="slow", counter=True),
    Field("ecc_corrected_aggregate_errors", "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", poll="slow", counter=True),
    Field("ecc_uncorrected_aggregate_errors", "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", poll="slow", counter=True),
    *(
        Field(ecc_errors_name(error, counter, place), f"DCGM_FI_DEV_ECC_{kind}_{span}_{where}", "slow", counter=True)
        for error, kind in ECC_ERRORS.items()
        for counter, span in ECC_COUNTERS.items()
        for place, where in ECC_PLACES.items()
    ),
    Field("retired_pages_corrected", "DCGM_FI_DEV_RETIRED_SBE", poll="slow", counter=True),
    Field("retired_pages_uncorrected", "DCGM_FI_DEV_RETIRED_DBE", poll="slow", counter=True),
    Field("retired_pages_pending", "DCGM_FI_DEV_RETIRED_PENDING", poll="slow"),
    Field("remapped_rows_corrected", "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", poll="slow", counter=True),
    Field("remapped_rows_uncorrected", "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", poll="slow", counter=True),
    Field("remap_pending", "DCGM_FI_DEV_ROW_REMAP_PENDING", poll="slow"),
    Field("remap_failure", "DCGM_FI_DEV_ROW_REMAP_FAILURE", poll="slow"),
    Field("pcie_replays", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", poll="slow", counter=True),
    Field("pcie_link_generation", "DCGM_FI_DEV_PCIE_LINK_GEN", poll="slow"),
    Field("pcie_link_width", "DCGM_FI_DEV_PCIE_LINK_WIDTH", poll="slow"),
    Field("pcie_link_generation_max", "DCGM_FI_DEV_PCIE_MAX_LINK_GEN", poll="once"),
    Field("pcie_link_width_max", "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH", poll="once"),
    Field("nvlink_crc_flit_errors", "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", poll="slow", counter=True),
    Field("nvlink_crc_data_errors", "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", poll="slow", counter=True),
    Field("nvlink_replay_errors", "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", poll="slow", counter=True),
    Field("nvlink_recovery_errors", "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", poll="slow", counter=True),
    # 0 nothing, 1 GPU reset, 2 node reboot, 3 drain P2P, 4 drain and reset, 5 IMEX, 6 bus reset, 7 system reboot.
    Field("recovery_action", "headworks_gpu_recovery_action", poll="slow"),
    Field("mig_mode", "DCGM_FI_DEV_MIG_MODE", poll="slow"),
    Field("numa_node", "headworks_gpu_numa_node", poll="once"),
)
FIELD_NAMES = frozenset(field.name for field in FIELDS)
# Of DCGM's names, which do not say so. Ours end in _total.
DCGM_COUNTERS = frozenset(field.metric for field in FIELDS if field.counter)


class PartKind(NamedTuple):
    """A value that a GPU has several of, told apart by labels, or one that is no whole number, with none."""

    metric: str
    labels: tuple[str, ...] = ()
    poll: Poll = "fast"
    divisor: int = 1


# By name. Topology is read once, in a thread of its own, and told with what is slow.
PARTS = {
    # NVML counts nanoseconds.
    "throttled_nanoseconds": PartKind("headworks_gpu_throttled_seconds_total", ("reason",), divisor=10**9),
    # The thermal margin at which each happens: 0 or less.
    "thermal_margin_limit_celsius": PartKind("headworks_gpu_thermal_margin_limit_celsius", ("limit",), "once"),
    "nvlink_up": PartKind("headworks_gpu_nvlink_up", ("link",), "slow"),
    "nvlink_bytes": PartKind("headworks_gpu_nvlink_bytes_total", ("direction",)),
    # Both directions, in thousands of KiB a second, as DCGM has it: its older exporters call that a counter.
    # Source: DCGM dcgmlib/src/DcgmCacheManager.cpp, ReadAndCacheNvLinkBandwidth.
    "nvlink_bytes_per_second": PartKind("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", divisor=1000 * 2**10),
    "mig_instances": PartKind("headworks_gpu_mig_instances", (), "slow"),
    "mig_memory_total_bytes": PartKind("DCGM_FI_DEV_FB_TOTAL", ("GPU_I_PROFILE", "GPU_I_ID"), "slow", _MEBIBYTE),
    "mig_memory_free_bytes": PartKind("DCGM_FI_DEV_FB_FREE", ("GPU_I_PROFILE", "GPU_I_ID"), "slow", _MEBIBYTE),
    "mig_memory_used_bytes": PartKind("DCGM_FI_DEV_FB_USED", ("GPU_I_PROFILE", "GPU_I_ID"), "slow", _MEBIBYTE),
    "topology": PartKind("headworks_gpu_topology_info", ("peer", "link"), "slow"),
    "gr_engine_active_ratio": PartKind("DCGM_FI_PROF_GR_ENGINE_ACTIVE"),
    "tensor_active_ratio": PartKind("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"),
    "dram_active_ratio": PartKind("DCGM_FI_PROF_DRAM_ACTIVE"),
    "pcie_tx_bytes_per_second": PartKind("DCGM_FI_PROF_PCIE_TX_BYTES"),
    "pcie_rx_bytes_per_second": PartKind("DCGM_FI_PROF_PCIE_RX_BYTES"),
}

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
