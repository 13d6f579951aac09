/* Three GPUs as NVML shows them: a whole one, one without memory information (as GB10), a lost one.
 * FAKE_NVML=hang stops in the count, FAKE_NVML=broken fails to start, FAKE_NVML=crash ends the process. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, GPU_IS_LOST = 15, LIB_RM_VERSION_MISMATCH = 18 };

struct memory { uint64_t total, free, used; };
struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };

static int mode(const char *name) { const char *set = getenv("FAKE_NVML"); return set && !strcmp(set, name); }

int nvmlInitWithFlags(unsigned flags) { (void)flags; return mode("broken") ? LIB_RM_VERSION_MISMATCH : SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { return code == GPU_IS_LOST ? "GPU is lost" : "Unknown"; }

int nvmlDeviceGetCount_v2(unsigned *count) {
    while (mode("hang")) pause();
    if (mode("crash")) abort();
    *count = 3;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) { *handle = (void *)(uintptr_t)(index + 1); return SUCCESS; }

int nvmlDeviceGetUUID(void *handle, char *text, unsigned size) {
    if ((uintptr_t)handle == 3) return GPU_IS_LOST;
    snprintf(text, size, "GPU-%u", (unsigned)(uintptr_t)handle - 1);
    return SUCCESS;
}

int nvmlDeviceGetName(void *handle, char *text, unsigned size) { (void)handle; snprintf(text, size, "NVIDIA H200"); return SUCCESS; }

int nvmlDeviceGetMemoryInfo(void *handle, struct memory *memory) {
    if ((uintptr_t)handle == 2) return NOT_SUPPORTED;
    memory->total = 150754820096u;
    return SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(void *handle, struct pci *pci) {
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:0%u:00.0", (unsigned)(uintptr_t)handle);
    return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *text, unsigned size) { snprintf(text, size, "580.95.05"); return SUCCESS; }
