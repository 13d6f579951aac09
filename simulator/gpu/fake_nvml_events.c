/* Event sets: XIDs that the state file lists, each delivered once to each set, from its registration on. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <time.h>

#include "nvml_calls.h"

#define POLL_NANOSECONDS 20000000

struct event_set {
    bool registered[MAX_GPUS];
    uint64_t delivered[MAX_GPUS]; /* highest sequence that the caller has seen */
};

EXPORT nvml_return_t nvmlEventSetCreate(struct event_set **set) {
    *set = calloc(1, sizeof **set);
    return *set == NULL ? NVML_ERROR_MEMORY : NVML_SUCCESS;
}

EXPORT nvml_return_t nvmlEventSetFree(struct event_set *set) {
    free(set);
    return NVML_SUCCESS;
}

EXPORT nvml_return_t nvmlDeviceGetSupportedEventTypes(device_t device, uint64_t *types) {
    const struct gpu *gpu;
    nvml_return_t result = enter_gpu(device, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    *types = EVENT_XID;
    machine_unlock();
    return NVML_SUCCESS;
}

EXPORT nvml_return_t nvmlDeviceRegisterEvents(device_t device, uint64_t types, struct event_set *set) {
    const struct gpu *gpu;
    if (set == NULL || (device != NULL && device->instance >= 0))
        return NVML_ERROR_INVALID_ARGUMENT; /* handles must be the whole GPU's */
    nvml_return_t result = enter_gpu(device, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    if ((types & ~EVENT_XID) != 0) {
        result = NVML_ERROR_NOT_SUPPORTED;
    } else if (types != 0) {
        set->registered[device->gpu] = true;
        set->delivered[device->gpu] = gpu->xid_count == 0 ? 0 : gpu->xids[gpu->xid_count - 1].sequence;
    }
    machine_unlock();
    return result;
}

/* The next event of any GPU in the set. NVML_ERROR_TIMEOUT: none now. */
static nvml_return_t next_event(struct event_set *set, struct event_data *data) {
    const struct machine *machine;
    nvml_return_t result = enter_library(&machine);
    if (result != NVML_SUCCESS)
        return result;
    result = NVML_ERROR_TIMEOUT;
    for (unsigned index = 0; index < machine->gpu_count; index++) {
        const struct gpu *gpu = &machine->gpus[index];
        if (!set->registered[index])
            continue;
        if (gpu->state == GPU_LOST)
            result = NVML_ERROR_GPU_IS_LOST;
        for (unsigned i = 0; i < gpu->xid_count; i++) {
            if (gpu->xids[i].sequence <= set->delivered[index])
                continue;
            set->delivered[index] = gpu->xids[i].sequence;
            *data = (struct event_data){device_handle(index, -1), EVENT_XID, gpu->xids[i].code,
                                        gpu->xids[i].gpu_instance_id, WHOLE_GPU};
            machine_unlock();
            return NVML_SUCCESS;
        }
    }
    machine_unlock();
    return result;
}

EXPORT nvml_return_t nvmlEventSetWait_v2(struct event_set *set, struct event_data *data, unsigned timeout_milliseconds) {
    const struct timespec pause = {.tv_nsec = POLL_NANOSECONDS};
    if (set == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (uint64_t waited = 0;; waited += POLL_NANOSECONDS) {
        nvml_return_t result = next_event(set, data);
        if (result != NVML_ERROR_TIMEOUT || waited >= timeout_milliseconds * 1000000ull)
            return result;
        nanosleep(&pause, NULL);
    }
}
