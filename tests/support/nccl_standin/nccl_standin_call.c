/* Calls, collected by groups, that become work of a stream. */
#include "nccl_standin.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_standin.h"
#include "tutti/types.h"

#define LAZY_EVERY 4 /* so many groups: one goes into the stream later */
#define LAZY_US 2000

typedef struct group {
    ncclComm_t comm;
    cudaStream_t stream;
    standin_fate fate;
    bool connects; /* the first of its kind on its communicator */
    size_t count;
    standin_call calls[];
} group;

static _Thread_local int depth;
static _Thread_local group *open_group; /* of one communicator: Tutti has no others */
static _Thread_local ncclResult_t failure;

/* ------------------------------------------------------------------------------ running */

static void
wait_for_abort(ncclComm_t comm)
{
    while (!atomic_load(&comm->aborted)) {
        (void)usleep(1000);
    }
}

static void
run_group(void *arg)
{
    group *self = arg;
    ncclComm_t comm = self->comm;

    if (self->fate == STANDIN_FATE_ASYNC) {
        atomic_store(&comm->state, ncclRemoteError);
    }
    if (self->fate != STANDIN_FATE_NONE || !standin_run(comm, self->calls, self->count)) {
        wait_for_abort(comm);
    }
    atomic_fetch_sub(&comm->jobs, 1);
    standin_unref(comm);
    free(self);
}

static bool
put(group *self)
{
    if (cudaLaunchHostFunc(self->stream, run_group, self) == cudaSuccess) {
        return true;
    }
    atomic_fetch_sub(&self->comm->jobs, 1);
    standin_unref(self->comm);
    free(self);
    return false;
}

static void *
launch_later(void *arg)
{
    group *self = arg;
    ncclComm_t comm = self->comm;

    (void)usleep(LAZY_US);
    if (self->connects) {
        (void)cudaStreamSynchronize(self->stream);
    }
    if (!put(self)) {
        atomic_store(&comm->state, ncclUnhandledCudaError);
    } else {
        (void)atomic_compare_exchange_strong(&comm->state, &(int){ncclInProgress}, ncclSuccess);
    }
    atomic_fetch_sub(&comm->launches, 1);
    return NULL;
}

/* Collectives are connected at the first of them, pairs at the first send or receive. */
static bool
has_to_connect(group *self)
{
    const bool pair = self->calls[0].kind == STANDIN_SEND || self->calls[0].kind == STANDIN_RECV;

    return self->comm->size > 1 && !atomic_exchange(&self->comm->connected[pair], true);
}

static ncclResult_t
launch(group *self)
{
    static atomic_uint count;
    ncclComm_t comm = self->comm;
    pthread_t thread;

    self->fate = standin_next_group();
    atomic_fetch_add(&comm->refs, 1);
    atomic_fetch_add(&comm->jobs, 1);
    self->connects = has_to_connect(self);
    if (self->connects || atomic_fetch_add(&count, 1) % LAZY_EVERY == 1) {
        atomic_store(&comm->state, ncclInProgress);
        atomic_fetch_add(&comm->launches, 1);
        if (pthread_create(&thread, NULL, launch_later, self) != 0) {
            abort();
        }
        (void)pthread_detach(thread);
        return ncclInProgress;
    }
    return put(self) ? ncclSuccess : ncclUnhandledCudaError;
}

STANDIN_API ncclResult_t
ncclGroupStart(void)
{
    if (standin_fails(__func__)) {
        return ncclSystemError;
    }
    depth++;
    failure = ncclSuccess;
    return ncclSuccess;
}

STANDIN_API ncclResult_t
ncclGroupEnd(void)
{
    group *mine = open_group;

    if (--depth > 0 || mine == NULL) {
        return failure;
    }
    open_group = NULL;
    if (standin_fails(__func__)) {
        failure = ncclSystemError;
    }
    if (failure != ncclSuccess) {
        free(mine);
        return failure;
    }
    return launch(mine);
}

/* ------------------------------------------------------------------------------ calls */

static size_t
input_count(const standin_call *call, ncclComm_t comm)
{
    return call->kind == STANDIN_REDUCE_SCATTER ? call->count * (size_t)comm->size : call->count;
}

static size_t
output_count(const standin_call *call, ncclComm_t comm)
{
    return call->kind == STANDIN_ALL_GATHER ? call->count * (size_t)comm->size : call->count;
}

/* The bytes behind what only a root, or only others, have. */
static bool
find_bytes(standin_call *call, ncclComm_t comm)
{
    const size_t each = standin_type_bytes(call->type);
    const bool root = call->peer == comm->rank;
    const bool reads = call->kind != STANDIN_RECV && (call->kind != STANDIN_BROADCAST || root);
    const bool writes = call->kind != STANDIN_SEND && (call->kind != STANDIN_REDUCE || root);

    if (reads) {
        call->input = tutti_standin_cuda_bytes(call->input, input_count(call, comm) * each);
    }
    if (writes) {
        call->output = tutti_standin_cuda_bytes(call->output, output_count(call, comm) * each);
    }
    return (!reads || call->input != NULL) && (!writes || call->output != NULL);
}

static bool
is_bad(const standin_call *call, ncclComm_t comm)
{
    const bool pair = call->kind == STANDIN_SEND || call->kind == STANDIN_RECV;

    return atomic_load(&comm->state) != ncclSuccess || atomic_load(&comm->aborted) ||
           call->count == 0 || standin_type_bytes(call->type) == 0 || call->peer < 0 ||
           call->peer >= comm->size || (pair && call->peer == comm->rank) ||
           (!pair && open_group != NULL && open_group->comm != comm);
}

static ncclResult_t
add(ncclComm_t comm, cudaStream_t stream, const standin_call *given)
{
    standin_call call = *given;

    if (depth == 0 || is_bad(&call, comm) || !find_bytes(&call, comm)) {
        standin_say("a call that Tutti should not make: no group, a communicator that is not "
                    "ready, nothing to move, a bad rank or memory of no device");
        failure = ncclInvalidArgument;
        return failure;
    }
    if (open_group == NULL) {
        open_group = calloc(1, sizeof(group) + STANDIN_CALLS_MAX * sizeof(standin_call));
        open_group->comm = comm;
        open_group->stream = stream;
    }
    if (open_group->count == STANDIN_CALLS_MAX) {
        failure = ncclInternalError;
        return failure;
    }
    open_group->calls[open_group->count++] = call;
    return ncclSuccess;
}

/* Which of ours it is, and with what factor. */
static void
set_reduce(standin_call *call, ncclRedOp_t op, ncclComm_t comm)
{
    static const int ours[] = {[ncclSum] = TUTTI_REDUCE_SUM,
                               [ncclProd] = TUTTI_REDUCE_PROD,
                               [ncclMax] = TUTTI_REDUCE_MAX,
                               [ncclMin] = TUTTI_REDUCE_MIN,
                               [ncclAvg] = TUTTI_REDUCE_AVG};

    if ((int)op < (int)ncclNumOps) {
        call->reduce = ours[op];
    } else {
        call->reduce = TUTTI_REDUCE_PREMUL_SUM;
        call->factor = comm->factors[(int)op - (int)ncclNumOps];
    }
}

#define STANDIN_ADD(...)                                                                           \
    const standin_call call = {__VA_ARGS__};                                                       \
    return standin_fails(__func__) ? (failure = ncclSystemError) : add(comm, stream, &call)

STANDIN_API ncclResult_t
ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
              ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    standin_call call = {STANDIN_ALL_REDUCE, sendbuff, recvbuff, count, datatype, 0, 0, 0};

    set_reduce(&call, op, comm);
    return standin_fails(__func__) ? (failure = ncclSystemError) : add(comm, stream, &call);
}

STANDIN_API ncclResult_t
ncclReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
           ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
    standin_call call = {STANDIN_REDUCE, sendbuff, recvbuff, count, datatype, 0, 0, root};

    set_reduce(&call, op, comm);
    return standin_fails(__func__) ? (failure = ncclSystemError) : add(comm, stream, &call);
}

STANDIN_API ncclResult_t
ncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype,
                  ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    standin_call call = {STANDIN_REDUCE_SCATTER, sendbuff, recvbuff, recvcount, datatype, 0, 0, 0};

    set_reduce(&call, op, comm);
    return standin_fails(__func__) ? (failure = ncclSystemError) : add(comm, stream, &call);
}

STANDIN_API ncclResult_t
ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
              ncclComm_t comm, cudaStream_t stream)
{
    STANDIN_ADD(STANDIN_BROADCAST, sendbuff, recvbuff, count, datatype, 0, 0, root);
}

STANDIN_API ncclResult_t
ncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype,
              ncclComm_t comm, cudaStream_t stream)
{
    STANDIN_ADD(STANDIN_ALL_GATHER, sendbuff, recvbuff, sendcount, datatype, 0, 0, 0);
}

STANDIN_API ncclResult_t
ncclSend(const void *sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
         cudaStream_t stream)
{
    STANDIN_ADD(STANDIN_SEND, sendbuff, NULL, count, datatype, 0, 0, peer);
}

STANDIN_API ncclResult_t
ncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
         cudaStream_t stream)
{
    STANDIN_ADD(STANDIN_RECV, NULL, recvbuff, count, datatype, 0, 0, peer);
}

/* ------------------------------------------------------------------------------ factors */

static double
half_to_double(uint16_t bits)
{
    const int exponent = bits >> 10 & 0x1f;
    const double part = (bits & 0x3ff) + (exponent > 0 ? 1024 : 0);
    double value = part;
    int i;

    for (i = exponent > 0 ? exponent : 1; i < 25; i++) {
        value /= 2;
    }
    for (i = 25; i < exponent; i++) {
        value *= 2;
    }
    return (bits & 0x8000) != 0 ? -value : value;
}

static double
read_scalar(const void *scalar, ncclDataType_t type)
{
    uint32_t word = 0;
    uint16_t half;
    double value;
    float single;

    memcpy(&half, scalar, sizeof(half));
    if (type == ncclFloat16) {
        return half_to_double(half);
    }
    if (type == ncclFloat64) {
        memcpy(&value, scalar, sizeof(value));
        return value;
    }
    memcpy(&word, scalar, type == ncclBfloat16 ? 2 : 4);
    word = type == ncclBfloat16 ? word << 16 : word;
    memcpy(&single, &word, sizeof(single));
    return (double)single;
}

STANDIN_API ncclResult_t
ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t datatype,
                         ncclScalarResidence_t residence, ncclComm_t comm)
{
    int i = 0;

    while (i < STANDIN_FACTORS_MAX && comm->used[i]) {
        i++;
    }
    if (standin_fails(__func__) || i == STANDIN_FACTORS_MAX ||
        residence != ncclScalarHostImmediate) {
        return ncclSystemError;
    }
    comm->used[i] = true;
    comm->factors[i] = read_scalar(scalar, datatype);
    *op = (ncclRedOp_t)((int)ncclNumOps + i);
    return ncclSuccess;
}

STANDIN_API ncclResult_t
ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
    comm->used[(int)op - (int)ncclNumOps] = false;
    return ncclSuccess;
}
