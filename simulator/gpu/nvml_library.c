/* Start, end and names of the simulated libnvidia-ml.so.1, and the doors through which its calls go. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "nvml_calls.h"

#define HANG_POLL_NANOSECONDS 10000000

static atomic_uint references;
static struct device devices[MAX_GPUS][MAX_INSTANCES + 1];

/* Before any thread can ask for one. */
__attribute__((constructor)) static void number_devices(void) {
    for (unsigned gpu = 0; gpu < MAX_GPUS; gpu++)
        for (int instance = -1; instance < MAX_INSTANCES; instance++)
            devices[gpu][instance + 1] = (struct device){gpu, instance};
}

device_t device_handle(unsigned gpu, int instance) { return &devices[gpu][instance + 1]; }

nvml_return_t enter_library(const struct machine **machine) {
    if (atomic_load(&references) == 0)
        return NVML_ERROR_UNINITIALIZED;
    *machine = machine_lock();
    return NVML_SUCCESS;
}

static const struct gpu *gpu_of(const struct machine *machine, device_t device) {
    return device->gpu < machine->gpu_count ? &machine->gpus[device->gpu] : NULL;
}

/* Waits without the lock while `hangs` holds, with every signal blocked, as a call stuck in the driver would. */
static const struct machine *wait_while(bool (*hangs)(const struct machine *, device_t), device_t device) {
    const struct timespec pause = {.tv_nsec = HANG_POLL_NANOSECONDS};
    const struct machine *machine = machine_lock();
    sigset_t all, before;
    if (machine == NULL || !hangs(machine, device))
        return machine;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (machine != NULL && hangs(machine, device)) {
        machine_unlock();
        nanosleep(&pause, NULL);
        machine = machine_lock();
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return machine;
}

static bool init_hangs(const struct machine *machine, device_t device) {
    (void)device;
    return machine->init_hangs;
}

static bool gpu_hangs(const struct machine *machine, device_t device) {
    const struct gpu *gpu = gpu_of(machine, device);
    return gpu != NULL && gpu->state == GPU_HANG;
}

nvml_return_t enter_gpu(device_t device, const struct gpu **gpu) {
    if (atomic_load(&references) == 0)
        return NVML_ERROR_UNINITIALIZED;
    if (device == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    const struct machine *machine = wait_while(gpu_hangs, device);
    nvml_return_t result = NVML_SUCCESS;
    *gpu = gpu_of(machine, device);
    if (*gpu == NULL || (*gpu)->state == GPU_LOST)
        result = NVML_ERROR_GPU_IS_LOST;
    else if (device->instance >= (int)(*gpu)->instance_count)
        result = NVML_ERROR_INVALID_ARGUMENT; /* the instance was there before MIG was changed */
    if (result != NVML_SUCCESS)
        machine_unlock();
    return result;
}

nvml_return_t enter_pair(device_t device, device_t other, const struct gpu **gpu, const struct gpu **other_gpu) {
    if (atomic_load(&references) == 0)
        return NVML_ERROR_UNINITIALIZED;
    if (device == NULL || other == NULL || device->instance >= 0 || other->instance >= 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    wait_while(gpu_hangs, other);
    machine_unlock();
    const struct machine *machine = wait_while(gpu_hangs, device);
    *gpu = gpu_of(machine, device);
    *other_gpu = gpu_of(machine, other);
    if (*gpu != NULL && (*gpu)->state != GPU_LOST && *other_gpu != NULL && (*other_gpu)->state != GPU_LOST)
        return NVML_SUCCESS;
    machine_unlock();
    return NVML_ERROR_GPU_IS_LOST;
}

EXPORT nvml_return_t nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    const struct machine *machine = wait_while(init_hangs, NULL);
    nvml_return_t result = machine == NULL ? NVML_ERROR_DRIVER_NOT_LOADED : machine->init_result;
    machine_unlock();
    if (result == NVML_SUCCESS)
        atomic_fetch_add(&references, 1);
    return result;
}

EXPORT nvml_return_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

EXPORT nvml_return_t nvmlShutdown(void) {
    unsigned held = atomic_load(&references);
    while (held > 0)
        if (atomic_compare_exchange_weak(&references, &held, held - 1))
            return NVML_SUCCESS;
    return NVML_ERROR_UNINITIALIZED;
}

EXPORT const char *nvmlErrorString(nvml_return_t result) {
    switch (result) {
    case NVML_SUCCESS:
        return "Success";
    case NVML_ERROR_UNINITIALIZED:
        return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT:
        return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED:
        return "Not Supported";
    case NVML_ERROR_NO_PERMISSION:
        return "Insufficient Permissions";
    case NVML_ERROR_NOT_FOUND:
        return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE:
        return "Insufficient Size";
    case NVML_ERROR_DRIVER_NOT_LOADED:
        return "Driver Not Loaded";
    case NVML_ERROR_TIMEOUT:
        return "Timeout";
    case NVML_ERROR_GPU_IS_LOST:
        return "GPU is lost";
    case NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        return "RM has detected an NVML/RM version mismatch.";
    case NVML_ERROR_MEMORY:
        return "Insufficient Memory";
    case NVML_ERROR_ARGUMENT_VERSION_MISMATCH:
        return "Argument version mismatch";
    default:
        return "Unknown Error";
    }
}

static nvml_return_t version(char *into, unsigned size, size_t member) {
    const struct machine *machine;
    nvml_return_t result = enter_library(&machine);
    if (result != NVML_SUCCESS)
        return result;
    const char *text = (const char *)machine + member;
    result = strlen(text) < size ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
    if (result == NVML_SUCCESS)
        strcpy(into, text);
    machine_unlock();
    return result;
}

EXPORT nvml_return_t nvmlSystemGetDriverVersion(char *into, unsigned size) {
    return version(into, size, offsetof(struct machine, driver_version));
}

EXPORT nvml_return_t nvmlSystemGetNVMLVersion(char *into, unsigned size) {
    return version(into, size, offsetof(struct machine, nvml_version));
}

EXPORT nvml_return_t nvmlSystemGetCudaDriverVersion_v2(int *number) {
    const struct machine *machine;
    nvml_return_t result = enter_library(&machine);
    if (result != NVML_SUCCESS)
        return result;
    *number = machine->cuda_driver_version;
    machine_unlock();
    return *number ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

EXPORT nvml_return_t nvmlDeviceGetCount_v2(unsigned *count) {
    const struct machine *machine;
    nvml_return_t result = enter_library(&machine);
    if (result != NVML_SUCCESS)
        return result;
    *count = machine->gpu_count;
    machine_unlock();
    return NVML_SUCCESS;
}

EXPORT nvml_return_t nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t *device) {
    const struct machine *machine;
    nvml_return_t result = enter_library(&machine);
    if (result != NVML_SUCCESS)
        return result;
    if (index < machine->gpu_count)
        *device = device_handle(index, -1);
    else
        result = NVML_ERROR_INVALID_ARGUMENT;
    machine_unlock();
    return result;
}

/* A GPU by a text that struct gpu holds at `member`. */
static nvml_return_t find(const char *text, size_t member, device_t *device) {
    const struct machine *machine;
    nvml_return_t result = enter_library(&machine);
    if (result != NVML_SUCCESS)
        return result;
    result = NVML_ERROR_NOT_FOUND;
    for (unsigned gpu = 0; gpu < machine->gpu_count; gpu++) {
        if (strcasecmp((const char *)&machine->gpus[gpu] + member, text) == 0) {
            *device = device_handle(gpu, -1);
            result = NVML_SUCCESS;
        }
    }
    machine_unlock();
    return result;
}

EXPORT nvml_return_t nvmlDeviceGetHandleByUUID(const char *uuid, device_t *device) {
    return find(uuid, offsetof(struct gpu, uuid), device);
}

EXPORT nvml_return_t nvmlDeviceGetHandleByPciBusId_v2(const char *pci_bus_id, device_t *device) {
    return find(pci_bus_id, offsetof(struct gpu, pci_bus_id), device);
}
