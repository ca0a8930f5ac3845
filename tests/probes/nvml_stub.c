/* A driver for the real pynvml: what NVML exports, as far as lardon calls it.
 *
 * It has two cards. Files in the directory LARDON_STUB_DIR steer it: while `gone` exists
 * the driver is not loaded, while `hang` exists the second card does not answer, while
 * `lost` exists the second card has fallen off the bus. `inits` gets a line per start.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    GPU_IS_LOST = 15
};

#define GIB (1024ull * 1024 * 1024)

struct device {
    const char *uuid;
    const char *name;
    unsigned long long total, free;
};

struct memory {
    unsigned long long total, free, used;
};

struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

struct process {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};

/* The second name is not UTF-8, as some drivers give it under WSL. */
static struct device devices[2] = {
    {"GPU-11111111-aaaa", "NVIDIA Stub", 80 * GIB, 70 * GIB},
    {"GPU-22222222-bbbb", "\xf8\x01", 40 * GIB, 30 * GIB},
};

/* Memory of the library survives a fork, but the driver knows only who started it. */
static pid_t started_by;

static int present(const char *name)
{
    char path[4096];
    const char *directory = getenv("LARDON_STUB_DIR");
    snprintf(path, sizeof path, "%s/%s", directory ? directory : ".", name);
    return access(path, F_OK) == 0;
}

static int state(void)
{
    if (present("gone"))
        return DRIVER_NOT_LOADED;
    return started_by == getpid() ? SUCCESS : UNINITIALIZED;
}

static int state_of(struct device *device)
{
    int now = state();
    if (now != SUCCESS || device != &devices[1])
        return now;
    while (present("hang"))
        usleep(1000);
    return present("lost") ? GPU_IS_LOST : SUCCESS;
}

int nvmlInitWithFlags(unsigned flags)
{
    char path[4096];
    FILE *log;
    (void)flags;
    if (present("gone"))
        return DRIVER_NOT_LOADED;
    snprintf(path, sizeof path, "%s/inits", getenv("LARDON_STUB_DIR"));
    log = fopen(path, "a");
    if (log) {
        fprintf(log, "%d\n", (int)getpid());
        fclose(log);
    }
    started_by = getpid();
    return SUCCESS;
}

int nvmlShutdown(void)
{
    int now = state();
    started_by = 0;
    return now;
}

const char *nvmlErrorString(int result)
{
    (void)result;
    return "stub error";
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = 2;
    return state();
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device **device)
{
    if (index > 1)
        return INVALID_ARGUMENT;
    *device = &devices[index];
    return state();
}

int nvmlDeviceGetUUID(struct device *device, char *text, unsigned size)
{
    snprintf(text, size, "%s", device->uuid);
    return state();
}

int nvmlDeviceGetName(struct device *device, char *text, unsigned size)
{
    snprintf(text, size, "%s", device->name);
    return state();
}

int nvmlDeviceGetMigMode(struct device *device, unsigned *current, unsigned *pending)
{
    (void)device;
    *current = *pending = 0;
    return NOT_SUPPORTED;
}

int nvmlDeviceGetMemoryInfo(struct device *device, struct memory *memory)
{
    memory->total = device->total;
    memory->free = device->free;
    memory->used = device->total - device->free;
    return state_of(device);
}

int nvmlDeviceGetMemoryInfo_v2(struct device *device, struct memory_v2 *memory)
{
    memory->total = device->total;
    memory->reserved = GIB;
    memory->free = device->free;
    memory->used = device->total - device->free - GIB;
    return state_of(device);
}

int nvmlDeviceGetComputeRunningProcesses_v3(struct device *device, unsigned *count,
                                            struct process *processes)
{
    int now = state_of(device);
    if (now != SUCCESS)
        return now;
    if (*count < 2) {
        *count = 2;
        return INSUFFICIENT_SIZE;
    }
    *count = 2;
    memset(processes, 0, 2 * sizeof *processes);
    processes[0].pid = (unsigned)getpid();
    /* The second card cannot tell how much: all bits set, as under WDDM. */
    processes[0].used = device == &devices[1] ? ~0ull : 3 * GIB;
    processes[1].pid = 1;
    processes[1].used = 5 * GIB;
    return SUCCESS;
}
