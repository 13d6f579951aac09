"""How GPUs of a node are connected, as `nvidia-smi topo -m` tells it."""

from __future__ import annotations

from typing import Any

from gpu_agent.nvml.parts.nvlink import link_count
from gpu_agent.nvml.source import Part

_BITS_OF_A_WORD = 64
# Linux numbers NUMA nodes below 1024.
_NODE_WORDS = 16


def topology(nvml: Any, index: int) -> list[Part]:
    """The link to each other GPU that can be told. Raises: NVMLError."""
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    switched, direct = _nvlinks(nvml, handle)
    parts: list[Part] = []
    for peer_index in range(nvml.nvmlDeviceGetCount()):
        if peer_index == index:
            continue
        try:
            peer = nvml.nvmlDeviceGetHandleByIndex(peer_index)
            link = _link(nvml, handle, peer, switched, direct)
        except nvml.NVMLError:
            continue
        if link:
            parts.append(("topology", [str(peer_index), link], 1))
    return parts


def numa_node(nvml: Any, handle: Any) -> int:
    """The NUMA node of the host that the GPU is nearest to. Raises: NVMLError, also where there is not one.

    Not nvmlDeviceGetNumaNodeId, which tells the node that a GPU's own memory is, on the platforms where it is one.
    """
    words = nvml.nvmlDeviceGetMemoryAffinity(handle, _NODE_WORDS, nvml.NVML_AFFINITY_SCOPE_NODE)
    nodes = [
        number * _BITS_OF_A_WORD + bit
        for number, word in enumerate(words)
        for bit in range(_BITS_OF_A_WORD)
        if word >> bit & 1
    ]
    if len(nodes) != 1:
        raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
    return nodes[0]


def _nvlinks(nvml: Any, handle: Any) -> tuple[int, dict[str, int]]:
    """Links that are up: how many go to switches, and how many straight to each GPU, by its PCI bus id."""
    switched, direct = 0, dict[str, int]()
    for link in range(link_count(nvml, handle)):
        try:
            if not nvml.nvmlDeviceGetNvLinkState(handle, link):
                continue
            remote = nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link)
            if remote == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
                switched += 1
            elif remote == nvml.NVML_NVLINK_DEVICE_TYPE_GPU:
                pci_bus_id = str(nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId)
                direct[pci_bus_id] = direct.get(pci_bus_id, 0) + 1
        except nvml.NVMLError:
            continue
    return switched, direct


def _link(nvml: Any, handle: Any, peer: Any, switched: int, direct: dict[str, int]) -> str:
    if links := direct.get(str(nvml.nvmlDeviceGetPciInfo(peer).busId)):
        return f"NV{links}"
    # That both have links to switches does not say that the switches connect them.
    if (
        switched
        and nvml.nvmlDeviceGetP2PStatus(handle, peer, nvml.NVML_P2P_CAPS_INDEX_NVLINK) == nvml.NVML_P2P_STATUS_OK
    ):
        return f"NV{switched}"
    names = {
        nvml.NVML_TOPOLOGY_INTERNAL: "PIX",
        nvml.NVML_TOPOLOGY_SINGLE: "PIX",
        nvml.NVML_TOPOLOGY_MULTIPLE: "PXB",
        nvml.NVML_TOPOLOGY_HOSTBRIDGE: "PHB",
        nvml.NVML_TOPOLOGY_NODE: "NODE",
        nvml.NVML_TOPOLOGY_SYSTEM: "SYS",
    }
    return names.get(nvml.nvmlDeviceGetTopologyCommonAncestor(handle, peer), "")
