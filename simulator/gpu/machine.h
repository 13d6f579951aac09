/* The simulated machine, as the state file says (STATE.md). */
#ifndef HEADWORKS_MACHINE_H
#define HEADWORKS_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#define MAX_GPUS 64
#define MAX_INSTANCES 7
#define MAX_XIDS 64
#define MAX_PROCESSES 64
#define TEXT_BYTES 80

/* By memory, in the order of NVML's locations. */
#define ECC_FIELDS(X, error, counter)                                                                                  \
    X(ecc_##error##_##counter##_l1_cache_errors)                                                                       \
    X(ecc_##error##_##counter##_l2_cache_errors)                                                                       \
    X(ecc_##error##_##counter##_device_memory_errors)                                                                  \
    X(ecc_##error##_##counter##_register_file_errors)                                                                  \
    X(ecc_##error##_##counter##_texture_memory_errors)                                                                 \
    X(ecc_##error##_##counter##_texture_shm_errors)                                                                    \
    X(ecc_##error##_##counter##_cbu_errors)                                                                            \
    X(ecc_##error##_##counter##_sram_errors)
#define ECC_LOCATIONS 8

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
    X(recovery_action)                                                                                                 \
    X(encoder_utilization_percent)                                                                                     \
    X(decoder_utilization_percent)                                                                                     \
    X(thermal_margin_celsius)                                                                                          \
    X(power_limit_set_milliwatts)                                                                                      \
    X(power_limit_default_milliwatts)                                                                                  \
    X(power_limit_min_milliwatts)                                                                                      \
    X(power_limit_max_milliwatts)                                                                                      \
    X(retired_pages_corrected)                                                                                         \
    X(retired_pages_uncorrected)                                                                                       \
    X(retired_pages_pending)                                                                                           \
    X(pcie_link_generation)                                                                                            \
    X(pcie_link_width)                                                                                                 \
    X(pcie_link_generation_max)                                                                                        \
    X(pcie_link_width_max)                                                                                             \
    X(pcie_switch)                                                                                                     \
    X(numa_node)                                                                                                       \
    X(throttled_sw_power_cap_nanoseconds)                                                                              \
    X(throttled_sync_boost_nanoseconds)                                                                                \
    X(throttled_sw_thermal_slowdown_nanoseconds)                                                                       \
    X(throttled_hw_thermal_slowdown_nanoseconds)                                                                       \
    X(throttled_hw_power_brake_slowdown_nanoseconds)                                                                   \
    X(margin_limit_shutdown_celsius)                                                                                   \
    X(margin_limit_slowdown_celsius)                                                                                   \
    X(margin_limit_memory_max_celsius)                                                                                 \
    X(margin_limit_gpu_max_celsius)                                                                                    \
    X(nvlink_links)                                                                                                    \
    X(nvlink_down_mask)                                                                                                \
    X(nvlink_peer)                                                                                                     \
    X(nvlink_tx_kibibytes)                                                                                             \
    X(nvlink_rx_kibibytes)                                                                                             \
    X(nvlink_crc_flit_errors)                                                                                          \
    X(nvlink_crc_data_errors)                                                                                          \
    X(nvlink_replay_errors)                                                                                            \
    X(nvlink_recovery_errors)                                                                                          \
    X(gr_engine_active_per_mille)                                                                                      \
    X(tensor_active_per_mille)                                                                                         \
    X(dram_active_per_mille)                                                                                           \
    X(pcie_tx_mebibytes_per_second)                                                                                    \
    X(pcie_rx_mebibytes_per_second)                                                                                    \
    ECC_FIELDS(X, corrected, volatile)                                                                                 \
    ECC_FIELDS(X, corrected, aggregate)                                                                                \
    ECC_FIELDS(X, uncorrected, volatile)                                                                               \
    ECC_FIELDS(X, uncorrected, aggregate)

enum field {
#define AS_ENUM(name) FIELD_##name,
    FIELDS(AS_ENUM)
#undef AS_ENUM
        FIELD_COUNT
};

enum gpu_state { GPU_OK, GPU_LOST, GPU_HANG };

struct instance {
    char uuid[TEXT_BYTES], profile[TEXT_BYTES];
    unsigned gpu_instance_id, compute_instance_id;
    uint64_t memory_total_bytes, memory_used_bytes;
};

struct xid {
    uint64_t sequence;
    unsigned code;
    unsigned gpu_instance_id; /* UINT_MAX: the whole GPU */
};

struct process {
    unsigned pid;
    uint64_t memory_bytes; /* all bits set: not available */
};

struct gpu {
    char name[TEXT_BYTES], uuid[TEXT_BYTES], pci_bus_id[32];
    enum gpu_state state;
    bool supported[FIELD_COUNT];
    int64_t value[FIELD_COUNT];
    bool mig_enabled;
    unsigned instance_count, xid_count, process_count;
    struct instance instances[MAX_INSTANCES];
    struct process processes[MAX_PROCESSES];
    struct xid xids[MAX_XIDS]; /* by sequence, the newest MAX_XIDS of the file */
};

struct machine {
    char driver_version[TEXT_BYTES], nvml_version[TEXT_BYTES];
    int cuda_driver_version; /* as NVML has it: 13010 is 13.1; 0: it does not say */
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
