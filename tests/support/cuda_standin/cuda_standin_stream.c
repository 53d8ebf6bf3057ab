/* Streams: a thread each, that does its work in order, some time. */
#include "cuda_standin.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct CUstream_st {
    struct CUstream_st *next; /* of standin.all */
    pthread_t thread;
    pthread_cond_t filled;
    standin_work *first;
    standin_work **last;
    bool working;
    bool stopping;
    bool lost; /* destroyed while it waits for another process: nothing in it happens any more */
    int device;
    uint64_t put_count;
    uint64_t done_count;
    uint64_t awaited; /* by who waits for the device: a done_count */
};

int
standin_stream_device(cudaStream_t stream)
{
    return stream->device;
}

cudaError_t
standin_put(cudaStream_t stream, const standin_work *work)
{
    standin_work *copy;

    if (stream == NULL) {
        return cudaErrorInvalidResourceHandle; /* Tutti has no use for the default stream */
    }
    while ((standin.waiting > 0 || stream->put_count - stream->done_count >= STANDIN_QUEUE_MAX) &&
           !standin.broken) {
        (void)pthread_cond_wait(&standin.moved, &standin.lock);
    }
    copy = malloc(sizeof(*copy));
    *copy = *work;
    copy->next = NULL;
    if (copy->event != NULL) {
        copy->event->refs++;
    }
    *stream->last = copy;
    stream->last = &copy->next;
    stream->put_count++;
    (void)pthread_cond_signal(&stream->filled);
    return cudaSuccess;
}

/* With the lock. */
static bool
is_awaited(int device)
{
    cudaStream_t stream;

    for (stream = standin.all; stream != NULL; stream = stream->next) {
        if (stream->device == device && stream->done_count < stream->awaited) {
            return true;
        }
    }
    return false;
}

void
standin_wait_for_device(void)
{
    const int device = standin_current();
    cudaStream_t stream;

    standin_lock();
    for (stream = standin.all; stream != NULL; stream = stream->next) {
        stream->awaited = stream->put_count;
    }
    standin.waiting++;
    while (is_awaited(device) && !standin.broken) {
        (void)pthread_cond_wait(&standin.moved, &standin.lock);
    }
    standin.waiting--;
    (void)pthread_cond_broadcast(&standin.moved);
    standin_unlock();
}

/* ------------------------------------------------------------------------------ working */

static void
give_back(const standin_work *work)
{
    standin_device *device = NULL;
    standin_block *block = NULL;

    standin_lock();
    if (!standin_take_out(work->address, &block, &device)) {
        abort(); /* given back twice */
    }
    memset(device->bytes + block->offset, 0xdb, block->size);
    standin_unlock();
    free(block);
}

/* Without the lock. */
static void
work_on(const standin_work *work)
{
    if (standin.delay_us > 0) {
        (void)usleep(standin.delay_us);
    }
    switch (work->kind) {
    case STANDIN_MALLOC:
        memset(work->to, 0xcd, work->size);
        break;
    case STANDIN_FREE:
        give_back(work);
        break;
    case STANDIN_COPY:
        memmove(work->to, work->from, work->size);
        break;
    case STANDIN_SET:
        memset(work->to, work->value, work->size);
        break;
    case STANDIN_CALL:
        work->call(work->arg);
        break;
    case STANDIN_RECORD:
    case STANDIN_WAIT:
        break;
    }
}

/* With the lock: everything before it is done; is it what breaks the device? A stream that is
 * destroyed waits for no other process: that one may have died, and here a thread has to end. */
static void
begin_work(cudaStream_t stream, const standin_work *work)
{
    while (work->kind == STANDIN_WAIT && !stream->lost && !standin.broken &&
           !standin_event_is_at(work->event, work->number)) {
        stream->lost = stream->stopping && work->event->shared;
        standin_event_sleep(work->event);
    }
    if (++standin.work_count == standin.break_at) {
        standin.broken = true;
    }
}

static void
end_work(cudaStream_t stream, standin_work *work)
{
    if (work->kind == STANDIN_RECORD) {
        standin_event_reach(work->event, work->number);
    }
    standin_event_drop(work->event);
    free(work);
    stream->done_count++;
    stream->working = false;
    (void)pthread_cond_broadcast(&standin.moved);
}

static void *
run(void *arg)
{
    cudaStream_t stream = arg;
    standin_work *work;

    standin_lock();
    for (;;) {
        while (stream->first == NULL && !stream->stopping) {
            (void)pthread_cond_wait(&stream->filled, &standin.lock);
        }
        work = stream->first;
        if (work == NULL) {
            break;
        }
        stream->working = true;
        stream->first = work->next;
        stream->last = stream->first == NULL ? &stream->first : stream->last;
        begin_work(stream, work);
        /* Of a broken device nothing works, but the books go on. */
        if ((!standin.broken && !stream->lost) || work->kind == STANDIN_FREE) {
            standin_unlock();
            work_on(work);
            standin_lock();
        }
        end_work(stream, work);
    }
    standin_unlock();
    return NULL;
}

/* ------------------------------------------------------------------------------ streams */

STANDIN_API cudaError_t
cudaStreamCreateWithFlags(cudaStream_t *ret, unsigned int flags)
{
    cudaStream_t stream;

    STANDIN_BEGIN();
    (void)flags;
    stream = calloc(1, sizeof(*stream));
    stream->last = &stream->first;
    stream->device = standin_current();
    (void)pthread_cond_init(&stream->filled, NULL);
    if (pthread_create(&stream->thread, NULL, run, stream) != 0) {
        abort();
    }
    standin_lock();
    standin.streams++;
    stream->next = standin.all;
    standin.all = stream;
    standin_unlock();
    *ret = stream;
    return cudaSuccess;
}

/* As the real one: what is in it still happens. */
STANDIN_API cudaError_t
cudaStreamDestroy(cudaStream_t stream)
{
    cudaStream_t *at = &standin.all;

    standin_lock();
    stream->stopping = true;
    standin.streams--;
    (void)pthread_cond_signal(&stream->filled);
    standin_unlock();
    (void)pthread_join(stream->thread, NULL);
    standin_lock();
    while (*at != stream) {
        at = &(*at)->next;
    }
    *at = stream->next;
    (void)pthread_cond_broadcast(&standin.moved);
    standin_unlock();
    (void)pthread_cond_destroy(&stream->filled);
    free(stream);
    return cudaSuccess;
}

STANDIN_API cudaError_t
cudaStreamSynchronize(cudaStream_t stream)
{
    STANDIN_BEGIN();
    standin_lock();
    while (stream->first != NULL || stream->working) {
        (void)pthread_cond_wait(&standin.moved, &standin.lock);
    }
    standin_unlock();
    return standin.broken ? cudaErrorIllegalAddress : cudaSuccess;
}

STANDIN_API cudaError_t
cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *arg)
{
    const standin_work work = {.kind = STANDIN_CALL, .call = fn, .arg = arg};
    cudaError_t error;

    STANDIN_BEGIN();
    standin_lock();
    error = standin_put(stream, &work);
    standin_unlock();
    return error;
}

STANDIN_API cudaError_t
cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind,
                cudaStream_t stream)
{
    standin_work work = {.kind = STANDIN_COPY, .size = size};
    cudaError_t error;

    STANDIN_BEGIN();
    if (kind != cudaMemcpyDefault) {
        return cudaErrorInvalidValue; /* not used */
    }
    work.to = tutti_standin_cuda_bytes(to, size);
    work.from = tutti_standin_cuda_bytes(from, size);
    if (work.to == NULL || work.from == NULL) {
        return cudaErrorInvalidValue;
    }
    standin_lock();
    error = standin_put(stream, &work);
    standin_unlock();
    return error;
}

STANDIN_API cudaError_t
cudaMemsetAsync(void *ptr, int value, size_t size, cudaStream_t stream)
{
    standin_work work = {.kind = STANDIN_SET, .value = value, .size = size};
    cudaError_t error;

    STANDIN_BEGIN();
    work.to = tutti_standin_cuda_bytes(ptr, size);
    if (work.to == NULL) {
        return cudaErrorInvalidValue;
    }
    standin_lock();
    error = standin_put(stream, &work);
    standin_unlock();
    return error;
}
