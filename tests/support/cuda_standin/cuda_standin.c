/* Settings, devices, errors, and the books at exit. */
#include "cuda_standin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

standin_state standin = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};

static pthread_once_t started = PTHREAD_ONCE_INIT;
static _Thread_local int current;
static _Thread_local cudaError_t last_error; /* until somebody asks */

void
standin_lock(void)
{
    (void)pthread_mutex_lock(&standin.lock);
}

void
standin_unlock(void)
{
    (void)pthread_mutex_unlock(&standin.lock);
}

int
standin_current(void)
{
    return standin.visible[current];
}

/* ------------------------------------------------------------------------------ settings */

static void
read_setting(char *setting, int *devices)
{
    char *value = strchr(setting, ':');
    char *more;

    if (value == NULL) {
        standin.leaks = standin.leaks || strcmp(setting, "leaks") == 0;
        standin.unified = standin.unified || strcmp(setting, "unified") == 0;
        standin.no_events = standin.no_events || strcmp(setting, "no-events") == 0;
        return;
    }
    *value++ = '\0';
    if (strcmp(setting, "devices") == 0) {
        *devices = atoi(value);
    } else if (strcmp(setting, "memory") == 0) {
        standin.memory_bytes = strtoull(value, NULL, 10) << 20;
    } else if (strcmp(setting, "delay") == 0) {
        standin.delay_us = (unsigned)atoi(value);
    } else if (strcmp(setting, "break") == 0) {
        standin.break_at = strtoull(value, NULL, 10);
    } else if (strcmp(setting, "fail") == 0 && (more = strchr(value, ':')) != NULL) {
        *more = '\0';
        (void)snprintf(standin.fail_call, sizeof(standin.fail_call), "%.60s", value);
        standin.fail_at = strtoull(more + 1, NULL, 10);
    }
}

static void
read_settings(int *devices)
{
    const char *given = getenv("TUTTI_STANDIN_CUDA");
    char text[512];
    char *rest = text;
    char *setting;

    (void)snprintf(text, sizeof(text), "%.500s", given == NULL ? "" : given);
    while ((setting = strsep(&rest, ",")) != NULL) {
        read_setting(setting, devices);
    }
}

/* As the real one: the list ends at the first number that is none of a device. */
static void
read_visible(int devices)
{
    const char *given = getenv("CUDA_VISIBLE_DEVICES");
    char text[128];
    char *rest = text;
    char *one;
    char *end;

    if (given == NULL) {
        for (; standin.visible_count < devices; standin.visible_count++) {
            standin.visible[standin.visible_count] = standin.visible_count;
        }
        return;
    }
    (void)snprintf(text, sizeof(text), "%.120s", given);
    while ((one = strsep(&rest, ",")) != NULL && standin.visible_count < STANDIN_DEVICES_MAX) {
        const long number = strtol(one, &end, 10);

        if (end == one || number < 0 || number >= devices) {
            return;
        }
        standin.visible[standin.visible_count++] = (int)number;
    }
}

static void
open_device(standin_device *device)
{
    const uint64_t size = standin.memory_bytes;

    device->size = size;
    device->fd = memfd_create("cuda-standin", MFD_CLOEXEC);
    if (device->fd < 0 || ftruncate(device->fd, (off_t)size) != 0) {
        abort();
    }
    device->base = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    device->bytes =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, device->fd, 0);
    if (device->base == MAP_FAILED || device->bytes == MAP_FAILED) {
        abort();
    }
}

static void
start(void)
{
    int devices = 2;
    int i;

    standin.memory_bytes = (uint64_t)1024 << 20;
    read_settings(&devices);
    devices = devices > STANDIN_DEVICES_MAX ? STANDIN_DEVICES_MAX : devices;
    read_visible(devices);
    if (devices == 0) {
        standin.visible_count = -1;
    }
    for (i = 0; i < devices; i++) {
        open_device(&standin.devices[i]);
    }
}

void
standin_start(void)
{
    (void)pthread_once(&started, start);
}

int64_t
tutti_standin_cuda_left(void)
{
    int64_t left;

    standin_lock();
    left = standin.allocations + standin.pinned + standin.streams + standin.events + standin.pools +
           standin.imports;
    standin_unlock();
    return left;
}

void
tutti_standin_cuda_fail(const char *call, uint64_t at)
{
    standin_start();
    standin_lock();
    (void)snprintf(standin.fail_call, sizeof(standin.fail_call), "%.60s", call == NULL ? "" : call);
    standin.fail_at = at;
    standin.fail_count = 0;
    standin_unlock();
}

void
tutti_standin_cuda_break(uint64_t at)
{
    standin_start();
    standin_lock();
    standin.broken = false;
    standin.break_at = at == 0 ? 0 : standin.work_count + at;
    standin_unlock();
}

__attribute__((destructor)) static void
count_leaks(void)
{
    const int64_t left = tutti_standin_cuda_left();

    if (!standin.leaks || left == 0) {
        return;
    }
    (void)fprintf(stderr,
                  "cuda stand-in: not given back: %lld allocations, %lld pinned, %lld streams, "
                  "%lld events, %lld pools, %lld imports\n",
                  (long long)standin.allocations, (long long)standin.pinned,
                  (long long)standin.streams, (long long)standin.events, (long long)standin.pools,
                  (long long)standin.imports);
    _exit(70);
}

/* ------------------------------------------------------------------------------ errors */

cudaError_t
standin_begin(const char *call)
{
    bool fails = false;

    standin_start();
    standin_lock();
    if (standin.fail_at != 0 && strcmp(call, standin.fail_call) == 0) {
        fails = ++standin.fail_count == standin.fail_at;
    }
    standin_unlock();
    if (fails) {
        last_error = strstr(call, "lloc") != NULL ? cudaErrorMemoryAllocation : cudaErrorUnknown;
        return last_error;
    }
    if (standin.visible_count < 0) {
        return cudaErrorInsufficientDriver;
    }
    if (standin.visible_count == 0) {
        return cudaErrorNoDevice;
    }
    return standin.broken ? cudaErrorIllegalAddress : cudaSuccess;
}

static const struct {
    cudaError_t error;
    const char *name;
    const char *text;
} errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorDeviceUninitialized, "cudaErrorDeviceUninitialized", "invalid device context"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

STANDIN_API const char *
cudaGetErrorName(cudaError_t error)
{
    size_t i;

    for (i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        if (errors[i].error == error) {
            return errors[i].name;
        }
    }
    return "unrecognized error code";
}

STANDIN_API const char *
cudaGetErrorString(cudaError_t error)
{
    size_t i;

    for (i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        if (errors[i].error == error) {
            return errors[i].text;
        }
    }
    return "unrecognized error code";
}

cudaError_t
standin_failed(cudaError_t error)
{
    last_error = error;
    return error;
}

STANDIN_API cudaError_t
cudaGetLastError(void)
{
    const cudaError_t error = last_error;

    last_error = cudaSuccess;
    return standin.broken ? cudaErrorIllegalAddress : error;
}

/* ------------------------------------------------------------------------------ devices */

STANDIN_API cudaError_t
cudaGetDeviceCount(int *count)
{
    STANDIN_BEGIN();
    *count = standin.visible_count;
    return cudaSuccess;
}

STANDIN_API cudaError_t
cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
    STANDIN_BEGIN();
    if (device < 0 || device >= standin.visible_count) {
        return cudaErrorInvalidDevice;
    }
    *prop =
        (struct cudaDeviceProp){.totalGlobalMem = standin.memory_bytes, .memoryPoolsSupported = 1};
    (void)snprintf(prop->name, sizeof(prop->name), "CUDA stand-in %d", standin.visible[device]);
    memcpy(prop->uuid.bytes, "tutti cuda sim ", 15);
    prop->uuid.bytes[15] = (char)standin.visible[device];
    return cudaSuccess;
}

STANDIN_API cudaError_t
cudaSetDevice(int device)
{
    STANDIN_BEGIN();
    if (device < 0 || device >= standin.visible_count) {
        return cudaErrorInvalidDevice;
    }
    current = device;
    return cudaSuccess;
}
