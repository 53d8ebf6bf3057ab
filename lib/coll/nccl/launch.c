/*
 * Launching a plan: copies, a group, kernels, a group, copies; then an event. Engine's thread.
 *
 * All goes into one stream, so order is the device's. But NCCL, when it does not block, may put a
 * group into the stream later, by a thread of its own (ncclInProgress). What comes behind it in the
 * stream must not be put there before, so tutti_nccl_launch returns and is called again by poll
 * (`issuing`). No other op is launched meanwhile: the op keeps its place at the head of the line.
 */
#include "base/error/fail.h"
#include "coll/nccl/fail.h"
#include "coll/nccl/map.h"
#include "coll/nccl/nccl_private.h"

enum {
    STEP_FOLLOW,
    STEP_PACK,
    STEP_FIRST,
    STEP_KERNELS,
    STEP_SECOND,
    STEP_UNPACK,
    STEP_END
};

#define ENTRIES_OF_GROUP 8 /* of the stream: a kernel, and the events that NCCL puts around it */
#define ENTRIES_OF_OP 4    /* to follow, to wait, and two records */
#define PITCH_MAX 2147483647ULL /* of cudaMemcpy2DAsync, on all devices */

/* A stride, where the other side may be one run of bytes. */
static uint64_t
pitch_of(const tutti_strided *piece, const tutti_strided *rows)
{
    return piece->rows > 1 ? piece->stride : rows->row_bytes;
}

static cudaError_t
copy_row_by_row(const nccl_copy *copy, const tutti_strided *rows, cudaStream_t stream)
{
    cudaError_t said = cudaSuccess;
    uint64_t i;

    for (i = 0; i < rows->rows && said == cudaSuccess; i++) {
        said = cudaMemcpyAsync(copy->to.base + i * pitch_of(&copy->to, rows),
                               copy->from.base + i * pitch_of(&copy->from, rows), rows->row_bytes,
                               cudaMemcpyDefault, stream);
    }
    return said;
}

/* A piece of rows on one or both sides; where one side is a run of bytes, its pitch is the row
 * length. */
static cudaError_t
copy_one(const nccl_copy *copy, cudaStream_t stream)
{
    const tutti_strided *rows = copy->to.rows > 1 ? &copy->to : &copy->from;
    const uint64_t to_pitch = pitch_of(&copy->to, rows);
    const uint64_t from_pitch = pitch_of(&copy->from, rows);

    if (tutti_strided_is_whole(&copy->to) && tutti_strided_is_whole(&copy->from)) {
        return cudaMemcpyAsync(copy->to.base, copy->from.base, tutti_strided_bytes(rows),
                               cudaMemcpyDefault, stream);
    }
    if (to_pitch > PITCH_MAX || from_pitch > PITCH_MAX) {
        return copy_row_by_row(copy, rows, stream);
    }
    return cudaMemcpy2DAsync(copy->to.base, to_pitch, copy->from.base, from_pitch, rows->row_bytes,
                             rows->rows, cudaMemcpyDefault, stream);
}

/* The op goes on when the stream has come here: tutti_nccl_launch. */
static tutti_code
pause_here(nccl_op *self, tutti_error *err)
{
    cudaError_t said = self->event != NULL
                           ? cudaSuccess
                           : cudaEventCreateWithFlags(&self->event, cudaEventDisableTiming);

    if (said == cudaSuccess) {
        said = cudaEventRecord(self->event, self->backend->stream);
    }
    self->pausing = said == cudaSuccess;
    return self->pausing ? TUTTI_OK : tutti_nccl_fail_cuda(err, "cudaEventRecord", said);
}

/* A list of more than NCCL_COPIES_MAX begins when the stream has come to it, and goes into it in
 * parts: a full stream would make the engine wait, and nobody could abort what it waits for. */
static tutti_code
copy_part(nccl_op *self, const tutti_buf *list, tutti_error *err)
{
    const nccl_copy *copies = (const nccl_copy *)(const void *)list->data;
    const size_t count = list->size / sizeof(*copies);
    const size_t end =
        count - self->copied > NCCL_COPIES_MAX ? self->copied + NCCL_COPIES_MAX : count;
    cudaError_t said = cudaSuccess;

    while (self->copied < end && said == cudaSuccess) {
        said = copy_one(&copies[self->copied++], self->backend->stream);
    }
    if (said != cudaSuccess) {
        return tutti_nccl_fail_cuda(err, "cudaMemcpy2DAsync", said);
    }
    return end < count ? pause_here(self, err) : TUTTI_OK;
}

/* ------------------------------------------------------------------------------ calls */

static const char *
name_of(nccl_call_kind kind)
{
    static const char *const names[] = {[NCCL_CALL_ALL_REDUCE] = "ncclAllReduce",
                                        [NCCL_CALL_REDUCE] = "ncclReduce",
                                        [NCCL_CALL_BROADCAST] = "ncclBroadcast",
                                        [NCCL_CALL_ALL_GATHER] = "ncclAllGather",
                                        [NCCL_CALL_REDUCE_SCATTER] = "ncclReduceScatter",
                                        [NCCL_CALL_SEND] = "ncclSend",
                                        [NCCL_CALL_RECV] = "ncclRecv"};

    return names[kind];
}

static ncclResult_t
issue_launch(const nccl_op *self, const nccl_call *call, ncclRedOp_t reduce)
{
    const cudaStream_t stream = self->backend->stream;
    const ncclComm_t comm = self->comm->comm;
    const int peer = (int)call->peer;
    uint32_t each;
    const ncclDataType_t type = tutti_nccl_type(call->dtype, &each);
    const size_t count = call->count * each;

    switch (call->kind) {
    case NCCL_CALL_ALL_REDUCE:
        return ncclAllReduce(call->input, call->output, count, type, reduce, comm, stream);
    case NCCL_CALL_REDUCE:
        return ncclReduce(call->input, call->output, count, type, reduce, peer, comm, stream);
    case NCCL_CALL_BROADCAST:
        return ncclBroadcast(call->input, call->output, count, type, peer, comm, stream);
    case NCCL_CALL_ALL_GATHER:
        return ncclAllGather(call->input, call->output, count, type, comm, stream);
    case NCCL_CALL_REDUCE_SCATTER:
        return ncclReduceScatter(call->input, call->output, count, type, reduce, comm, stream);
    case NCCL_CALL_SEND:
        return ncclSend(call->input, count, type, peer, comm, stream);
    default:
        return ncclRecv(call->output, count, type, peer, comm, stream);
    }
}

/* A reduce op of its own for a factor: its number is kept in `made`, to be destroyed. */
static tutti_code
reduce_of(const nccl_op *self, const nccl_call *call, tutti_buf *made, ncclRedOp_t *ret_reduce,
          tutti_error *err)
{
    uint32_t each;
    const ncclDataType_t type = tutti_nccl_type(call->dtype, &each);
    unsigned char scalar[sizeof(double)];
    ncclResult_t said;

    *ret_reduce = tutti_nccl_op(call->reduce);
    if (call->reduce != TUTTI_REDUCE_PREMUL_SUM) {
        return TUTTI_OK;
    }
    tutti_nccl_scalar(type, call->factor, scalar);
    said = ncclRedOpCreatePreMulSum(ret_reduce, scalar, type, ncclScalarHostImmediate,
                                    self->comm->comm);
    if (said != ncclSuccess) {
        return tutti_nccl_fail(err, self->op, self->comm->comm, "ncclRedOpCreatePreMulSum", said);
    }
    return tutti_buf_add(made, ret_reduce, sizeof(*ret_reduce), err);
}

/* The group has been started, so an error in the middle must still reach ncclGroupEnd. */
static tutti_code
issue_all(nccl_op *self, const tutti_buf *list, tutti_buf *made, tutti_error *err)
{
    const nccl_call *calls = (const nccl_call *)(const void *)list->data;
    ncclResult_t said = ncclSuccess;
    ncclRedOp_t reduce = ncclSum;
    tutti_code code = TUTTI_OK;
    size_t i;

    for (i = 0; i < list->size / sizeof(*calls) && code == TUTTI_OK; i++) {
        code = reduce_of(self, &calls[i], made, &reduce, err);
        said = code == TUTTI_OK ? issue_launch(self, &calls[i], reduce) : ncclSuccess;
        if (said != ncclSuccess && said != ncclInProgress) {
            code = tutti_nccl_fail(err, self->op, self->comm->comm, name_of(calls[i].kind), said);
        }
    }
    return code;
}

/* Reduce ops of a factor are destroyed when the group has ended: NCCL has copied them into its work
 * by then. */
static tutti_code
run_group(nccl_op *self, const tutti_buf *list, tutti_error *err)
{
    const ncclComm_t comm = self->comm->comm;
    ncclResult_t said;
    tutti_buf made;
    tutti_code code;
    size_t i;

    if (list->size == 0) {
        return TUTTI_OK;
    }
    said = ncclGroupStart();
    if (said != ncclSuccess) {
        return tutti_nccl_fail(err, self->op, comm, "ncclGroupStart", said);
    }
    tutti_buf_init(&made, list->size);
    code = issue_all(self, list, &made, err);
    said = ncclGroupEnd();
    if (code == TUTTI_OK && said != ncclSuccess && said != ncclInProgress) {
        code = tutti_nccl_fail(err, self->op, comm, "ncclGroupEnd", said);
    }
    self->issuing = said == ncclInProgress;
    for (i = 0; i < made.size / sizeof(ncclRedOp_t); i++) {
        (void)ncclRedOpDestroy(((const ncclRedOp_t *)(const void *)made.data)[i], comm);
    }
    tutti_buf_fini(&made);
    return code;
}

/* ------------------------------------------------------------------------------ steps */

static tutti_code
run_kernels(const nccl_op *self, tutti_error *err)
{
    const nccl_kernel *kernels = (const nccl_kernel *)(const void *)self->plan.kernels.data;
    size_t i;

    for (i = 0; i < self->plan.kernels.size / sizeof(*kernels); i++) {
        TUTTI_TRY(tutti_nccl_kernel_run(&kernels[i], self->backend->stream, err));
    }
    return TUTTI_OK;
}

/* Tensor memory is taken in the order of another stream (lib/tensor/cuda); this stream has to come
 * behind that. */
static tutti_code
follow_launch(const nccl_backend *backend, tutti_error *err)
{
    const tutti_coll_nccl_options *options = &backend->options;

    return options->follow == NULL ? TUTTI_OK
                                   : options->follow(options->space, backend->stream, err);
}

/* The device waits, and not this thread. The record counts that is the last one now. */
static tutti_code
wait_for_after(const nccl_op *self, tutti_error *err)
{
    const tutti_coll_events *events = self->op->events;
    cudaError_t said;

    if (events == NULL || events->after == NULL) {
        return TUTTI_OK;
    }
    if (tutti_nccl_is_deserted(self)) {
        return tutti_nccl_fail_deserted(self, err);
    }
    said = cudaStreamWaitEvent(self->backend->stream, events->after, 0);
    return said == cudaSuccess ? TUTTI_OK : tutti_nccl_fail_cuda(err, "cudaStreamWaitEvent", said);
}

static tutti_code
begin_launch(const nccl_op *self, tutti_error *err)
{
    TUTTI_TRY(follow_launch(self->backend, err));

    return wait_for_after(self, err);
}

/* `done` comes last: what waits for it is behind the op, whether its kernels did their work or were
 * aborted. */
static tutti_code
mark_end(nccl_op *self, tutti_error *err)
{
    const tutti_coll_events *events = self->op->events;
    cudaError_t said = self->event != NULL
                           ? cudaSuccess
                           : cudaEventCreateWithFlags(&self->event, cudaEventDisableTiming);

    if (said == cudaSuccess) {
        said = cudaEventRecord(self->event, self->backend->stream);
    }
    if (said == cudaSuccess && events != NULL && events->done != NULL) {
        said = cudaEventRecord(events->done, self->backend->stream);
    }
    return said == cudaSuccess ? TUTTI_OK : tutti_nccl_fail_cuda(err, "cudaEventRecord", said);
}

/* A long list of copies waits for its turn in the stream before its first part, too: what is before
 * it may wait for other ranks. */
static tutti_code
begin_list(nccl_op *self, tutti_error *err)
{
    const bool is_long = self->plan.unpacks.size / sizeof(nccl_copy) > NCCL_COPIES_MAX;

    return self->step == STEP_UNPACK && is_long ? pause_here(self, err) : TUTTI_OK;
}

static tutti_code
run_step(nccl_op *self, tutti_error *err)
{
    switch (self->step) {
    case STEP_FOLLOW:
        return begin_launch(self, err);
    case STEP_PACK:
        return copy_part(self, &self->plan.packs, err);
    case STEP_FIRST:
        return run_group(self, &self->plan.first, err);
    case STEP_KERNELS:
        return run_kernels(self, err);
    case STEP_SECOND:
        return run_group(self, &self->plan.second, err);
    case STEP_UNPACK:
        return copy_part(self, &self->plan.unpacks, err);
    default:
        return mark_end(self, err);
    }
}

/* Has NCCL put the last group into the stream? A remote error counts as "not yet": the communicator
 * is ended, and its ops are told in a moment by another way, with better words. */
static tutti_code
see_issued(nccl_op *self, tutti_error *err)
{
    ncclResult_t state = ncclSuccess;
    const ncclResult_t said = ncclCommGetAsyncError(self->comm->comm, &state);
    const ncclResult_t result = said != ncclSuccess ? said : state;

    self->issuing = result == ncclInProgress || result == ncclRemoteError;
    if (result == ncclRemoteError) {
        tutti_nccl_comm_ask(self->comm); /* ends it; its ops are told in a moment */
    }
    if (result == ncclSuccess || self->issuing) {
        return TUTTI_OK;
    }
    return tutti_nccl_fail(err, self->op, self->comm->comm, "ncclGroupEnd", result);
}

/* Has the stream come to where the op waits for it? */
static tutti_code
see_pause(nccl_op *self, tutti_error *err)
{
    const cudaError_t said = cudaEventQuery(self->event);

    self->pausing = said == cudaErrorNotReady;
    return said == cudaSuccess || self->pausing ? TUTTI_OK
                                                : tutti_nccl_fail_cuda(err, "cudaEventQuery", said);
}

static tutti_code
see_whether_waiting(nccl_op *self, tutti_error *err)
{
    if (self->issuing) {
        TUTTI_TRY(see_issued(self, err));
    }
    return self->pausing ? see_pause(self, err) : TUTTI_OK;
}

static unsigned
links_of(const tutti_buf *list)
{
    const nccl_call *calls = (const nccl_call *)(const void *)list->data;
    unsigned links = 0;
    size_t i;

    for (i = 0; i < list->size / sizeof(*calls); i++) {
        links |= calls[i].kind == NCCL_CALL_SEND || calls[i].kind == NCCL_CALL_RECV
                     ? NCCL_LINK_PAIR
                     : NCCL_LINK_COLLECTIVE;
    }
    return links;
}

unsigned
tutti_nccl_launch_links(const nccl_op *self)
{
    return links_of(&self->plan.first) | links_of(&self->plan.second);
}

size_t
tutti_nccl_launch_entries(const nccl_op *self)
{
    const size_t packs = self->plan.packs.size / sizeof(nccl_copy);
    const size_t unpacks = self->plan.unpacks.size / sizeof(nccl_copy);
    const size_t groups =
        (self->plan.first.size > 0 ? 1u : 0u) + (self->plan.second.size > 0 ? 1u : 0u);

    return (packs < NCCL_COPIES_MAX ? packs : NCCL_COPIES_MAX) +
           (unpacks < NCCL_COPIES_MAX ? unpacks : NCCL_COPIES_MAX) + ENTRIES_OF_GROUP * groups +
           self->plan.kernels.size / sizeof(nccl_kernel) + ENTRIES_OF_OP;
}

tutti_code
tutti_nccl_launch(nccl_op *self, bool *ret_done, tutti_error *err)
{
    *ret_done = false;
    while (!*ret_done) {
        TUTTI_TRY(see_whether_waiting(self, err));
        if (self->issuing || self->pausing) {
            return TUTTI_OK;
        }
        TUTTI_TRY(run_step(self, err));
        *ret_done = self->step == STEP_END;
        if (!self->pausing) {
            self->step++;
            self->copied = 0;
            TUTTI_TRY(begin_list(self, err));
        }
    }
    return TUTTI_OK;
}
