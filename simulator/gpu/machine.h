/* The simulated machine, as the state file says (STATE.md). */
#ifndef HEADWORKS_MACHINE_H
#define HEADWORKS_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#define MAX_GPUS 64
#define MAX_INSTANCES 7
#define MAX_XIDS 64
#define TEXT_BYTES 80

/* X(name of the field in the state file's `values`) */
#define FIELDS(X)                                                                                                      \
    X(gpu_utilization_percent)                                                                                         \
    X(memory_copy_utilization_percent)                                                                                 \
    X(memory_total_bytes)                                                                                              \
    X(memory_reserved_bytes)                                                                                           \
    X(memory_used_bytes)                                                                                               \
    X(temperature_celsius)                                                                                             \
    X(memory_temperature_celsius)                                                                                      \
    X(power_milliwatts)                                                                                                \
    X(power_limit_milliwatts)                                                                                          \
    X(energy_millijoules)                                                                                              \
    X(sm_clock_mhz)                                                                                                    \
    X(memory_clock_mhz)                                                                                                \
    X(clock_event_reasons)                                                                                             \
    X(ecc_enabled)                                                                                                     \
    X(ecc_corrected_volatile_errors)                                                                                   \
    X(ecc_uncorrected_volatile_errors)                                                                                 \
    X(ecc_corrected_aggregate_errors)                                                                                  \
    X(ecc_uncorrected_aggregate_errors)                                                                                \
    X(remapped_rows_corrected)                                                                                         \
    X(remapped_rows_uncorrected)                                                                                       \
    X(remap_pending)                                                                                                   \
    X(remap_failure)                                                                                                   \
    X(pcie_replays)                                                                                                    \
    X(recovery_action)

enum field {
#define AS_ENUM(name) FIELD_##name,
    FIELDS(AS_ENUM)
#undef AS_ENUM
        FIELD_COUNT
};

enum gpu_state { GPU_OK, GPU_LOST, GPU_HANG };

struct instance {
    char uuid[TEXT_BYTES];
    unsigned gpu_instance_id, compute_instance_id;
    uint64_t memory_total_bytes, memory_used_bytes;
};

struct xid {
    uint64_t sequence;
    unsigned code;
};

struct gpu {
    char name[TEXT_BYTES], uuid[TEXT_BYTES], pci_bus_id[32];
    enum gpu_state state;
    bool supported[FIELD_COUNT];
    uint64_t value[FIELD_COUNT];
    bool mig_enabled;
    unsigned instance_count, xid_count;
    struct instance instances[MAX_INSTANCES];
    struct xid xids[MAX_XIDS]; /* by sequence, the newest MAX_XIDS of the file */
};

struct machine {
    char driver_version[TEXT_BYTES], nvml_version[TEXT_BYTES];
    int init_result; /* an NVML return code */
    bool init_hangs;
    unsigned gpu_count;
    struct gpu gpus[MAX_GPUS];
};

/* Takes the lock and gives the machine as the state file says now: the last whole one while it is being written or
 * damaged, NULL where there never was one. Each call of machine_lock wants one of machine_unlock. */
const struct machine *machine_lock(void);
void machine_unlock(void);

#endif
