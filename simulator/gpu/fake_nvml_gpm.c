/* GPM: two samples, and metrics over the time between them. Here they are those of the later sample. */
#include <stdlib.h>

#include "nvml_calls.h"

/* By NVML's numbers: percent, which the file holds in thousandths, and MiB a second. */
static const struct {
    unsigned id;
    enum field field;
    double parts;
} metrics[] = {
    {1, FIELD_gr_engine_active_per_mille, 10},    {5, FIELD_tensor_active_per_mille, 10},
    {10, FIELD_dram_active_per_mille, 10},        {20, FIELD_pcie_tx_mebibytes_per_second, 1},
    {21, FIELD_pcie_rx_mebibytes_per_second, 1},
};
#define METRICS (sizeof metrics / sizeof *metrics)

struct gpm_sample {
    bool taken, supported[METRICS];
    int64_t value[METRICS];
};

static bool supports(const struct gpu *gpu) { return gpu->supported[metrics[0].field] && !gpu->mig_enabled; }

EXPORT nvml_return_t nvmlGpmQueryDeviceSupport(device_t device, struct gpm_support *support) {
    const struct gpu *gpu;
    nvml_return_t result = enter_gpu(device, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    support->supported = device->instance < 0 && supports(gpu);
    machine_unlock();
    return NVML_SUCCESS;
}

EXPORT nvml_return_t nvmlGpmSampleAlloc(struct gpm_sample **sample) {
    *sample = calloc(1, sizeof **sample);
    return *sample == NULL ? NVML_ERROR_MEMORY : NVML_SUCCESS;
}

EXPORT nvml_return_t nvmlGpmSampleFree(struct gpm_sample *sample) {
    free(sample);
    return NVML_SUCCESS;
}

EXPORT nvml_return_t nvmlGpmSampleGet(device_t device, struct gpm_sample *sample) {
    const struct gpu *gpu;
    if (sample == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvml_return_t result = enter_gpu(device, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    if (device->instance >= 0 || !supports(gpu))
        result = NVML_ERROR_NOT_SUPPORTED;
    for (size_t i = 0; i < METRICS && result == NVML_SUCCESS; i++)
        sample->supported[i] = read_field(gpu, metrics[i].field, &sample->value[i]) == NVML_SUCCESS;
    sample->taken = sample->taken || result == NVML_SUCCESS;
    machine_unlock();
    return result;
}

static nvml_return_t measure(const struct gpm_sample *sample, struct gpm_metric *metric) {
    for (size_t i = 0; i < METRICS; i++) {
        if (metrics[i].id == metric->id && sample->supported[i]) {
            metric->value = (double)sample->value[i] / metrics[i].parts;
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_SUPPORTED;
}

EXPORT nvml_return_t nvmlGpmMetricsGet(struct gpm_metrics_get *asked) {
    if (asked->version != 1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (asked->earlier == NULL || asked->later == NULL || !asked->earlier->taken || !asked->later->taken)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned i = 0; i < asked->count; i++)
        asked->metrics[i].result = measure(asked->later, &asked->metrics[i]);
    return NVML_SUCCESS;
}
