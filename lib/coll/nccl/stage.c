/*
 * Sends and receives of device tensors: by the transport, which knows tags and receives from
 * anybody, as NCCL does not. The device copies to or from pinned host memory. Engine's thread.
 *
 * The copies have a stream of their own: in the ops' stream they would wait behind collectives that
 * wait for other ranks, which may wait for this very message. Pinned memory is slow to get, so up
 * to SPARE_BYTES_MAX of it are kept. More than that goes back only while the device has no op:
 * cudaFreeHost waits for all that the device runs, and the engine would stand with it. Sizes are
 * powers of two, so that what is kept fits the next message.
 */
#include <stdlib.h>

#include "base/error/fail.h"
#include "coll/nccl/fail.h"
#include "coll/nccl/nccl_private.h"

#define SPARE_BYTES_MAX (64u << 20)
#define SIZE_MIN 4096u

/* In front of the bytes, in memory of its own: op->device_stage points to `data`. */
typedef struct stage {
    tutti_list_node link; /* moving, or spare */
    tutti_coll_op *op;
    cudaEvent_t event;
    size_t size;
    void *data;
} stage;

/* Not one more than four times as large as needed: it would be gone for a large message. */
static stage *
take_spare(nccl_backend *backend, size_t bytes)
{
    tutti_list_node *link;

    for (link = backend->spare.next; link != &backend->spare; link = link->next) {
        stage *self = tutti_container_of(link, stage, link);

        if (self->size >= bytes && self->size / 4 <= bytes) {
            tutti_list_remove(link);
            backend->spare_bytes -= self->size;
            return self;
        }
    }
    return NULL;
}

static void
free_stage(stage *self)
{
    if (self->event != NULL) {
        (void)cudaEventDestroy(self->event);
    }
    if (self->data != NULL) {
        (void)cudaFreeHost(self->data);
    }
    free(self);
}

static size_t
stage_size(size_t bytes)
{
    size_t size = SIZE_MIN;

    while (size < bytes) {
        size *= 2;
    }
    return size;
}

static tutti_code
new_stage(size_t bytes, stage **ret, tutti_error *err)
{
    stage *self = calloc(1, sizeof(*self));
    cudaError_t said;

    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a stage");
    }
    tutti_list_init(&self->link);
    self->size = stage_size(bytes);
    said = cudaHostAlloc(&self->data, self->size, cudaHostAllocDefault);
    if (said == cudaSuccess) {
        said = cudaEventCreateWithFlags(&self->event, cudaEventDisableTiming);
    }
    if (said != cudaSuccess) {
        free_stage(self);
        return tutti_nccl_fail_cuda(err, "cudaHostAlloc", said);
    }
    *ret = self;
    return TUTTI_OK;
}

static nccl_backend *
backend_of(const tutti_coll_op *op)
{
    nccl_backend *self = tutti_container_of(tutti_coll_device_of(op), nccl_backend, door);

    (void)cudaSetDevice(self->device);
    return self;
}

/* The one that an op has: by where its bytes are. */
static stage *
stage_of(const tutti_coll_op *op)
{
    return op->device_stage == NULL ? NULL : op->backend_stage;
}

tutti_code
tutti_nccl_stage(tutti_coll_op *op, size_t bytes, tutti_error *err)
{
    stage *self = take_spare(backend_of(op), bytes);

    TUTTI_TRY(self == NULL ? new_stage(bytes, &self, err) : TUTTI_OK);

    self->op = op;
    op->backend_stage = self;
    op->device_stage = self->data;
    return TUTTI_OK;
}

static tutti_code
copy_stage(tutti_coll_op *op, void *to, const void *from, size_t bytes, tutti_error *err)
{
    nccl_backend *backend = backend_of(op);
    const tutti_coll_nccl_options *options = &backend->options;
    stage *self = stage_of(op);
    cudaError_t said;

    TUTTI_TRY(options->follow == NULL ? TUTTI_OK
                                      : options->follow(options->space, backend->copies, err));
    said = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, backend->copies);
    if (said == cudaSuccess) {
        said = cudaEventRecord(self->event, backend->copies);
    }
    if (said != cudaSuccess) {
        return tutti_nccl_fail_cuda(err, "cudaMemcpyAsync", said);
    }
    tutti_list_add(&backend->moving, &self->link);
    tutti_coll_device_submit(op);
    return TUTTI_OK;
}

tutti_code
tutti_nccl_fetch(tutti_coll_op *op, size_t bytes, tutti_error *err)
{
    return copy_stage(op, op->device_stage, op->input, bytes, err);
}

tutti_code
tutti_nccl_store(tutti_coll_op *op, size_t bytes, tutti_error *err)
{
    return copy_stage(op, op->output, op->device_stage, bytes, err);
}

static void
free_spare(nccl_backend *backend)
{
    while (backend->spare_bytes > SPARE_BYTES_MAX && backend->entry_count == 0) {
        stage *oldest = tutti_container_of(tutti_list_pop(&backend->spare), stage, link);

        backend->spare_bytes -= oldest->size;
        free_stage(oldest);
    }
}

void
tutti_nccl_unstage(tutti_coll_op *op)
{
    nccl_backend *backend = backend_of(op);
    stage *self = stage_of(op);

    op->device_stage = NULL;
    backend->spare_bytes += self->size;
    tutti_list_add(&backend->spare, &self->link);
    free_spare(backend);
}

/* The oldest copy: is it through? If the copy has failed, the op fails first; it is not released by
 * that, as its submit is still counted, and completing it then releases it. */
unsigned
tutti_nccl_stages_poll(nccl_backend *backend)
{
    stage *self;
    cudaError_t said;
    tutti_error err;

    free_spare(backend);
    if (tutti_list_empty(&backend->moving)) {
        return 0;
    }
    self = tutti_container_of(backend->moving.next, stage, link);
    said = cudaEventQuery(self->event);
    if (said == cudaErrorNotReady) {
        return 0;
    }
    tutti_list_remove(&self->link);
    if (said != cudaSuccess) {
        (void)tutti_nccl_fail_cuda(&err, "cudaEventQuery", said);
        tutti_coll_device_fail(self->op, &err);
    }
    tutti_coll_device_complete(self->op);
    return 1;
}

void
tutti_nccl_stages_close(nccl_backend *backend)
{
    tutti_list_node *link;

    while ((link = tutti_list_pop(&backend->spare)) != NULL) {
        free_stage(tutti_container_of(link, stage, link));
    }
}
