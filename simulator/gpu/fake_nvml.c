/* A libnvidia-ml.so.1 of simulated GPUs: what one GPU answers. It reads a state file (STATE.md) that a test or a demo
 * changes while it runs, so that a GPU can be busy, hot, throttled, lost or hung. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "nvml_calls.h"

/* Fields that a GPU in MIG mode does not tell for the whole of it. */
static bool hidden_by_mig(enum field field) {
    switch (field) {
    case FIELD_gpu_utilization_percent:
    case FIELD_memory_copy_utilization_percent:
    case FIELD_encoder_utilization_percent:
    case FIELD_decoder_utilization_percent:
    case FIELD_remapped_rows_corrected:
    case FIELD_remapped_rows_uncorrected:
    case FIELD_remap_pending:
    case FIELD_remap_failure:
        return true;
    default:
        return false;
    }
}

nvml_return_t read_field(const struct gpu *gpu, enum field field, int64_t *value) {
    if (!gpu->supported[field] || (gpu->mig_enabled && hidden_by_mig(field)))
        return NVML_ERROR_NOT_SUPPORTED;
    *value = gpu->value[field];
    return NVML_SUCCESS;
}

nvml_return_t read_fields(device_t device, int count, const enum field *fields, int64_t *values) {
    const struct gpu *gpu;
    nvml_return_t result = enter_gpu(device, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    if (device->instance >= 0)
        result = NVML_ERROR_NOT_SUPPORTED;
    for (int i = 0; i < count && result == NVML_SUCCESS; i++)
        result = read_field(gpu, fields[i], &values[i]);
    machine_unlock();
    return result;
}

nvml_return_t read_unsigned(device_t device, enum field field, unsigned *into) {
    int64_t value;
    nvml_return_t result = read_fields(device, 1, &field, &value);
    if (result == NVML_SUCCESS)
        *into = (unsigned)value;
    return result;
}

static nvml_return_t fits(int length, unsigned size) {
    return length >= 0 && (unsigned)length < size ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

EXPORT nvml_return_t nvmlDeviceGetName(device_t device, char *into, unsigned size) {
    const struct gpu *gpu;
    nvml_return_t result = enter_gpu(device, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    if (device->instance < 0)
        result = fits(snprintf(into, size, "%s", gpu->name), size);
    else
        result = fits(snprintf(into, size, "%s MIG %s", gpu->name, gpu->instances[device->instance].profile), size);
    machine_unlock();
    return result;
}

EXPORT nvml_return_t nvmlDeviceGetUUID(device_t device, char *into, unsigned size) {
    const struct gpu *gpu;
    nvml_return_t result = enter_gpu(device, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    const char *text = device->instance < 0 ? gpu->uuid : gpu->instances[device->instance].uuid;
    result = fits(snprintf(into, size, "%s", text), size);
    machine_unlock();
    return result;
}

static nvml_return_t read_index(device_t device, unsigned *index) {
    const struct gpu *gpu;
    nvml_return_t result = enter_gpu(device, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    *index = device->gpu;
    machine_unlock();
    return NVML_SUCCESS;
}

EXPORT nvml_return_t nvmlDeviceGetIndex(device_t device, unsigned *index) { return read_index(device, index); }

EXPORT nvml_return_t nvmlDeviceGetMinorNumber(device_t device, unsigned *minor) { return read_index(device, minor); }

void write_pci_info(const struct gpu *gpu, struct pci_info *info) {
    *info = (struct pci_info){0};
    memcpy(info->bus_id, gpu->pci_bus_id, sizeof info->bus_id);
    sscanf(info->bus_id, "%x:%x:%x", &info->domain, &info->bus, &info->device);
    snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "%04X:%02X:%02X.0", info->domain & 0xFFFF,
             info->bus & 0xFF, info->device & 0xFF);
}

EXPORT nvml_return_t nvmlDeviceGetPciInfo_v3(device_t device, struct pci_info *info) {
    const struct gpu *gpu;
    nvml_return_t result = enter_gpu(device, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    write_pci_info(gpu, info);
    machine_unlock();
    return NVML_SUCCESS;
}

static nvml_return_t read_memory(device_t device, struct memory_v2 *memory) {
    const struct gpu *gpu;
    int64_t total = 0, reserved = 0, used = 0;
    nvml_return_t result = enter_gpu(device, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    if (device->instance >= 0) {
        total = (int64_t)gpu->instances[device->instance].memory_total_bytes;
        used = (int64_t)gpu->instances[device->instance].memory_used_bytes;
    } else if ((result = read_field(gpu, FIELD_memory_total_bytes, &total)) == NVML_SUCCESS &&
               (result = read_field(gpu, FIELD_memory_used_bytes, &used)) == NVML_SUCCESS) {
        result = read_field(gpu, FIELD_memory_reserved_bytes, &reserved);
    }
    machine_unlock();
    memory->total = (uint64_t)total;
    memory->reserved = (uint64_t)reserved;
    memory->used = (uint64_t)used;
    memory->free = total < reserved + used ? 0 : (uint64_t)(total - reserved - used);
    return result;
}

EXPORT nvml_return_t nvmlDeviceGetMemoryInfo_v2(device_t device, struct memory_v2 *memory) {
    if (memory->version != VERSIONED(struct memory_v2, 2))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return read_memory(device, memory);
}

EXPORT nvml_return_t nvmlDeviceGetMemoryInfo(device_t device, struct memory *memory) {
    struct memory_v2 whole;
    nvml_return_t result = read_memory(device, &whole);
    /* The first version counts what the driver reserved as used. */
    if (result == NVML_SUCCESS)
        *memory = (struct memory){whole.total, whole.free, whole.total - whole.free};
    return result;
}

EXPORT nvml_return_t nvmlDeviceGetUtilizationRates(device_t device, struct utilization *rates) {
    static const enum field fields[] = {FIELD_gpu_utilization_percent, FIELD_memory_copy_utilization_percent};
    int64_t values[2];
    nvml_return_t result = read_fields(device, 2, fields, values);
    if (result == NVML_SUCCESS)
        *rates = (struct utilization){(unsigned)values[0], (unsigned)values[1]};
    return result;
}

static nvml_return_t read_codec(device_t device, enum field field, unsigned *percent, unsigned *period_microseconds) {
    *period_microseconds = 0;
    return read_unsigned(device, field, percent);
}

EXPORT nvml_return_t nvmlDeviceGetEncoderUtilization(device_t device, unsigned *percent, unsigned *period_microseconds) {
    return read_codec(device, FIELD_encoder_utilization_percent, percent, period_microseconds);
}

EXPORT nvml_return_t nvmlDeviceGetDecoderUtilization(device_t device, unsigned *percent, unsigned *period_microseconds) {
    return read_codec(device, FIELD_decoder_utilization_percent, percent, period_microseconds);
}

EXPORT nvml_return_t nvmlDeviceGetTemperature(device_t device, unsigned sensor, unsigned *celsius) {
    return sensor != 0 ? NVML_ERROR_INVALID_ARGUMENT : read_unsigned(device, FIELD_temperature_celsius, celsius);
}

EXPORT nvml_return_t nvmlDeviceGetTemperatureV(device_t device, struct temperature_v1 *temperature) {
    unsigned celsius;
    if (temperature->version != VERSIONED(struct temperature_v1, 1))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvml_return_t result = nvmlDeviceGetTemperature(device, temperature->sensor, &celsius);
    if (result == NVML_SUCCESS)
        temperature->temperature = (int)celsius;
    return result;
}

EXPORT nvml_return_t nvmlDeviceGetMarginTemperature(device_t device, struct margin_temperature_v1 *margin) {
    unsigned celsius;
    if (margin->version != VERSIONED(struct margin_temperature_v1, 1))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvml_return_t result = read_unsigned(device, FIELD_thermal_margin_celsius, &celsius);
    if (result == NVML_SUCCESS)
        margin->celsius = (int)celsius;
    return result;
}

EXPORT nvml_return_t nvmlDeviceGetClockInfo(device_t device, unsigned type, unsigned *megahertz) {
    switch (type) {
    case 0: /* graphics: runs with the SMs */
    case 1:
        return read_unsigned(device, FIELD_sm_clock_mhz, megahertz);
    case 2:
        return read_unsigned(device, FIELD_memory_clock_mhz, megahertz);
    default:
        return NVML_ERROR_NOT_SUPPORTED;
    }
}

EXPORT nvml_return_t nvmlDeviceGetPowerUsage(device_t device, unsigned *milliwatts) {
    return read_unsigned(device, FIELD_power_milliwatts, milliwatts);
}

EXPORT nvml_return_t nvmlDeviceGetEnforcedPowerLimit(device_t device, unsigned *milliwatts) {
    return read_unsigned(device, FIELD_power_limit_milliwatts, milliwatts);
}

EXPORT nvml_return_t nvmlDeviceGetPowerManagementLimit(device_t device, unsigned *milliwatts) {
    return read_unsigned(device, FIELD_power_limit_set_milliwatts, milliwatts);
}

EXPORT nvml_return_t nvmlDeviceGetPowerManagementDefaultLimit(device_t device, unsigned *milliwatts) {
    return read_unsigned(device, FIELD_power_limit_default_milliwatts, milliwatts);
}

EXPORT nvml_return_t nvmlDeviceGetPowerManagementLimitConstraints(device_t device, unsigned *least, unsigned *most) {
    static const enum field fields[] = {FIELD_power_limit_min_milliwatts, FIELD_power_limit_max_milliwatts};
    int64_t values[2];
    nvml_return_t result = read_fields(device, 2, fields, values);
    if (result == NVML_SUCCESS) {
        *least = (unsigned)values[0];
        *most = (unsigned)values[1];
    }
    return result;
}

EXPORT nvml_return_t nvmlDeviceGetTotalEnergyConsumption(device_t device, uint64_t *millijoules) {
    static const enum field field = FIELD_energy_millijoules;
    return read_fields(device, 1, &field, (int64_t *)millijoules);
}

EXPORT nvml_return_t nvmlDeviceGetCurrentClocksEventReasons(device_t device, uint64_t *reasons) {
    static const enum field field = FIELD_clock_event_reasons;
    return read_fields(device, 1, &field, (int64_t *)reasons);
}

EXPORT nvml_return_t nvmlDeviceGetCurrentClocksThrottleReasons(device_t device, uint64_t *reasons) {
    return nvmlDeviceGetCurrentClocksEventReasons(device, reasons);
}

EXPORT nvml_return_t nvmlDeviceGetEccMode(device_t device, unsigned *current, unsigned *pending) {
    nvml_return_t result = read_unsigned(device, FIELD_ecc_enabled, current);
    if (result == NVML_SUCCESS)
        *pending = *current;
    return result;
}

EXPORT nvml_return_t nvmlDeviceGetTotalEccErrors(device_t device, unsigned type, unsigned counter, uint64_t *count) {
    static const enum field fields[2][2] = {
        {FIELD_ecc_corrected_volatile_errors, FIELD_ecc_corrected_aggregate_errors},
        {FIELD_ecc_uncorrected_volatile_errors, FIELD_ecc_uncorrected_aggregate_errors},
    };
    if (type > 1 || counter > 1)
        return NVML_ERROR_INVALID_ARGUMENT;
    return read_fields(device, 1, &fields[type][counter], (int64_t *)count);
}

EXPORT nvml_return_t nvmlDeviceGetMemoryErrorCounter(device_t device, unsigned type, unsigned counter,
                                                     unsigned location, uint64_t *count) {
    static const enum field first[2][2] = {
        {FIELD_ecc_corrected_volatile_l1_cache_errors, FIELD_ecc_corrected_aggregate_l1_cache_errors},
        {FIELD_ecc_uncorrected_volatile_l1_cache_errors, FIELD_ecc_uncorrected_aggregate_l1_cache_errors},
    };
    if (type > 1 || counter > 1 || location >= ECC_LOCATIONS)
        return NVML_ERROR_INVALID_ARGUMENT;
    enum field field = first[type][counter] + location;
    return read_fields(device, 1, &field, (int64_t *)count);
}

EXPORT nvml_return_t nvmlDeviceGetRemappedRows(device_t device, unsigned *corrected, unsigned *uncorrected,
                                               unsigned *pending, unsigned *failure) {
    static const enum field fields[] = {FIELD_remapped_rows_corrected, FIELD_remapped_rows_uncorrected,
                                        FIELD_remap_pending, FIELD_remap_failure};
    int64_t values[4];
    nvml_return_t result = read_fields(device, 4, fields, values);
    if (result == NVML_SUCCESS) {
        *corrected = (unsigned)values[0];
        *uncorrected = (unsigned)values[1];
        *pending = values[2] != 0;
        *failure = values[3] != 0;
    }
    return result;
}
