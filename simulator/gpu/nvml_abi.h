/* What callers of NVML agree on with the library: return codes and structures, as nvidia-ml-py (pynvml.py) declares
 * them. Only what the simulated library speaks. */
#ifndef HEADWORKS_NVML_ABI_H
#define HEADWORKS_NVML_ABI_H

#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

enum nvml_return {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NO_PERMISSION = 4,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_TIMEOUT = 10,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
    NVML_ERROR_MEMORY = 20,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_UNKNOWN = 999,
};
typedef int nvml_return_t;

/* A GPU, or one MIG instance of it. Opaque to callers. */
struct device {
    unsigned gpu;
    int instance; /* -1: the whole GPU */
};
typedef const struct device *device_t;

struct pci_info {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
};
struct memory {
    uint64_t total, free, used;
};
struct memory_v2 {
    unsigned version;
    uint64_t total, reserved, free, used;
};
struct utilization {
    unsigned gpu, memory;
};
struct temperature_v1 {
    unsigned version, sensor;
    int temperature;
};
struct margin_temperature_v1 {
    unsigned version;
    int celsius;
};
struct process_info {
    unsigned pid;
    uint64_t memory_bytes;
    unsigned gpu_instance_id, compute_instance_id;
};
struct gpm_metric {
    unsigned id;
    nvml_return_t result;
    double value;
    const char *short_name, *long_name, *unit;
};
struct gpm_metrics_get {
    unsigned version, count;
    const struct gpm_sample *earlier, *later;
    struct gpm_metric metrics[];
};
struct gpm_support {
    unsigned version, supported;
};
struct field_value {
    uint32_t field_id, scope_id;
    int64_t timestamp, latency_microseconds;
    unsigned value_type;
    nvml_return_t result;
    union {
        double d;
        uint32_t ui;
        uint64_t ull;
        int64_t sll;
    } value;
};
struct event_data {
    device_t device;
    uint64_t type, data;
    unsigned gpu_instance_id, compute_instance_id;
};

/* A structure's version is its size with the number above it. */
#define VERSIONED(type, number) ((unsigned)(sizeof(type) | (number) << 24))
#define VALUE_TYPE_UNSIGNED_LONG_LONG 3
#define VALUE_TYPE_SIGNED_LONG_LONG 4
#define EVENT_XID 0x8ull
#define WHOLE_GPU 0xFFFFFFFFu
#define ALL_LINKS 0xFFFFFFFFu
#define MAX_LINKS 36
#define LINK_TO_GPU 0
#define LINK_TO_SWITCH 2
#define TOPOLOGY_SINGLE 10
#define TOPOLOGY_NODE 40
#define TOPOLOGY_SYSTEM 50
#define P2P_NVLINK 2
#define P2P_OK 0
#define P2P_NOT_SUPPORTED 5

#endif
