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
    nvml.nvmlDeviceGetEncoderUtilization, nvml.nvmlDeviceGetDecoderUtilization, nvml.nvmlDeviceGetMarginTemperature,
    nvml.nvmlDeviceGetPowerManagementLimit, nvml.nvmlDeviceGetPowerManagementDefaultLimit,
    nvml.nvmlDeviceGetPowerManagementLimitConstraints, nvml.nvmlDeviceGetCurrPcieLinkGeneration,
    nvml.nvmlDeviceGetCurrPcieLinkWidth, nvml.nvmlDeviceGetMaxPcieLinkGeneration,
    nvml.nvmlDeviceGetMaxPcieLinkWidth, nvml.nvmlGpmQueryDeviceSupport,
]  # fmt: skip
ALL_LINKS = 0xFFFFFFFF
FIELD_IDS = [
    3, 4, 5, 6, 29, 30, 31, 38, 45, 52, 59, 74, 76, 82, 83, 91, 94, 138, (138, ALL_LINKS), (139, ALL_LINKS), 142, 143,
    193, 194, 195, 196, 230, 251, 252, 253, 9999,
]  # fmt: skip
LINK_CALLS = [
    nvml.nvmlDeviceGetNvLinkState, nvml.nvmlDeviceGetNvLinkRemoteDeviceType, nvml.nvmlDeviceGetNvLinkRemotePciInfo,
]  # fmt: skip
GPM_METRICS = [1, 5, 10, 20, 21, 2]


def gpm(handle):
    samples = [nvml.nvmlGpmSampleAlloc() for _ in range(2)]
    asked = nvml.c_nvmlGpmMetricsGet_t(version=1, numMetrics=len(GPM_METRICS), sample1=samples[0], sample2=samples[1])
    for place, number in enumerate(GPM_METRICS):
        asked.metrics[place].metricId = number
    attempt(nvml.nvmlGpmMetricsGet, asked)
    try:
        for sample in samples:
            nvml.nvmlGpmSampleGet(handle, sample)
        nvml.nvmlGpmMetricsGet(asked)
    except nvml.NVMLError as error:
        return type(error).__name__
    finally:
        for sample in samples:
            nvml.nvmlGpmSampleFree(sample)
    return [metric.value for metric in asked.metrics[: len(GPM_METRICS)] if metric.nvmlReturn == nvml.NVML_SUCCESS]


def numa_nodes(handle):
    words = nvml.nvmlDeviceGetMemoryAffinity(handle, 16, nvml.NVML_AFFINITY_SCOPE_NODE)
    return [64 * place + bit for place, word in enumerate(words) for bit in range(64) if word >> bit & 1]


def processes(call):
    return lambda handle: [[process.pid, process.usedGpuMemory] for process in call(handle)]


def answers(handle):
    heard = {call.__name__: attempt(call, handle) for call in ONE_ARGUMENT}
    heard["memory v2"] = attempt(nvml.nvmlDeviceGetMemoryInfo, handle, nvml.nvmlMemory_v2)
    heard["memory v9"] = attempt(nvml.nvmlDeviceGetMemoryInfo, handle, 0x09000028)
    heard["fields"] = attempt(nvml.nvmlDeviceGetFieldValues, handle, FIELD_IDS)
    heard["gpm"] = attempt(gpm, handle)
    heard["numa nodes"] = attempt(numa_nodes, handle)
    heard["processes"] = attempt(processes(nvml.nvmlDeviceGetComputeRunningProcesses_v3), handle)
    heard["processes of MPS"] = attempt(processes(nvml.nvmlDeviceGetMPSComputeRunningProcesses_v3), handle)
    for link in (0, 17, 36):
        heard |= {f"{call.__name__} {link}": attempt(call, handle, link) for call in LINK_CALLS}
    for peer_index in range(nvml.nvmlDeviceGetCount()):
        peer = nvml.nvmlDeviceGetHandleByIndex(peer_index)
        heard[f"ancestor {peer_index}"] = attempt(nvml.nvmlDeviceGetTopologyCommonAncestor, handle, peer)
        for capability in (1, nvml.NVML_P2P_CAPS_INDEX_NVLINK):
            heard[f"P2P {capability} {peer_index}"] = attempt(nvml.nvmlDeviceGetP2PStatus, handle, peer, capability)
    for number in range(4):
        heard[f"clock {number}"] = attempt(nvml.nvmlDeviceGetClockInfo, handle, number)
        heard[f"temperature {number}"] = attempt(nvml.nvmlDeviceGetTemperature, handle, number)
        heard[f"temperature v {number}"] = attempt(nvml.nvmlDeviceGetTemperatureV, handle, number)
        for counter in range(3):
            heard[f"ecc {number} {counter}"] = attempt(nvml.nvmlDeviceGetTotalEccErrors, handle, number, counter)
            for location in range(nvml.NVML_MEMORY_LOCATION_COUNT + 1):
                heard[f"ecc {number} {counter} {location}"] = attempt(
                    nvml.nvmlDeviceGetMemoryErrorCounter, handle, number, counter, location
                )
    return heard


def main():
    nvml.nvmlInit()
    heard: dict[str, Any] = {"versions": [nvml.nvmlSystemGetDriverVersion(), nvml.nvmlSystemGetNVMLVersion()]}
    heard["cuda"] = attempt(nvml.nvmlSystemGetCudaDriverVersion_v2)
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
