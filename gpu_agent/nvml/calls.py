"""Which NVML calls give which fields and parts, through nvidia-ml-py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any

from gpu_agent.nvml.fields import ECC_COUNTERS, ECC_ERRORS, ECC_PLACES, Poll, ecc_errors_name
from gpu_agent.nvml.parts import nvlink, values
from gpu_agent.nvml.parts.gpm import Gpm
from gpu_agent.nvml.parts.mig import instances
from gpu_agent.nvml.parts.topology import numa_node
from gpu_agent.nvml.parts.values import field_value
from gpu_agent.nvml.source import Part

_MEMORY_TEMPERATURE = 82
_RECOVERY_ACTION = 230
_RETIRED_PAGES = {"retired_pages_corrected": 29, "retired_pages_uncorrected": 30, "retired_pages_pending": 31}
# The fields that a call gives, in their order, and the call; it raises NVMLError.
FieldCall = tuple[tuple[str, ...], Callable[[Any], Sequence[int]]]
PartCall = Callable[[Any], list[Part]]


def field_calls(nvml: Any) -> dict[Poll, list[FieldCall]]:
    """By poll class. Several fields that come from one call are one call."""

    def utilization(handle: Any) -> tuple[int, int]:
        rates = nvml.nvmlDeviceGetUtilizationRates(handle)
        return rates.gpu, rates.memory

    def memory(handle: Any) -> tuple[int, int, int, int]:
        # The second version: its `used` does not hold what the driver reserved.
        info = nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2)
        return info.total, info.free, info.used, info.reserved

    def temperature(handle: Any) -> tuple[int]:
        try:
            return (nvml.nvmlDeviceGetTemperatureV(handle, nvml.NVML_TEMPERATURE_GPU),)
        except nvml.NVMLError_FunctionNotFound:
            return (nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),)

    def clock_event_reasons(handle: Any) -> tuple[int]:
        try:
            return (nvml.nvmlDeviceGetCurrentClocksEventReasons(handle),)
        except nvml.NVMLError_FunctionNotFound:
            # Drivers before R535 know it by its old name.
            return (nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),)

    def clock(kind: int) -> Callable[[Any], tuple[int]]:
        return lambda handle: (nvml.nvmlDeviceGetClockInfo(handle, kind),)

    def by_number(number: int) -> Callable[[Any], tuple[int]]:
        return lambda handle: (field_value(nvml, handle, number),)

    def ecc_errors(kind: int, counter: int) -> Callable[[Any], tuple[int]]:
        return lambda handle: (nvml.nvmlDeviceGetTotalEccErrors(handle, kind, counter),)

    def ecc_errors_in(error: str, counter: str, place: str) -> FieldCall:
        numbers = (
            getattr(nvml, f"NVML_MEMORY_ERROR_TYPE_{error.upper()}"),
            getattr(nvml, f"NVML_{counter.upper()}_ECC"),
            getattr(nvml, f"NVML_MEMORY_LOCATION_{place.upper()}"),
        )
        name = ecc_errors_name(error, counter, place)
        return (name,), lambda handle: (nvml.nvmlDeviceGetMemoryErrorCounter(handle, *numbers),)

    def single(call: Callable[[Any], int]) -> Callable[[Any], tuple[int]]:
        return lambda handle: (call(handle),)

    corrected, uncorrected = nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    volatile, aggregate = nvml.NVML_VOLATILE_ECC, nvml.NVML_AGGREGATE_ECC
    return {
        "fast": [
            (("gpu_utilization_percent", "memory_copy_utilization_percent"), utilization),
            (("memory_total_bytes", "memory_free_bytes", "memory_used_bytes", "memory_reserved_bytes"), memory),
            (("temperature_celsius",), temperature),
            (("memory_temperature_celsius",), by_number(_MEMORY_TEMPERATURE)),
            (("power_milliwatts",), single(nvml.nvmlDeviceGetPowerUsage)),
            (("energy_millijoules",), single(nvml.nvmlDeviceGetTotalEnergyConsumption)),
            (("sm_clock_mhz",), clock(nvml.NVML_CLOCK_SM)),
            (("memory_clock_mhz",), clock(nvml.NVML_CLOCK_MEM)),
            (("clock_event_reasons",), clock_event_reasons),
            (("encoder_utilization_percent",), lambda handle: (nvml.nvmlDeviceGetEncoderUtilization(handle)[0],)),
            (("decoder_utilization_percent",), lambda handle: (nvml.nvmlDeviceGetDecoderUtilization(handle)[0],)),
            (("thermal_margin_celsius",), single(nvml.nvmlDeviceGetMarginTemperature)),
        ],
        "slow": [
            (("power_limit_milliwatts",), single(nvml.nvmlDeviceGetEnforcedPowerLimit)),
            (("power_limit_set_milliwatts",), single(nvml.nvmlDeviceGetPowerManagementLimit)),
            (("ecc_enabled",), lambda handle: (nvml.nvmlDeviceGetEccMode(handle)[0],)),
            (("ecc_corrected_volatile_errors",), ecc_errors(corrected, volatile)),
            (("ecc_uncorrected_volatile_errors",), ecc_errors(uncorrected, volatile)),
            (("ecc_corrected_aggregate_errors",), ecc_errors(corrected, aggregate)),
            (("ecc_uncorrected_aggregate_errors",), ecc_errors(uncorrected, aggregate)),
            *(ecc_errors_in(*which) for which in product(ECC_ERRORS, ECC_COUNTERS, ECC_PLACES)),
            *(((name,), by_number(number)) for name, number in _RETIRED_PAGES.items()),
            (
                ("remapped_rows_corrected", "remapped_rows_uncorrected", "remap_pending", "remap_failure"),
                nvml.nvmlDeviceGetRemappedRows,
            ),
            (("pcie_replays",), single(nvml.nvmlDeviceGetPcieReplayCounter)),
            (("pcie_link_generation",), single(nvml.nvmlDeviceGetCurrPcieLinkGeneration)),
            (("pcie_link_width",), single(nvml.nvmlDeviceGetCurrPcieLinkWidth)),
            *(((name,), single(call)) for name, call in nvlink.error_calls(nvml)),
            (("recovery_action",), by_number(_RECOVERY_ACTION)),
            (("mig_mode",), lambda handle: (nvml.nvmlDeviceGetMigMode(handle)[0],)),
        ],
        "once": [
            (("power_limit_default_milliwatts",), single(nvml.nvmlDeviceGetPowerManagementDefaultLimit)),
            (
                ("power_limit_min_milliwatts", "power_limit_max_milliwatts"),
                nvml.nvmlDeviceGetPowerManagementLimitConstraints,
            ),
            (("pcie_link_generation_max",), single(nvml.nvmlDeviceGetMaxPcieLinkGeneration)),
            (("pcie_link_width_max",), single(nvml.nvmlDeviceGetMaxPcieLinkWidth)),
            (("numa_node",), single(partial(numa_node, nvml))),
        ],
        "processes": [],
    }


def part_calls(nvml: Any, driver_version: str) -> dict[Poll, list[PartCall]]:
    """Of one GPU, by poll class."""
    throttled = partial(values.throttled, nvml, values.throttled_numbers(driver_version))
    traffic = nvlink.Traffic(partial(nvlink.link_bytes, nvml))
    return {
        "fast": [throttled, traffic.read, Gpm(nvml).read],
        "slow": [partial(nvlink.links_up, nvml), partial(instances, nvml)],
        "once": [partial(values.margin_limits, nvml)],
        "processes": [],
    }
