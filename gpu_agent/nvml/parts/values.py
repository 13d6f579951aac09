"""NVML's numbered field values, through nvidia-ml-py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpu_agent.nvml.source import Part

# NVML says "not available" by a number with all bits set; no count of anything is half as large.
NOT_AVAILABLE = 2**63
# A field value of all links of a GPU together.
ALL_LINKS = 0xFFFFFFFF
# Throttled times by reason, as fields.CLOCK_EVENT_REASONS names them; margins by what happens there.
_THROTTLED = {"sw_power_cap": 74, "sync_boost": 76}
# The first of three numbers in a row, by the driver's major version from which on they stand for these. Other drivers
# have power smoothing there. Source: nvml.h of CUDA 12.8 (R570), 12.9 (R575), 13.0 (R580) and 13.1 (R590).
_SLOWDOWNS = ("sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")
_FIRST_SLOWDOWN = ((590, 269), (575, 251))
_MARGIN_LIMITS = {"shutdown": 193, "slowdown": 194, "memory_max": 195, "gpu_max": 196}


def field_value(nvml: Any, handle: Any, number: int, scope: int = 0) -> int:
    """One field's value, in NVML's unit. Raises: NVMLError."""
    (value,) = nvml.nvmlDeviceGetFieldValues(handle, [(number, scope)])
    return _number(nvml, value)


def field_values(nvml: Any, handle: Any, wanted: Sequence[tuple[int, int]]) -> list[int | None]:
    """Values of (field, scope) in one call, each on its own: None where there is none. Raises: NVMLError."""

    def read(value: Any) -> int | None:
        try:
            return _number(nvml, value)
        except nvml.NVMLError:
            return None

    return [read(value) for value in nvml.nvmlDeviceGetFieldValues(handle, list(wanted))] if wanted else []


def throttled_numbers(driver_version: str) -> dict[str, int]:
    """Numbers of the throttled times that this driver has, by reason."""
    major = driver_version.partition(".")[0]
    for since, first in _FIRST_SLOWDOWN:
        if major.isdecimal() and int(major) >= since:
            return _THROTTLED | dict(zip(_SLOWDOWNS, range(first, first + len(_SLOWDOWNS)), strict=True))
    return _THROTTLED


def throttled(nvml: Any, numbers: dict[str, int], handle: Any) -> list[Part]:
    """By reason, whose `numbers` come from `throttled_numbers`. Raises: NVMLError."""
    return _labelled(nvml, handle, "throttled_nanoseconds", numbers)


def margin_limits(nvml: Any, handle: Any) -> list[Part]:
    return _labelled(nvml, handle, "thermal_margin_limit_celsius", _MARGIN_LIMITS)


def _labelled(nvml: Any, handle: Any, part: str, numbers: dict[str, int]) -> list[Part]:
    values = field_values(nvml, handle, [(number, 0) for number in numbers.values()])
    return [(part, [label], value) for label, value in zip(numbers, values, strict=True) if value is not None]


def _number(nvml: Any, value: Any) -> int:
    """A field value's number: which member of the union holds it is the driver's choice. Raises: NVMLError."""
    if value.nvmlReturn == nvml.NVML_ERROR_INVALID_ARGUMENT:
        # A driver that does not know the field yet.
        raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
    if value.nvmlReturn != nvml.NVML_SUCCESS:
        raise nvml.NVMLError(value.nvmlReturn)
    members = {
        nvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
        nvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
        nvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
        nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
        nvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
        nvml.NVML_VALUE_TYPE_SIGNED_INT: "siVal",
        nvml.NVML_VALUE_TYPE_UNSIGNED_SHORT: "usVal",
    }
    member = members.get(value.valueType)
    number = int(getattr(value.value, member)) if member else NOT_AVAILABLE
    if number >= NOT_AVAILABLE:
        raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
    return number
