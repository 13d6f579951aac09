"""Which engines hold a GPU's memory. Pure, but for `sees_host_pids`."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable

from gpu_agent.nvml.readings import GpuReading
from gpu_agent.samples import Sample

# Inode of the first PID namespace (include/linux/proc_ns.h, PROC_PID_INIT_INO).
_FIRST_PID_NAMESPACE = "pid:[4026531836]"


def sees_host_pids() -> bool:
    """Whether this process numbers processes as the host does, and so as NVML does, which knows of no containers."""
    try:
        return os.readlink("/proc/self/ns/pid") == _FIRST_PID_NAMESPACE
    except OSError:
        return False


def process_samples(gpu: GpuReading, labels: dict[str, str], engine_of: Callable[[int], str | None]) -> list[Sample]:
    """How many processes hold memory of the GPU, and how much, by engine; without that label, those of no engine."""
    held: defaultdict[str | None, list[int]] = defaultdict(list)
    for pid, memory_bytes in gpu.processes:
        held[engine_of(pid)].append(memory_bytes)
    found = []
    for engine, sizes_bytes in held.items():
        own = labels if engine is None else {**labels, "engine": engine}
        found.append(Sample("headworks_gpu_processes", own, float(len(sizes_bytes)), gpu.at_ms))
        found.append(Sample("headworks_gpu_process_memory_bytes", own, float(sum(sizes_bytes)), gpu.at_ms))
    return found
