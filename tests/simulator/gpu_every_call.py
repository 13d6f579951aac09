"""Run as a process: every call of the simulated library on every GPU, and as JSON what each answered."""

from __future__ import annotations

import importlib
import json
from typing import Any

# It has no types.
nvml: Any = importlib.import_module("pynvml")


def plain(answer):
    if isinstance(answer, nvml.Structure):
        return [getattr(answer, name) for name, _ in answer._fields_ if isinstance(getattr(answer, name), int)]
    if isinstance(answer, nvml.Array):
        return [value.value.ullVal for value in answer if value.nvmlReturn == nvml.NVML_SUCCESS]
    return list(answer) if isinstance(answer, tuple) else answer


def attempt(call, *arguments):
    try:
        return plain(call(*arguments))
    except nvml.NVMLError as error:
        return type(error).__name__


ONE_ARGUMENT = [
    nvml.nvmlDeviceGetName, nvml.nvmlDeviceGetUUID, nvml.nvmlDeviceGetIndex, nvml.nvmlDeviceGetMinorNumber,
    nvml.nvmlDeviceGetPciInfo, nvml.nvmlDeviceGetMemoryInfo, nvml.nvmlDeviceGetUtilizationRates,
    nvml.nvmlDeviceGetPowerUsage, nvml.nvmlDeviceGetEnforcedPowerLimit, nvml.nvmlDeviceGetTotalEnergyConsumption,
    nvml.nvmlDeviceGetCurrentClocksEventReasons, nvml.nvmlDeviceGetCurrentClocksThrottleReasons,
    nvml.nvmlDeviceGetEccMode, nvml.nvmlDeviceGetRemappedRows, nvml.nvmlDeviceGetPcieReplayCounter,
    nvml.nvmlDeviceGetMigMode, nvml.nvmlDeviceGetMaxMigDeviceCount, nvml.nvmlDeviceGetGpuInstanceId,
    nvml.nvmlDeviceGetComputeInstanceId, nvml.nvmlDeviceGetSupportedEventTypes,
]  # fmt: skip
FIELD_IDS = [3, 4, 5, 6, 82, 83, 94, 142, 143, 230, 9999]


def answers(handle):
    heard = {call.__name__: attempt(call, handle) for call in ONE_ARGUMENT}
    heard["memory v2"] = attempt(nvml.nvmlDeviceGetMemoryInfo, handle, nvml.nvmlMemory_v2)
    heard["memory v9"] = attempt(nvml.nvmlDeviceGetMemoryInfo, handle, 0x09000028)
    heard["fields"] = attempt(nvml.nvmlDeviceGetFieldValues, handle, FIELD_IDS)
    for number in range(4):
        heard[f"clock {number}"] = attempt(nvml.nvmlDeviceGetClockInfo, handle, number)
        heard[f"temperature {number}"] = attempt(nvml.nvmlDeviceGetTemperature, handle, number)
        heard[f"temperature v {number}"] = attempt(nvml.nvmlDeviceGetTemperatureV, handle, number)
        for counter in range(3):
            heard[f"ecc {number} {counter}"] = attempt(nvml.nvmlDeviceGetTotalEccErrors, handle, number, counter)
            heard[f"ecc 2 {number} {counter}"] = attempt(
                nvml.nvmlDeviceGetMemoryErrorCounter, handle, number, counter, nvml.NVML_MEMORY_LOCATION_DEVICE_MEMORY
            )
    return heard


def main():
    nvml.nvmlInit()
    heard: dict[str, Any] = {"versions": [nvml.nvmlSystemGetDriverVersion(), nvml.nvmlSystemGetNVMLVersion()]}
    events = nvml.nvmlEventSetCreate()
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        heard[str(index)] = answers(handle)
        attempt(nvml.nvmlDeviceRegisterEvents, handle, nvml.nvmlEventTypeXidCriticalError, events)
        attempt(nvml.nvmlDeviceRegisterEvents, handle, nvml.nvmlEventTypeAll, events)
        for name, call in (("UUID", nvml.nvmlDeviceGetHandleByUUID), ("PciBusId", nvml.nvmlDeviceGetHandleByPciBusId)):
            for text in ("", "GPU-0", "00000000:01:00.0", str(heard[str(index)]["nvmlDeviceGetUUID"])):
                heard[f"by {name} {text}"] = isinstance(attempt(call, text), str)
        for number in (0, 6, 7, 1000):
            try:
                instance = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
            except nvml.NVMLError:
                continue
            heard[f"{index} instance {number}"] = answers(instance)
            attempt(nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle, instance)
            attempt(nvml.nvmlDeviceIsMigDeviceHandle, instance)
        attempt(nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle, handle)
    attempt(nvml.nvmlDeviceGetHandleByIndex, 1000)
    attempt(nvml.nvmlEventSetWait_v2, events, 30)
    nvml.nvmlEventSetFree(events)
    nvml.nvmlShutdown()
    attempt(nvml.nvmlShutdown)
    print(json.dumps(heard, default=repr))


if __name__ == "__main__":
    main()
