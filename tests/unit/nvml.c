/* A libnvidia-ml.so.1 without a GPU: it answers from the file that POSED_NVML names.
 *
 * Each line of the file is "DEVICE KEY VALUE", DEVICE -1 for the library itself. A key "error.CALL"
 * has NVML's error that this call returns. Energy is "energy" (mJ) plus "power" (mW) over the
 * time since the machine started, so that it goes on as a real counter does. What is set is
 * added to the file "POSED_NVML.set", one line a call.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, NO_DRIVER = 9 };

typedef struct device { int index; } *device_t;
static struct device devices[16];

static int look_up(int device, const char *key, char *value, size_t size)
{
    const char *path = getenv("POSED_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[512], name[128], text[256];
    int number, there = 0;
    if (!file)
        return 0;
    while (!there && fgets(line, sizeof line, file))
        if (sscanf(line, "%d %127s %255[^\n]", &number, name, text) == 3 && number == device
            && !strcmp(name, key)) {
            snprintf(value, size, "%s", text);
            there = 1;
        }
    fclose(file);
    return there;
}

static double number(int device, const char *key, double otherwise)
{
    char text[256];
    return look_up(device, key, text, sizeof text) ? atof(text) : otherwise;
}

static int error(int device, const char *call)
{
    char key[160];
    snprintf(key, sizeof key, "error.%s", call);
    return (int)number(device, key, OK);
}

/* A key "hang.CALL" has the seconds for which this call does not return. */
static void hang(int device, const char *call)
{
    char key[160];
    snprintf(key, sizeof key, "hang.%s", call);
    double seconds = number(device, key, 0);
    if (seconds > 0)
        sleep((unsigned)seconds);
}

static void note(int device, const char *call, unsigned value)
{
    char path[1024];
    snprintf(path, sizeof path, "%s.set", getenv("POSED_NVML"));
    FILE *file = fopen(path, "a");
    if (file) {
        fprintf(file, "%d %s %u\n", device, call, value);
        fclose(file);
    }
}

#define CHECKED(call) \
    int code = error(device->index, call); \
    hang(device->index, call); \
    if (code) \
        return code

int nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    return getenv("POSED_NVML") ? error(-1, "init") : NO_DRIVER;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) { return OK; }

const char *nvmlErrorString(int code)
{
    switch (code) {
    case NOT_SUPPORTED: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case NO_DRIVER: return "Driver Not Loaded";
    case 15: return "GPU is lost";
    default: return "Unknown Error";
    }
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = (unsigned)number(-1, "count", 0);
    return error(-1, "count");
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t *device)
{
    if (index >= 16)
        return INVALID;
    devices[index].index = (int)index;
    *device = &devices[index];
    return error((int)index, "handle");
}

int nvmlDeviceGetName(device_t device, char *name, unsigned size)
{
    CHECKED("name");
    if (!look_up(device->index, "name", name, size))
        snprintf(name, size, "NVIDIA Posed");
    return OK;
}

int nvmlDeviceGetTotalEnergyConsumption(device_t device, unsigned long long *energy)
{
    struct timespec now;
    CHECKED("energy");
    clock_gettime(CLOCK_MONOTONIC, &now);
    double seconds = (double)now.tv_sec + (double)now.tv_nsec / 1e9;
    *energy = (unsigned long long)(number(device->index, "energy", 0)
                                   + number(device->index, "power", 0) * seconds);
    return OK;
}

int nvmlDeviceGetPowerUsage(device_t device, unsigned *power)
{
    CHECKED("power");
    *power = (unsigned)number(device->index, "power", 0);
    return OK;
}

int nvmlDeviceGetMigMode(device_t device, unsigned *current, unsigned *pending)
{
    CHECKED("mig");
    double mode = number(device->index, "mig", -1);
    if (mode < 0)
        return NOT_SUPPORTED;
    *current = *pending = (unsigned)mode;
    return OK;
}

int nvmlDeviceGetComputeRunningProcesses_v3(device_t device, unsigned *count, void *processes)
{
    CHECKED("processes");
    unsigned running = (unsigned)number(device->index, "processes", 0), room = *count;
    *count = running;
    if (room < running)
        return INSUFFICIENT_SIZE;
    if (processes) /* nvmlProcessInfo_t: pid, memory, two instances */
        memset(processes, 0, running * 24);
    return OK;
}

/* "clocks" has "highest lowest step", MHz, of the memory's highest clock; its other one has one. */
int nvmlDeviceGetSupportedMemoryClocks(device_t device, unsigned *count, unsigned *clocks)
{
    CHECKED("clocks");
    unsigned room = *count;
    *count = 2;
    if (room < 2)
        return INSUFFICIENT_SIZE;
    clocks[0] = 877;
    clocks[1] = 405;
    return OK;
}

int nvmlDeviceGetSupportedGraphicsClocks(device_t device, unsigned memory, unsigned *count,
                                         unsigned *clocks)
{
    char text[256];
    unsigned highest, lowest, step, room = *count;
    CHECKED("clocks");
    if (!look_up(device->index, "clocks", text, sizeof text)
        || sscanf(text, "%u %u %u", &highest, &lowest, &step) != 3)
        return NOT_SUPPORTED;
    *count = highest < lowest ? 0 : memory == 877 ? (highest - lowest) / step + 1 : 1;
    if (room < *count)
        return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < *count; i++)
        clocks[i] = highest - i * step;
    return OK;
}

int nvmlDeviceGetPowerManagementLimitConstraints(device_t device, unsigned *least, unsigned *most)
{
    CHECKED("limits");
    *least = (unsigned)number(device->index, "least", 0);
    *most = (unsigned)number(device->index, "most", 0);
    return *most ? OK : NOT_SUPPORTED;
}

int nvmlDeviceGetPowerManagementDefaultLimit(device_t device, unsigned *limit)
{
    CHECKED("limits");
    *limit = (unsigned)number(device->index, "most", 0);
    return *limit ? OK : NOT_SUPPORTED;
}

/* What was set last, else the highest. */
int nvmlDeviceGetPowerManagementLimit(device_t device, unsigned *limit)
{
    char path[1024], call[32];
    int index;
    unsigned value;
    CHECKED("limits");
    *limit = (unsigned)number(device->index, "most", 0);
    snprintf(path, sizeof path, "%s.set", getenv("POSED_NVML"));
    FILE *file = fopen(path, "r");
    while (file && fscanf(file, "%d %31s %u", &index, call, &value) == 3)
        if (index == device->index && !strcmp(call, "limit"))
            *limit = value;
    if (file)
        fclose(file);
    return *limit ? OK : NOT_SUPPORTED;
}

int nvmlDeviceGetMinorNumber(device_t device, unsigned *minor)
{
    CHECKED("minor");
    *minor = (unsigned)number(device->index, "minor", device->index);
    return OK;
}

int nvmlDeviceGetUUID(device_t device, char *uuid, unsigned size)
{
    CHECKED("uuid");
    snprintf(uuid, size, "GPU-%08d-0000-0000-0000-000000000000", device->index);
    return OK;
}

int nvmlDeviceResetGpuLockedClocks(device_t device)
{
    CHECKED("set");
    note(device->index, "clocks", 0);
    return OK;
}

int nvmlDeviceSetPowerManagementLimit(device_t device, unsigned limit)
{
    CHECKED("set");
    note(device->index, "limit", limit);
    return OK;
}

int nvmlDeviceSetGpuLockedClocks(device_t device, unsigned least, unsigned most)
{
    CHECKED("set");
    if (least > most)
        return INVALID;
    note(device->index, "clocks", most);
    return OK;
}
