/* What runs on a GPU. */
#include "nvml_calls.h"

EXPORT nvml_return_t nvmlDeviceGetComputeRunningProcesses_v3(device_t device, unsigned *count,
                                                             struct process_info *processes) {
    const struct gpu *gpu;
    nvml_return_t result = enter_gpu(device, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    if (*count < gpu->process_count)
        result = NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < gpu->process_count && result == NVML_SUCCESS; i++)
        processes[i] = (struct process_info){gpu->processes[i].pid, gpu->processes[i].memory_bytes, WHOLE_GPU, WHOLE_GPU};
    *count = gpu->process_count;
    machine_unlock();
    return result;
}

/* Nothing here runs under MPS. */
EXPORT nvml_return_t nvmlDeviceGetMPSComputeRunningProcesses_v3(device_t device, unsigned *count,
                                                                struct process_info *processes) {
    const struct gpu *gpu;
    (void)processes;
    nvml_return_t result = enter_gpu(device, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    *count = 0;
    machine_unlock();
    return NVML_SUCCESS;
}
