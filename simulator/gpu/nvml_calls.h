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

/* Both GPUs of a pair, as enter_gpu does for one: a driver that is asked about a pair waits for either. */
nvml_return_t enter_pair(device_t device, device_t other, const struct gpu **gpu, const struct gpu **other_gpu);

/* What a GPU says of one field, under the lock. */
nvml_return_t read_field(const struct gpu *gpu, enum field field, int64_t *value);
/* Reads `count` fields of a whole GPU at one moment, and all of them or none. */
nvml_return_t read_fields(device_t device, int count, const enum field *fields, int64_t *values);
nvml_return_t read_unsigned(device_t device, enum field field, unsigned *into);
void write_pci_info(const struct gpu *gpu, struct pci_info *info);

/* The handle of a GPU, or of one of its MIG instances. */
device_t device_handle(unsigned gpu, int instance);

#endif
