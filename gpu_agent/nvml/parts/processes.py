"""Which processes hold memory of a GPU."""

from __future__ import annotations

from typing import Any

from gpu_agent.nvml.source import Process


def processes(nvml: Any, handle: Any) -> list[Process]:
    """Process ids as the host counts them, with bytes; clients of MPS too. Raises: NVMLError.

    A process on several MIG instances is one. One whose memory NVML does not tell is not there.
    """
    try:
        listed = nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle)
    except nvml.NVMLError_FunctionNotFound:
        # Drivers before R510.
        listed = nvml.nvmlDeviceGetComputeRunningProcesses_v2(handle)
    used: dict[tuple[int, int, int], int] = {}
    for process in [*listed, *_of_mps(nvml, handle)]:
        if process.pid and process.usedGpuMemory is not None:
            # The same one may be listed as a client of MPS and by itself.
            used[process.pid, process.gpuInstanceId, process.computeInstanceId] = process.usedGpuMemory
    by_pid: dict[int, int] = {}
    for (pid, _, _), used_bytes in used.items():
        by_pid[pid] = by_pid.get(pid, 0) + used_bytes
    return list(by_pid.items())


def _of_mps(nvml: Any, handle: Any) -> list[Any]:
    try:
        return list(nvml.nvmlDeviceGetMPSComputeRunningProcesses_v3(handle))
    except nvml.NVMLError:
        return []
