"""NVML through nvidia-ml-py."""

from __future__ import annotations

import ctypes
import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from gpu_agent.nvml.fields import Poll
from gpu_agent.nvml.source import FieldValue, Identity, Missing, Source, Unreadable, Unusable

# A simulated library says so in its driver version.
_SIMULATED_SUFFIX = "-simulated"
_LIBRARY_FINDER = "ctypes.util"
_FIELD_MEMORY_TEMPERATURE = 82
_FIELD_RECOVERY_ACTION = 230
# One NVML call: the fields it gives, and the call.
_Call = tuple[tuple[str, ...], Callable[[Any], tuple[int, ...]]]


class NvmlLibrary:
    """NVML, opened by this process. It is never closed: the process ends instead."""

    kind: Source

    def __init__(self, library_path: str) -> None:
        """`library_path`: another libnvidia-ml.so.1 than the loader finds; empty: that one.

        Raises: Unusable.
        """
        try:
            pynvml = _import_pynvml()
        except ImportError as error:
            raise Unusable("the nvidia-ml-py package is not installed", absent=True) from error
        self._nvml = pynvml
        if library_path:
            try:
                # pynvml asks the loader for "libnvidia-ml.so.1", and is given the one of that soname that is loaded.
                ctypes.CDLL(library_path, mode=ctypes.RTLD_GLOBAL)
            except OSError as error:
                raise Unusable(f"the NVML library cannot be loaded: {error}") from error
        try:
            pynvml.nvmlInit()
            self.driver_version = str(pynvml.nvmlSystemGetDriverVersion())
            self.count = int(pynvml.nvmlDeviceGetCount())
            self._event_set = pynvml.nvmlEventSetCreate()
        except pynvml.NVMLError as error:
            absent = error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
            raise Unusable(f"no NVML library: {error}" if absent else str(error), absent=absent) from error
        self.kind = "simulated" if self.driver_version.endswith(_SIMULATED_SUFFIX) else "nvml"
        self._calls = _calls(pynvml)
        # Event data names a GPU by its handle.
        self._index_of: dict[int, int] = {}

    def identify(self, index: int) -> Identity:
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            return {
                "index": index,
                "uuid": str(nvml.nvmlDeviceGetUUID(handle)),
                "name": str(nvml.nvmlDeviceGetName(handle)),
                "pci_bus_id": str(nvml.nvmlDeviceGetPciInfo(handle).busId),
                "minor": int(nvml.nvmlDeviceGetMinorNumber(handle)),
            }
        except nvml.NVMLError as error:
            raise Unreadable(str(error)) from error

    def read(self, index: int, poll: Poll) -> dict[str, FieldValue]:
        nvml = self._nvml
        fields: dict[str, FieldValue] = {}
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
        except nvml.NVMLError as error:
            missing = self._missing(error)
            return {name: missing for names, _ in self._calls[poll] for name in names}
        for names, call in self._calls[poll]:
            try:
                fields |= zip(names, call(handle), strict=True)
            except nvml.NVMLError as error:
                fields |= dict.fromkeys(names, self._missing(error))
        return fields

    def watch(self, index: int) -> None:
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            self._index_of[ctypes.addressof(handle.contents)] = index
            nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, self._event_set)
        except nvml.NVMLError as error:
            raise Unreadable(str(error)) from error

    def next_xid(self, timeout_seconds: float) -> tuple[int, int] | None:
        nvml = self._nvml
        try:
            data = nvml.nvmlEventSetWait_v2(self._event_set, int(timeout_seconds * 1000))
        except nvml.NVMLError_Timeout:
            return None
        except nvml.NVMLError as error:
            raise Unreadable(str(error)) from error
        index = self._index_of.get(ctypes.addressof(data.device.contents))
        if index is None or data.eventType != nvml.nvmlEventTypeXidCriticalError:
            return None
        return index, int(data.eventData)

    def _missing(self, error: Exception) -> Missing:
        nvml = self._nvml
        if isinstance(error, nvml.NVMLError_NotSupported | nvml.NVMLError_FunctionNotFound):
            return "unsupported"
        return "lost" if isinstance(error, nvml.NVMLError_GpuIsLost) else "error"


def _import_pynvml() -> Any:
    """nvidia-ml-py, which has no types.

    It imports find_library and never calls it, and with that come subprocess, tempfile and others: 2 MB on every node.
    """
    late: Any = ModuleType(_LIBRARY_FINDER)
    late.find_library = lambda name: importlib.import_module(_LIBRARY_FINDER).find_library(name)
    if sys.modules.setdefault(_LIBRARY_FINDER, late) is not late:
        return importlib.import_module("pynvml")
    try:
        return importlib.import_module("pynvml")
    finally:
        del sys.modules[_LIBRARY_FINDER]


def _calls(nvml: Any) -> dict[Poll, list[_Call]]:
    """NVML's calls by poll class. Several fields that come from one call are one call."""

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

    def field_value(number: int) -> Callable[[Any], tuple[int]]:
        def read(handle: Any) -> tuple[int]:
            (value,) = nvml.nvmlDeviceGetFieldValues(handle, [number])
            if value.nvmlReturn != nvml.NVML_SUCCESS:
                raise nvml.NVMLError(value.nvmlReturn)
            return (_number(nvml, value),)

        return read

    def ecc_errors(kind: int, counter: int) -> Callable[[Any], tuple[int]]:
        return lambda handle: (nvml.nvmlDeviceGetTotalEccErrors(handle, kind, counter),)

    def single(call: Callable[[Any], int]) -> Callable[[Any], tuple[int]]:
        return lambda handle: (call(handle),)

    corrected, uncorrected = nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    volatile, aggregate = nvml.NVML_VOLATILE_ECC, nvml.NVML_AGGREGATE_ECC
    return {
        "fast": [
            (("gpu_utilization_percent", "memory_copy_utilization_percent"), utilization),
            (("memory_total_bytes", "memory_free_bytes", "memory_used_bytes", "memory_reserved_bytes"), memory),
            (("temperature_celsius",), temperature),
            (("memory_temperature_celsius",), field_value(_FIELD_MEMORY_TEMPERATURE)),
            (("power_milliwatts",), single(nvml.nvmlDeviceGetPowerUsage)),
            (("energy_millijoules",), single(nvml.nvmlDeviceGetTotalEnergyConsumption)),
            (("sm_clock_mhz",), clock(nvml.NVML_CLOCK_SM)),
            (("memory_clock_mhz",), clock(nvml.NVML_CLOCK_MEM)),
            (("clock_event_reasons",), clock_event_reasons),
        ],
        "slow": [
            (("power_limit_milliwatts",), single(nvml.nvmlDeviceGetEnforcedPowerLimit)),
            (("ecc_enabled",), lambda handle: (nvml.nvmlDeviceGetEccMode(handle)[0],)),
            (("ecc_corrected_volatile_errors",), ecc_errors(corrected, volatile)),
            (("ecc_uncorrected_volatile_errors",), ecc_errors(uncorrected, volatile)),
            (("ecc_corrected_aggregate_errors",), ecc_errors(corrected, aggregate)),
            (("ecc_uncorrected_aggregate_errors",), ecc_errors(uncorrected, aggregate)),
            (
                ("remapped_rows_corrected", "remapped_rows_uncorrected", "remap_pending", "remap_failure"),
                nvml.nvmlDeviceGetRemappedRows,
            ),
            (("pcie_replays",), single(nvml.nvmlDeviceGetPcieReplayCounter)),
            (("recovery_action",), field_value(_FIELD_RECOVERY_ACTION)),
            (("mig_mode",), lambda handle: (nvml.nvmlDeviceGetMigMode(handle)[0],)),
        ],
    }


def _number(nvml: Any, value: Any) -> int:
    """A field value's number: which member of the union holds it is the driver's choice."""
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
    if member is None:
        raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
    return int(getattr(value.value, member))
