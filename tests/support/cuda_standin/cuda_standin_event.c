/* Events, and those of other processes. */
#include "cuda_standin.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PLACES 4096 /* interprocess events of a process */

/* Of a cudaIpcEventHandle_t. */
typedef struct words {
    char magic[8];
    int32_t pid;
    int32_t fd;
    int32_t device; /* physical */
    uint32_t place;
    uint32_t serial;
} words;

/* Where this process has its interprocess events. With the lock. */
static standin_marks *places;
static int places_fd;
static uint32_t last_serial;

static bool
open_places(void)
{
    const size_t size = PLACES * sizeof(*places);
    void *memory;

    if (places != NULL) {
        return true;
    }
    places_fd = memfd_create("cuda-standin-events", MFD_CLOEXEC);
    if (places_fd < 0 || ftruncate(places_fd, (off_t)size) != 0) {
        return false;
    }
    memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, places_fd, 0);
    places = memory == MAP_FAILED ? NULL : memory;
    return places != NULL;
}

/* With the lock. */
static bool
take_place(cudaEvent_t event)
{
    size_t i;

    for (i = 0; open_places() && i < PLACES; i++) {
        if (atomic_load(&places[i].serial) == 0) {
            event->marks = &places[i];
            event->serial = ++last_serial;
            atomic_store(&places[i].recorded, 0);
            atomic_store(&places[i].reached, 0);
            atomic_store(&places[i].serial, event->serial);
            return true;
        }
    }
    return false;
}

void
standin_event_drop(cudaEvent_t event)
{
    if (event == NULL || --event->refs > 0) {
        return;
    }
    if (event->imported) {
        (void)munmap(event->mapped, PLACES * sizeof(*places));
    }
    free(event);
}

bool
standin_event_is_at(cudaEvent_t event, uint32_t number)
{
    return atomic_load(&event->marks->reached) >= number;
}

void
standin_event_reach(cudaEvent_t event, uint32_t number)
{
    uint32_t before = atomic_load(&event->marks->reached);

    while (before < number &&
           !atomic_compare_exchange_weak(&event->marks->reached, &before, number)) {
    }
    if (event->shared) {
        (void)syscall(SYS_futex, &event->marks->reached, FUTEX_WAKE, 1000, NULL, NULL, 0);
    }
}

/* Other processes wake by the futex; that a device breaks, or a stream ends, is seen in a while. */
void
standin_event_sleep(cudaEvent_t event)
{
    const struct timespec while_ns = {.tv_nsec = 2000000};
    const uint32_t seen = atomic_load(&event->marks->reached);

    if (!event->shared) {
        (void)pthread_cond_wait(&standin.moved, &standin.lock);
        return;
    }
    standin_unlock();
    (void)syscall(SYS_futex, &event->marks->reached, FUTEX_WAIT, seen, &while_ns, NULL, 0);
    standin_lock();
}

/* CUDA: undefined. */
static void
check_exists(cudaEvent_t event)
{
    if (event->imported && atomic_load(&event->marks->serial) != event->serial) {
        (void)fprintf(stderr, "cuda stand-in: an event is used that its process has destroyed\n");
        abort();
    }
}

/* ------------------------------------------------------------------------------ life */

STANDIN_API cudaError_t
cudaEventCreateWithFlags(cudaEvent_t *ret, unsigned int flags)
{
    const bool shared = (flags & cudaEventInterprocess) != 0;
    cudaEvent_t event;
    bool placed = true;

    STANDIN_BEGIN();
    if (shared && (flags & cudaEventDisableTiming) == 0) {
        return cudaErrorInvalidValue; /* CUDA: both, or none */
    }
    event = calloc(1, sizeof(*event));
    event->refs = 1;
    event->marks = &event->own;
    event->shared = shared;
    event->device = standin_current();
    standin_lock();
    placed = !shared || take_place(event);
    standin.events += placed ? 1 : 0;
    standin_unlock();
    if (!placed) {
        free(event);
        return cudaErrorMemoryAllocation;
    }
    *ret = event;
    return cudaSuccess;
}

/* As the real one: work that names it still happens. */
STANDIN_API cudaError_t
cudaEventDestroy(cudaEvent_t event)
{
    standin_lock();
    standin.events--;
    if (event->shared && !event->imported) {
        atomic_store(&event->marks->serial, 0);
    }
    standin_event_drop(event);
    standin_unlock();
    return cudaSuccess;
}

STANDIN_API cudaError_t
cudaIpcGetEventHandle(cudaIpcEventHandle_t *handle, cudaEvent_t event)
{
    words given = {.magic = "standev", .pid = (int32_t)getpid()};

    STANDIN_BEGIN();
    if (standin.no_events) {
        return cudaErrorNotSupported;
    }
    if (!event->shared || event->imported) {
        return cudaErrorInvalidResourceHandle;
    }
    given.fd = places_fd;
    given.device = event->device;
    given.place = (uint32_t)(event->marks - places);
    given.serial = event->serial;
    memset(handle, 0, sizeof(*handle));
    memcpy(handle, &given, sizeof(given));
    return cudaSuccess;
}

static standin_marks *
map_places(const words *given)
{
    char path[64];
    void *memory;
    int fd;

    (void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)given->pid, (int)given->fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return NULL;
    }
    memory = mmap(NULL, PLACES * sizeof(*places), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)close(fd);
    return memory == MAP_FAILED ? NULL : memory;
}

/* As the real one: not one of this process, and on its own device. */
STANDIN_API cudaError_t
cudaIpcOpenEventHandle(cudaEvent_t *ret, cudaIpcEventHandle_t handle)
{
    standin_marks *mapped;
    cudaEvent_t event;
    words given;

    STANDIN_BEGIN();
    memcpy(&given, &handle, sizeof(given));
    if (memcmp(given.magic, "standev", 8) != 0 || given.place >= PLACES || given.serial == 0 ||
        given.device != standin_current()) {
        return cudaErrorInvalidValue;
    }
    if (given.pid == (int32_t)getpid()) {
        return cudaErrorDeviceUninitialized;
    }
    mapped = map_places(&given);
    if (mapped == NULL || atomic_load(&mapped[given.place].serial) != given.serial) {
        return cudaErrorInvalidValue;
    }
    event = calloc(1, sizeof(*event));
    *event = (struct CUevent_st){.mapped = mapped,
                                 .marks = &mapped[given.place],
                                 .serial = given.serial,
                                 .refs = 1,
                                 .device = given.device,
                                 .shared = true,
                                 .imported = true};
    standin_lock();
    standin.events++;
    standin_unlock();
    *ret = event;
    return cudaSuccess;
}

/* ------------------------------------------------------------------------------ use */

/* As the real one: an event stands for its last record, and one without a record is complete. */
STANDIN_API cudaError_t
cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
    standin_work work = {.kind = STANDIN_WAIT, .event = event};
    cudaError_t error;

    STANDIN_BEGIN();
    (void)flags;
    check_exists(event);
    standin_lock();
    work.number = atomic_load(&event->marks->recorded);
    error = standin_put(stream, &work);
    standin_unlock();
    return error;
}

STANDIN_API cudaError_t
cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    standin_work work = {.kind = STANDIN_RECORD, .event = event};
    cudaError_t error;

    STANDIN_BEGIN();
    check_exists(event);
    if (stream != NULL && standin_stream_device(stream) != event->device) {
        return cudaErrorInvalidResourceHandle;
    }
    standin_lock();
    work.number = atomic_fetch_add(&event->marks->recorded, 1) + 1;
    error = standin_put(stream, &work);
    standin_unlock();
    return error;
}

STANDIN_API cudaError_t
cudaEventQuery(cudaEvent_t event)
{
    STANDIN_BEGIN();
    check_exists(event);
    return standin_event_is_at(event, atomic_load(&event->marks->recorded)) ? cudaSuccess
                                                                            : cudaErrorNotReady;
}

STANDIN_API cudaError_t
cudaEventSynchronize(cudaEvent_t event)
{
    uint32_t number;

    STANDIN_BEGIN();
    check_exists(event);
    standin_lock();
    number = atomic_load(&event->marks->recorded);
    while (!standin_event_is_at(event, number) && !standin.broken) {
        standin_event_sleep(event);
    }
    standin_unlock();
    return standin.broken ? cudaErrorIllegalAddress : cudaSuccess;
}
