"""What a simulated GPU has several of: the state file's values as the parts that NVML's own would be. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from msgspec import Meta, Struct

from gpu_agent.nvml.source import Part

_KIBIBYTE, _MEBIBYTE = 2**10, 2**20
_MAX_LINKS = 36
_THROTTLED = ("sw_power_cap", "sync_boost", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")
_MARGIN_LIMITS = ("shutdown", "slowdown", "memory_max", "gpu_max")
Values = Mapping[str, int | str]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class Instance(Struct, frozen=True):
    gpu_instance_id: Count
    memory_total_bytes: Count
    memory_used_bytes: Count
    profile: str = ""


class Mig(Struct, frozen=True):
    enabled: bool = False
    instances: Annotated[list[Instance], Meta(max_length=7)] = []


def number(values: Values, name: str) -> int | None:
    value = values.get(name)
    return value if isinstance(value, int) else None


def throttled(values: Values) -> list[Part]:
    return _labelled(values, "throttled_nanoseconds", _THROTTLED, "throttled_{}_nanoseconds")


def link_bytes(values: Values) -> list[Part]:
    return [
        ("nvlink_bytes", [direction], kibibytes * _KIBIBYTE)
        for direction in ("tx", "rx")
        if (kibibytes := number(values, f"nvlink_{direction}_kibibytes")) is not None
    ]


def slow(values: Values, mig: Mig) -> list[Part]:
    down = number(values, "nvlink_down_mask") or 0
    parts: list[Part] = [("nvlink_up", [str(link)], int(not down >> link & 1)) for link in range(_links(values))]
    if not mig.enabled:
        return parts
    instances = {str(instance.gpu_instance_id): instance for instance in mig.instances}
    parts.append(("mig_instances", [], len(instances)))
    for name, instance in instances.items():
        labels = [instance.profile or "unknown", name]
        free_bytes = max(0, instance.memory_total_bytes - instance.memory_used_bytes)
        parts.append(("mig_memory_total_bytes", labels, instance.memory_total_bytes))
        parts.append(("mig_memory_free_bytes", labels, free_bytes))
        parts.append(("mig_memory_used_bytes", labels, instance.memory_used_bytes))
    return parts


def once(values: Values) -> list[Part]:
    return _labelled(values, "thermal_margin_limit_celsius", _MARGIN_LIMITS, "margin_limit_{}_celsius")


def profiling(values: Values) -> list[Part]:
    parts: list[Part] = []
    for name in ("gr_engine_active", "tensor_active", "dram_active"):
        if (per_mille := number(values, f"{name}_per_mille")) is not None:
            parts.append((f"{name}_ratio", [], min(per_mille / 1000, 1.0)))
    for direction in ("tx", "rx"):
        if (mebibytes := number(values, f"pcie_{direction}_mebibytes_per_second")) is not None:
            parts.append((f"pcie_{direction}_bytes_per_second", [], mebibytes * _MEBIBYTE))
    return parts


def topology(index: int, machine: Sequence[Values]) -> list[Part]:
    """Of one GPU, by the values of all."""
    links = [_link(machine[index], machine[peer], peer) for peer in range(len(machine))]
    return [("topology", [str(peer), link], 1) for peer, link in enumerate(links) if peer != index]


def _link(values: Values, other: Values, peer: int) -> str:
    down = number(values, "nvlink_down_mask") or 0
    up = sum(not down >> link & 1 for link in range(_links(values)))
    straight_to = number(values, "nvlink_peer")
    connected = straight_to == peer if straight_to is not None else number(other, "nvlink_links") is not None
    if up and connected:
        return f"NV{up}"
    for name, link in (("pcie_switch", "PIX"), ("numa_node", "NODE")):
        if (place := number(values, name)) is not None and place == number(other, name):
            return link
    return "SYS"


def _links(values: Values) -> int:
    return min(number(values, "nvlink_links") or 0, _MAX_LINKS)


def _labelled(values: Values, part: str, labels: Sequence[str], value: str) -> list[Part]:
    return [(part, [label], told) for label in labels if (told := number(values, value.format(label))) is not None]
