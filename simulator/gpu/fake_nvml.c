/* A libnvidia-ml.so.1 of simulated GPUs: what one GPU answers. It reads a state file (STATE.md) that a test or a demo
 * changes while it runs, so that a GPU can be busy, hot, throttled, lost or hung. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "nvml_calls.h"

/* Fields that a GPU in MIG mode does not tell for the whole of it. */
static bool hidden_by_mig(enum field field) {
    switch (field) {
    case FIELD_gpu_utilization_percent:
    case FIELD_memory_copy_utilization_percent:
    case FIELD_remapped_rows_corrected:
    case FIELD_remapped_rows_uncorrected:
    case FIELD_remap_pending:
    case FIELD_remap_failure:
        return true;
    default:
        return false;
    }
}

static nvml_return_t read_field(const struct gpu *gpu, enum field field, uint64_t *value) {
    if (!gpu->supported[field] || (gpu->mig_enabled && hidden_by_mig(field)))
        return NVML_ERROR_NOT_SUPPORTED;
    *value = gpu->value[field];
    return NVML_SUCCESS;
}

/* Reads `count` fields of a whole GPU at one moment, and all of them or none. */
static nvml_return_t read_fields(device_t device, int count, const enum field *fields, uint64_t *values) {
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

static nvml_return_t read_unsigned(device_t device, enum field field, unsigned *into) {
    uint64_t value;
    nvml_return_t result = read_fields(device, 1, &field, &value);
    if (result == NVML_SUCCESS)
        *into = (unsigned)value;
    return result;
}

static nvml_return_t read_text(device_t device, char *into, unsigned size, bool uuid) {
    const struct gpu *gpu;
    nvml_return_t result = enter_gpu(device, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    const char *text = !uuid ? gpu->name : device->instance < 0 ? gpu->uuid : gpu->instances[device->instance].uuid;
    result = strlen(text) < size ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
    if (result == NVML_SUCCESS)
        strcpy(into, text);
    machine_unlock();
    return result;
}

EXPORT nvml_return_t nvmlDeviceGetName(device_t device, char *into, unsigned size) {
    return read_text(device, into, size, false);
}

EXPORT nvml_return_t nvmlDeviceGetUUID(device_t device, char *into, unsigned size) {
    return read_text(device, into, size, true);
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

EXPORT nvml_return_t nvmlDeviceGetPciInfo_v3(device_t device, struct pci_info *info) {
    const struct gpu *gpu;
    nvml_return_t result = enter_gpu(device, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    *info = (struct pci_info){0};
    memcpy(info->bus_id, gpu->pci_bus_id, sizeof info->bus_id);
    machine_unlock();
    if (sscanf(info->bus_id, "%x:%x:%x", &info->domain, &info->bus, &info->device) != 3)
        return NVML_ERROR_UNKNOWN;
    snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "%04X:%02X:%02X.0", info->domain & 0xFFFF,
             info->bus & 0xFF, info->device & 0xFF);
    return NVML_SUCCESS;
}

static nvml_return_t read_memory(device_t device, struct memory_v2 *memory) {
    const struct gpu *gpu;
    uint64_t total = 0, reserved = 0, used = 0;
    nvml_return_t result = enter_gpu(device, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    if (device->instance >= 0) {
        total = gpu->instances[device->instance].memory_total_bytes;
        used = gpu->instances[device->instance].memory_used_bytes;
    } else if ((result = read_field(gpu, FIELD_memory_total_bytes, &total)) == NVML_SUCCESS &&
               (result = read_field(gpu, FIELD_memory_used_bytes, &used)) == NVML_SUCCESS) {
        result = read_field(gpu, FIELD_memory_reserved_bytes, &reserved);
    }
    machine_unlock();
    memory->total = total;
    memory->reserved = reserved;
    memory->used = used;
    memory->free = total < reserved + used ? 0 : total - reserved - used;
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
    uint64_t values[2];
    nvml_return_t result = read_fields(device, 2, fields, values);
    if (result == NVML_SUCCESS)
        *rates = (struct utilization){(unsigned)values[0], (unsigned)values[1]};
    return result;
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

EXPORT nvml_return_t nvmlDeviceGetTotalEnergyConsumption(device_t device, uint64_t *millijoules) {
    static const enum field field = FIELD_energy_millijoules;
    return read_fields(device, 1, &field, millijoules);
}

EXPORT nvml_return_t nvmlDeviceGetCurrentClocksEventReasons(device_t device, uint64_t *reasons) {
    static const enum field field = FIELD_clock_event_reasons;
    return read_fields(device, 1, &field, reasons);
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
    return type > 1 || counter > 1 ? NVML_ERROR_INVALID_ARGUMENT : read_fields(device, 1, &fields[type][counter], count);
}

EXPORT nvml_return_t nvmlDeviceGetMemoryErrorCounter(device_t device, unsigned type, unsigned counter,
                                                     unsigned location, uint64_t *count) {
    /* All simulated errors happened in device memory. */
    return location != 2 ? NVML_ERROR_NOT_SUPPORTED : nvmlDeviceGetTotalEccErrors(device, type, counter, count);
}

EXPORT nvml_return_t nvmlDeviceGetRemappedRows(device_t device, unsigned *corrected, unsigned *uncorrected,
                                               unsigned *pending, unsigned *failure) {
    static const enum field fields[] = {FIELD_remapped_rows_corrected, FIELD_remapped_rows_uncorrected,
                                        FIELD_remap_pending, FIELD_remap_failure};
    uint64_t values[4];
    nvml_return_t result = read_fields(device, 4, fields, values);
    if (result == NVML_SUCCESS) {
        *corrected = (unsigned)values[0];
        *uncorrected = (unsigned)values[1];
        *pending = values[2] != 0;
        *failure = values[3] != 0;
    }
    return result;
}

EXPORT nvml_return_t nvmlDeviceGetPcieReplayCounter(device_t device, unsigned *replays) {
    return read_unsigned(device, FIELD_pcie_replays, replays);
}

static nvml_return_t read_value(const struct gpu *gpu, struct field_value *value) {
    static const struct {
        uint32_t id;
        enum field field;
    } known[] = {
        {3, FIELD_ecc_corrected_volatile_errors},    {4, FIELD_ecc_uncorrected_volatile_errors},
        {5, FIELD_ecc_corrected_aggregate_errors},   {6, FIELD_ecc_uncorrected_aggregate_errors},
        {82, FIELD_memory_temperature_celsius},      {83, FIELD_energy_millijoules},
        {94, FIELD_pcie_replays},                    {142, FIELD_remapped_rows_corrected},
        {143, FIELD_remapped_rows_uncorrected},      {230, FIELD_recovery_action},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].id == value->field_id)
            return read_field(gpu, known[i].field, &value->value.ull);
    return NVML_ERROR_NOT_SUPPORTED;
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
        values[i].value_type = VALUE_TYPE_UNSIGNED_LONG_LONG;
        values[i].result = read_value(gpu, &values[i]);
    }
    machine_unlock();
    return NVML_SUCCESS;
}
