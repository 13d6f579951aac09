/* How GPUs are connected: PCIe, NVLink, and where in the host they are. */
#include "nvml_calls.h"

EXPORT nvml_return_t nvmlDeviceGetPcieReplayCounter(device_t device, unsigned *replays) {
    return read_unsigned(device, FIELD_pcie_replays, replays);
}

EXPORT nvml_return_t nvmlDeviceGetCurrPcieLinkGeneration(device_t device, unsigned *generation) {
    return read_unsigned(device, FIELD_pcie_link_generation, generation);
}

EXPORT nvml_return_t nvmlDeviceGetCurrPcieLinkWidth(device_t device, unsigned *lanes) {
    return read_unsigned(device, FIELD_pcie_link_width, lanes);
}

EXPORT nvml_return_t nvmlDeviceGetMaxPcieLinkGeneration(device_t device, unsigned *generation) {
    return read_unsigned(device, FIELD_pcie_link_generation_max, generation);
}

EXPORT nvml_return_t nvmlDeviceGetMaxPcieLinkWidth(device_t device, unsigned *lanes) {
    return read_unsigned(device, FIELD_pcie_link_width_max, lanes);
}

/* A link is there when the GPU has that many. */
static nvml_return_t read_link(device_t device, unsigned link, bool *up, int64_t *peer) {
    const struct gpu *gpu;
    int64_t links, down;
    nvml_return_t result = enter_gpu(device, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    result = read_field(gpu, FIELD_nvlink_links, &links);
    if (result == NVML_SUCCESS && (device->instance >= 0 || link >= MAX_LINKS || link >= links))
        result = NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS) {
        *up = read_field(gpu, FIELD_nvlink_down_mask, &down) != NVML_SUCCESS || !(down >> link & 1);
        if (read_field(gpu, FIELD_nvlink_peer, peer) != NVML_SUCCESS)
            *peer = -1;
    }
    machine_unlock();
    return result;
}

EXPORT nvml_return_t nvmlDeviceGetNvLinkState(device_t device, unsigned link, unsigned *active) {
    bool up;
    int64_t peer;
    nvml_return_t result = read_link(device, link, &up, &peer);
    if (result == NVML_SUCCESS)
        *active = up;
    return result;
}

EXPORT nvml_return_t nvmlDeviceGetNvLinkRemoteDeviceType(device_t device, unsigned link, unsigned *type) {
    bool up;
    int64_t peer;
    nvml_return_t result = read_link(device, link, &up, &peer);
    if (result == NVML_SUCCESS)
        *type = peer < 0 ? LINK_TO_SWITCH : LINK_TO_GPU;
    return result;
}

EXPORT nvml_return_t nvmlDeviceGetNvLinkRemotePciInfo_v2(device_t device, unsigned link, struct pci_info *info) {
    bool up;
    int64_t peer;
    const struct gpu *gpu, *other;
    nvml_return_t result = read_link(device, link, &up, &peer);
    if (result == NVML_SUCCESS && (peer < 0 || peer >= MAX_GPUS))
        result = NVML_ERROR_NOT_SUPPORTED;
    if (result == NVML_SUCCESS)
        result = enter_pair(device, device_handle((unsigned)peer, -1), &gpu, &other);
    if (result != NVML_SUCCESS)
        return result;
    write_pci_info(other, info);
    machine_unlock();
    return NVML_SUCCESS;
}

static bool same(const struct gpu *gpu, const struct gpu *other, enum field field) {
    return gpu->supported[field] && other->supported[field] && gpu->value[field] == other->value[field];
}

EXPORT nvml_return_t nvmlDeviceGetTopologyCommonAncestor(device_t device, device_t other, unsigned *level) {
    const struct gpu *gpu, *peer;
    nvml_return_t result = enter_pair(device, other, &gpu, &peer);
    if (result != NVML_SUCCESS)
        return result;
    *level = same(gpu, peer, FIELD_pcie_switch)  ? TOPOLOGY_SINGLE
             : same(gpu, peer, FIELD_numa_node) ? TOPOLOGY_NODE
                                                : TOPOLOGY_SYSTEM;
    machine_unlock();
    return NVML_SUCCESS;
}

EXPORT nvml_return_t nvmlDeviceGetP2PStatus(device_t device, device_t other, unsigned capability, unsigned *status) {
    const struct gpu *gpu, *peer;
    nvml_return_t result = enter_pair(device, other, &gpu, &peer);
    if (result != NVML_SUCCESS)
        return result;
    bool linked = gpu->supported[FIELD_nvlink_links] && peer->supported[FIELD_nvlink_links];
    *status = capability != P2P_NVLINK || linked ? P2P_OK : P2P_NOT_SUPPORTED;
    machine_unlock();
    return NVML_SUCCESS;
}

EXPORT nvml_return_t nvmlDeviceGetMemoryAffinity(device_t device, unsigned words, unsigned long *nodes, unsigned scope) {
    static const enum field field = FIELD_numa_node;
    int64_t node;
    (void)scope;
    nvml_return_t result = read_fields(device, 1, &field, &node);
    if (result != NVML_SUCCESS)
        return result;
    for (unsigned word = 0; word < words; word++)
        nodes[word] = (unsigned)(node / 64) == word ? 1ul << node % 64 : 0;
    return NVML_SUCCESS;
}
