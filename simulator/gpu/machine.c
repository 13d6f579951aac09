#define _GNU_SOURCE
#include "machine.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "json.h"

#define STATE_VARIABLE "HEADWORKS_FAKE_NVML_STATE"
#define MAX_FILE_BYTES (4 << 20)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct machine *machine;
/* Of the file that `machine` was read from. */
static struct stat read_from;

static void copy(char *to, size_t size, const char *from) { snprintf(to, size, "%s", from); }

static void read_values(struct gpu *gpu, const struct json *values) {
    static const char *const names[] = {
#define AS_NAME(name) #name,
        FIELDS(AS_NAME)
#undef AS_NAME
    };
    for (int field = 0; field < FIELD_COUNT; field++) {
        const struct json *value = json_member(values, names[field]);
        /* Absent or a word ("unsupported"): this GPU does not support it. */
        gpu->supported[field] = value != NULL && value->kind == JSON_NUMBER;
        gpu->value[field] = gpu->supported[field] ? value->number : 0;
    }
}

static void read_mig(struct gpu *gpu, const struct json *mig) {
    gpu->mig_enabled = json_number(mig, "enabled", 0) != 0;
    const struct json *instances = json_member(mig, "instances");
    if (!gpu->mig_enabled || instances == NULL)
        return;
    for (const struct json *item = instances->first; item != NULL; item = item->next) {
        if (gpu->instance_count == MAX_INSTANCES)
            return;
        struct instance *instance = &gpu->instances[gpu->instance_count++];
        copy(instance->uuid, sizeof instance->uuid, json_string(item, "uuid", ""));
        copy(instance->profile, sizeof instance->profile, json_string(item, "profile", ""));
        instance->gpu_instance_id = (unsigned)json_number(item, "gpu_instance_id", 0);
        instance->compute_instance_id = (unsigned)json_number(item, "compute_instance_id", 0);
        instance->memory_total_bytes = (uint64_t)json_number(item, "memory_total_bytes", 0);
        instance->memory_used_bytes = (uint64_t)json_number(item, "memory_used_bytes", 0);
    }
}

static void read_xids(struct gpu *gpu, const struct json *xids) {
    for (const struct json *item = xids == NULL ? NULL : xids->first; item != NULL; item = item->next) {
        if (gpu->xid_count == MAX_XIDS)
            memmove(gpu->xids, gpu->xids + 1, sizeof *gpu->xids * --gpu->xid_count);
        gpu->xids[gpu->xid_count++] = (struct xid){
            .sequence = (uint64_t)json_number(item, "sequence", 0),
            .code = (unsigned)json_number(item, "xid", 0),
            .gpu_instance_id = (unsigned)json_number(item, "gpu_instance_id", -1),
        };
    }
}

static void read_processes(struct gpu *gpu, const struct json *processes) {
    for (const struct json *item = processes == NULL ? NULL : processes->first; item != NULL; item = item->next)
        if (gpu->process_count < MAX_PROCESSES)
            gpu->processes[gpu->process_count++] = (struct process){
                .pid = (unsigned)json_number(item, "pid", 0),
                .memory_bytes = (uint64_t)json_number(item, "memory_bytes", -1),
            };
}

static void read_gpu(struct gpu *gpu, const struct json *from) {
    const char *state = json_string(from, "state", "ok");
    copy(gpu->name, sizeof gpu->name, json_string(from, "name", "Simulated GPU"));
    copy(gpu->uuid, sizeof gpu->uuid, json_string(from, "uuid", ""));
    copy(gpu->pci_bus_id, sizeof gpu->pci_bus_id, json_string(from, "pci_bus_id", ""));
    gpu->state = strcmp(state, "lost") == 0 ? GPU_LOST : strcmp(state, "hang") == 0 ? GPU_HANG : GPU_OK;
    read_values(gpu, json_member(from, "values"));
    read_mig(gpu, json_member(from, "mig"));
    read_xids(gpu, json_member(from, "xids"));
    read_processes(gpu, json_member(from, "processes"));
}

static bool read_machine(struct machine *into, const struct json *root) {
    const struct json *gpus = json_member(root, "gpus");
    if (gpus == NULL || gpus->kind != JSON_ARRAY || json_number(root, "format", 0) != 1)
        return false;
    copy(into->driver_version, sizeof into->driver_version, json_string(root, "driver_version", "0-simulated"));
    copy(into->nvml_version, sizeof into->nvml_version, json_string(root, "nvml_version", "0-simulated"));
    into->cuda_driver_version = (int)json_number(root, "cuda_driver_version", 0);
    into->init_result = (int)json_number(root, "init_result", 0);
    into->init_hangs = json_number(root, "init_hangs", 0) != 0;
    for (const struct json *gpu = gpus->first; gpu != NULL && into->gpu_count < MAX_GPUS; gpu = gpu->next)
        read_gpu(&into->gpus[into->gpu_count++], gpu);
    return true;
}

static char *read_whole(int descriptor, size_t size) {
    char *text = malloc(size + 1);
    size_t length = 0;
    while (text != NULL && length < size) {
        ssize_t got = read(descriptor, text + length, size - length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            free(text);
            return NULL;
        }
        length += (size_t)got;
    }
    return text;
}

static bool same_file(const struct stat *left, const struct stat *right) {
    return left->st_ino == right->st_ino && left->st_dev == right->st_dev && left->st_size == right->st_size &&
           left->st_mtim.tv_sec == right->st_mtim.tv_sec && left->st_mtim.tv_nsec == right->st_mtim.tv_nsec;
}

static void refresh(void) {
    const char *path = getenv(STATE_VARIABLE);
    struct stat found;
    if (path == NULL || stat(path, &found) != 0 || (machine != NULL && same_file(&found, &read_from)))
        return;
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return;
    struct json_document *document = NULL;
    if (fstat(descriptor, &found) == 0 && S_ISREG(found.st_mode) && found.st_size <= MAX_FILE_BYTES) {
        char *text = read_whole(descriptor, (size_t)found.st_size);
        document = text == NULL ? NULL : json_read(text, (size_t)found.st_size);
    }
    close(descriptor);
    if (document == NULL)
        return;
    struct machine *fresh = calloc(1, sizeof *fresh);
    if (fresh != NULL && read_machine(fresh, json_root(document))) {
        free(machine);
        machine = fresh;
        read_from = found;
    } else {
        free(fresh);
    }
    json_free(document);
}

const struct machine *machine_lock(void) {
    pthread_mutex_lock(&lock);
    refresh();
    return machine;
}

void machine_unlock(void) { pthread_mutex_unlock(&lock); }
