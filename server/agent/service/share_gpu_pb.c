/*
 * TensorsService.ShareGpu: a tensor on a GPU, opened by other processes. Bulk loop.
 *
 * The stream is the share. Until the handle is sent, `access` holds an exclusive lock, under which
 * the tensor moves to memory of its own. From then on `tensor`, a reference without a lock, keeps
 * the memory, and other calls may use the tensor. The stream's end drops it, so a process that dies
 * gives back what it had.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "server/agent/service/types_pb.h"
#include "server/agent/state/state.h"
#include "server/agent/tensor/table.h"
#include "server/agent/transfer/access.h"
#include "server/agent/transfer/gpu.h"
#include "tensor/space.h"
#include "tutti/v1/tensors_service.pb-c.h"

typedef struct gpu_share {
    agent_access *access; /* until the handle is sent: then it gives its lock set back */
    tutti_tensor *tensor; /* [ref] from then on */
} gpu_share;

static const char *
uuid_of(const tutti_agent *agent, const tutti_space *space)
{
    size_t i;

    for (i = 0; i < agent->devices.count; i++) {
        if (agent->devices.list[i].space == space) {
            return agent->devices.list[i].cuda.uuid;
        }
    }
    return "";
}

static void
send_gpu_share(agent_access *access, const tutti_tensor *tensor, unsigned char *handle)
{
    Tutti__V1__ShareGpuResponse response = TUTTI__V1__SHARE_GPU_RESPONSE__INIT;
    wire_use ref;

    agent_write_use(access, 0, &tensor->spec, &ref);
    response.tensor = &ref.message;
    response.ipc_handle = (ProtobufCBinaryData){TUTTI_CUDA_IPC_SIZE, handle};
    response.gpu_uuid = (char *)(uintptr_t)uuid_of(access->agent, tensor->space);
    response.byte_count = tensor->bytes;
    response.host_id = access->agent->host_id;
    tutti_rpc_call_write(access->call, &response.base, NULL);
}

/*
 * The tensor has memory of its own, or the device failed. If the stream has ended meanwhile, on_end
 * has given up the access, and only the chunk is left to be freed.
 */
static void
on_owned(agent_gpu_chunk *piece, const tutti_error *err)
{
    agent_access *access = piece->access;
    gpu_share *self;

    if (agent_access_is_open(access) && err != NULL) {
        agent_stream_finish(access, err);
    } else if (agent_access_is_open(access)) {
        self = tutti_rpc_call_user(access->call);
        self->tensor = agent_access_last(access);
        tutti_tensor_ref(self->tensor);
        send_gpu_share(access, self->tensor, piece->heap);
        self->access = NULL;
        agent_access_drop(access);
    }
    agent_gpu_chunk_free(piece);
}

static tutti_code
check_gpu_share(const tutti_tensor *tensor, tutti_error *err)
{
    if (tutti_tensor_is_host(tensor)) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "CANNOT_SHARE",
                              "the tensor is in host memory, which no handle of CUDA names");
    }
    if (tensor->bytes == 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "CANNOT_SHARE",
                              "the tensor has 0 bytes: there is nothing to share");
    }
    return TUTTI_OK;
}

static void
start_gpu_share(agent_access *access)
{
    tutti_tensor *tensor = NULL;
    agent_gpu_chunk *piece = NULL;
    tutti_error err;
    tutti_code code = agent_access_tensor(access, 0, &tensor, &err);

    if (code == TUTTI_OK) {
        code = check_gpu_share(tensor, &err);
    }
    if (code == TUTTI_OK) {
        piece = agent_gpu_chunk_new(access, 0, 0);
        if (piece != NULL) {
            piece->heap = malloc(TUTTI_CUDA_IPC_SIZE);
        }
        if (piece == NULL || piece->heap == NULL) {
            code = TUTTI_FAIL_MEMORY(&err, "no memory for a share");
        }
    }
    if (code == TUTTI_OK) {
        agent_gpu_chunk_own(piece, tensor, on_owned);
        return;
    }
    if (piece != NULL) {
        agent_gpu_chunk_free(piece);
    }
    agent_stream_finish(access, &err);
}

static void
on_open(tutti_rpc_call *call, void *arg)
{
    const Tutti__V1__ShareGpuRequest *request = tutti_rpc_call_request(call);
    gpu_share *self = calloc(1, sizeof(*self));
    tutti_error err;

    if (self == NULL) {
        (void)TUTTI_FAIL_MEMORY(&err, "no memory for a share");
        tutti_rpc_call_finish(call, &err);
        return;
    }
    tutti_rpc_call_set_user(call, self);
    self->access = agent_access_new(arg, call, start_gpu_share);
    if (self->access == NULL) {
        return;
    }
    if (tutti_table_lock_by_name(self->access->agent->table, &self->access->lock_set,
                                 request->handle, true, &err) != TUTTI_OK) {
        agent_stream_finish(self->access, &err);
        return;
    }
    agent_access_go(self->access);
}

/*
 * An access that was answered is about to end anyway. Without an access the share stands, and its
 * end is this call's end.
 */
static void
on_cancel(tutti_rpc_call *call, void *arg)
{
    gpu_share *self = tutti_rpc_call_user(call);
    const tutti_agent *agent = arg;
    tutti_error err;

    if (self == NULL || (self->access != NULL && !agent_access_is_open(self->access))) {
        return;
    }
    if (self->access != NULL) {
        agent_access_stop_waiting(self->access, &err);
    } else {
        (void)TUTTI_FAIL_FOR(&err, TUTTI_UNAVAILABLE, "STOPPING",
                             "rank %" PRIu32 " is stopping, or the caller went away", agent->rank);
    }
    tutti_rpc_call_finish(call, &err);
}

static void
on_end(tutti_rpc_call *call, void *arg)
{
    gpu_share *self = tutti_rpc_call_user(call);

    (void)arg;
    if (self == NULL) {
        return;
    }
    if (self->access != NULL) {
        agent_access_end_call(self->access);
    }
    tutti_tensor_unref(self->tensor);
    free(self);
}

const tutti_rpc_stream_ops agent_share_gpu_ops = {
    .on_open = on_open,
    .on_cancel = on_cancel,
    .on_end = on_end,
};
