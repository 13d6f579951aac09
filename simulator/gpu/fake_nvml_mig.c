/* MIG: instances of a GPU as devices of their own. */
#include <stddef.h>

#include "nvml_calls.h"

EXPORT nvml_return_t nvmlDeviceGetMigMode(device_t device, unsigned *current, unsigned *pending) {
    const struct gpu *gpu;
    nvml_return_t result = enter_gpu(device, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    *current = *pending = gpu->mig_enabled;
    machine_unlock();
    return NVML_SUCCESS;
}

EXPORT nvml_return_t nvmlDeviceGetMaxMigDeviceCount(device_t device, unsigned *count) {
    const struct gpu *gpu;
    nvml_return_t result = enter_gpu(device, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    *count = MAX_INSTANCES;
    machine_unlock();
    return NVML_SUCCESS;
}

EXPORT nvml_return_t nvmlDeviceGetMigDeviceHandleByIndex(device_t device, unsigned index, device_t *instance) {
    const struct gpu *gpu;
    nvml_return_t result = enter_gpu(device, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    if (!gpu->mig_enabled || index >= gpu->instance_count)
        result = NVML_ERROR_NOT_FOUND;
    else
        *instance = device_handle(device->gpu, (int)index);
    machine_unlock();
    return result;
}

EXPORT nvml_return_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device_t instance, device_t *device) {
    if (instance == NULL || instance->instance < 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = device_handle(instance->gpu, -1);
    return NVML_SUCCESS;
}

EXPORT nvml_return_t nvmlDeviceIsMigDeviceHandle(device_t device, unsigned *is_instance) {
    if (device == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *is_instance = device->instance >= 0;
    return NVML_SUCCESS;
}

static nvml_return_t read_instance(device_t device, unsigned *gpu_instance_id, unsigned *compute_instance_id) {
    const struct gpu *gpu;
    nvml_return_t result = enter_gpu(device, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    if (device->instance < 0) {
        result = NVML_ERROR_INVALID_ARGUMENT;
    } else {
        *gpu_instance_id = gpu->instances[device->instance].gpu_instance_id;
        *compute_instance_id = gpu->instances[device->instance].compute_instance_id;
    }
    machine_unlock();
    return result;
}

EXPORT nvml_return_t nvmlDeviceGetGpuInstanceId(device_t device, unsigned *id) {
    unsigned other;
    return read_instance(device, id, &other);
}

EXPORT nvml_return_t nvmlDeviceGetComputeInstanceId(device_t device, unsigned *id) {
    unsigned other;
    return read_instance(device, &other, id);
}
