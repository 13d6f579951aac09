/* What every call on a GPU does first. */
#ifndef HEADWORKS_NVML_CALLS_H
#define HEADWORKS_NVML_CALLS_H

#include "machine.h"
#include "nvml_abi.h"

/* Takes the machine's lock and finds the GPU of a handle, waiting while that GPU hangs. On NVML_SUCCESS the caller calls
 * machine_unlock; otherwise it returns the code, and the lock is not held. */
nvml_return_t enter_gpu(device_t device, const struct gpu **gpu);
/* The same without a GPU: fails only before nvmlInit. */
nvml_return_t enter_library(const struct machine **machine);

/* The handle of a GPU, or of one of its MIG instances. */
device_t device_handle(unsigned gpu, int instance);

#endif
