"""MIG instances: parts of a GPU with memory of their own."""

from __future__ import annotations

import re
from typing import Any

from gpu_agent.nvml.source import Part

# The GPU instance's profile at the end of a MIG device's name: "NVIDIA H200 MIG 1g.18gb", "… MIG 1c.3g.71gb".
_PROFILE = re.compile(r"\d{1,2}g\.\d{1,4}gb[+.\w]{0,16}$")
_UNNAMED = "unknown"


def instances(nvml: Any, handle: Any) -> list[Part]:
    """How many instances there are, and the memory of each; nothing while MIG is off.

    They may be cut anew meanwhile: one that is gone is passed over. Raises: NVMLError.
    """
    if not nvml.nvmlDeviceGetMigMode(handle)[0]:
        return []
    found: dict[str, list[Part]] = {}
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            instance = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            number = str(nvml.nvmlDeviceGetGpuInstanceId(instance))
            # Compute instances of one GPU instance share its memory.
            if number not in found:
                found[number] = []
                found[number] = _memory(nvml, instance, [_profile(nvml, instance), number])
        except nvml.NVMLError:
            continue
    return [("mig_instances", [], len(found)), *(part for parts in found.values() for part in parts)]


def _memory(nvml: Any, instance: Any, labels: list[str]) -> list[Part]:
    memory = nvml.nvmlDeviceGetMemoryInfo(instance, nvml.nvmlMemory_v2)
    return [
        ("mig_memory_total_bytes", labels, memory.total),
        ("mig_memory_free_bytes", labels, memory.free),
        ("mig_memory_used_bytes", labels, memory.used),
    ]


def _profile(nvml: Any, instance: Any) -> str:
    said = _PROFILE.search(str(nvml.nvmlDeviceGetName(instance)))
    return said.group() if said else _UNNAMED
