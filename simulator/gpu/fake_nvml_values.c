/* Field values by the numbers of NVML 13.0, which R580 comes with; R590 has 269 to 271 for 251 to 253. */
#define _GNU_SOURCE
#include <stddef.h>
#include <time.h>

#include "nvml_calls.h"

static const struct {
    uint32_t id;
    enum field field;
} known[] = {
    {3, FIELD_ecc_corrected_volatile_errors},
    {4, FIELD_ecc_uncorrected_volatile_errors},
    {5, FIELD_ecc_corrected_aggregate_errors},
    {6, FIELD_ecc_uncorrected_aggregate_errors},
    {29, FIELD_retired_pages_corrected},
    {30, FIELD_retired_pages_uncorrected},
    {31, FIELD_retired_pages_pending},
    {38, FIELD_nvlink_crc_flit_errors},
    {45, FIELD_nvlink_crc_data_errors},
    {52, FIELD_nvlink_replay_errors},
    {59, FIELD_nvlink_recovery_errors},
    {74, FIELD_throttled_sw_power_cap_nanoseconds},
    {76, FIELD_throttled_sync_boost_nanoseconds},
    {82, FIELD_memory_temperature_celsius},
    {83, FIELD_energy_millijoules},
    {91, FIELD_nvlink_links},
    {94, FIELD_pcie_replays},
    {138, FIELD_nvlink_tx_kibibytes},
    {139, FIELD_nvlink_rx_kibibytes},
    {142, FIELD_remapped_rows_corrected},
    {143, FIELD_remapped_rows_uncorrected},
    {193, FIELD_margin_limit_shutdown_celsius},
    {194, FIELD_margin_limit_slowdown_celsius},
    {195, FIELD_margin_limit_memory_max_celsius},
    {196, FIELD_margin_limit_gpu_max_celsius},
    {230, FIELD_recovery_action},
    {251, FIELD_throttled_sw_thermal_slowdown_nanoseconds},
    {252, FIELD_throttled_hw_thermal_slowdown_nanoseconds},
    {253, FIELD_throttled_hw_power_brake_slowdown_nanoseconds},
};

static nvml_return_t read_value(const struct gpu *gpu, struct field_value *value) {
    bool of_all_links = value->field_id == 138 || value->field_id == 139;
    /* The state file tells these of all links together alone. */
    if (of_all_links && value->scope_id != ALL_LINKS)
        return NVML_ERROR_NOT_SUPPORTED;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].id == value->field_id)
            return read_field(gpu, known[i].field, &value->value.sll);
    return NVML_ERROR_INVALID_ARGUMENT;
}

EXPORT nvml_return_t nvmlDeviceGetFieldValues(device_t device, int count, struct field_value *values) {
    const struct gpu *gpu;
    struct timespec now;
    nvml_return_t result = enter_gpu(device, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    clock_gettime(CLOCK_REALTIME, &now);
    for (int i = 0; i < count; i++) {
        values[i].timestamp = now.tv_sec * 1000000 + now.tv_nsec / 1000;
        values[i].latency_microseconds = 0;
        values[i].value.sll = 0;
        values[i].result = read_value(gpu, &values[i]);
        values[i].value_type = values[i].value.sll < 0 ? VALUE_TYPE_SIGNED_LONG_LONG : VALUE_TYPE_UNSIGNED_LONG_LONG;
    }
    machine_unlock();
    return NVML_SUCCESS;
}
