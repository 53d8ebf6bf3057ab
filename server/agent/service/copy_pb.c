/*
 * TensorsService.Copy: a tensor's bytes to another tensor, within a kind of memory or between two.
 * Bulk loop.
 */
#include <string.h>

#include "base/error/fail.h"
#include "server/agent/service/methods_pb.h"
#include "server/agent/service/types_pb.h"
#include "server/agent/state/device.h"
#include "server/agent/state/state.h"
#include "server/agent/tensor/table.h"
#include "server/agent/tensor/table_private.h"
#include "server/agent/transfer/access.h"
#include "server/agent/transfer/gpu.h"
#include "tensor/space.h"
#include "tutti/v1/tensors_service.pb-c.h"

/* The last lock is the target; there is one lock only when a tensor is copied onto itself. */
static void
answer_copy(agent_access *access)
{
    Tutti__V1__CopyResponse response = TUTTI__V1__COPY_RESPONSE__INIT;
    const uint32_t last = access->lock_set.count - 1;
    const tutti_tensor *to =
        tutti_table_tensor(access->agent->table, &access->lock_set.locks[last]);
    wire_use ref;

    agent_write_use(access, last, &to->spec, &ref);
    response.tensor = &ref.message;
    agent_access_written(access, last);
    tutti_rpc_call_reply(access->call, &response.base, NULL);
    agent_access_drop(access);
}

static void
on_copied(agent_gpu_chunk *piece, const tutti_error *err)
{
    agent_access *access = piece->access;

    if (err != NULL) {
        agent_access_fail(access, err);
    } else {
        answer_copy(access);
    }
    agent_gpu_chunk_free(piece);
}

/* The chunk has no bytes of its own: it only keeps the access until the device's copy has ended. */
static void
copy_staged(agent_access *access, tutti_tensor *from, tutti_tensor *to)
{
    agent_gpu_chunk *piece = agent_gpu_chunk_new(access, 0, 0);
    tutti_error err;

    if (piece == NULL) {
        (void)TUTTI_FAIL(&err, TUTTI_RESOURCE_EXHAUSTED, "no memory for a copy");
        agent_access_fail(access, &err);
        return;
    }
    agent_gpu_chunk_copy(piece, from, to, on_copied);
}

/* A new tensor, where the call says, or where the original is. */
static tutti_code
make_copy(agent_access *access, const char *device, const tutti_tensor *from, tutti_tensor **ret,
          tutti_error *err)
{
    tutti_space *space = from->space;

    if (device[0] != '\0') {
        TUTTI_TRY(agent_devices_find(access->agent, device, &space, err));
    }
    TUTTI_TRY(tutti_tensor_new(space, &from->spec, false, ret, err));
    tutti_table_fill(access->agent->table, &access->lock_set.locks[access->lock_set.count - 1],
                     *ret);
    return TUTTI_OK;
}

static void
start_copy(agent_access *access)
{
    const Tutti__V1__CopyRequest *request = tutti_rpc_call_request(access->call);
    tutti_tensor *from = NULL;
    tutti_tensor *to = NULL;
    tutti_error err;
    tutti_code code = agent_access_tensor(access, 0, &from, &err);

    if (code == TUTTI_OK && request->into[0] != '\0') {
        code = agent_access_check(access, access->lock_set.count - 1, &from->spec, &to, &err);
    } else if (code == TUTTI_OK) {
        code = make_copy(access, request->device, from, &to, &err);
    }
    if (code != TUTTI_OK) {
        agent_access_fail(access, &err);
        return;
    }
    if (from == to || from->bytes == 0) {
        answer_copy(access);
    } else if (tutti_tensor_is_host(from) && tutti_tensor_is_host(to)) {
        memcpy(to->data, from->data, (size_t)from->bytes);
        answer_copy(access);
    } else {
        copy_staged(access, from, to);
    }
}

static tutti_code
check_copy(const agent_access *access, const Tutti__V1__CopyRequest *request, tutti_error *err)
{
    tutti_space *space = NULL;

    if (request->into[0] != '\0' && (request->name[0] != '\0' || request->device[0] != '\0')) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_NAME", AGENT_SAY_INTO);
    }
    return agent_devices_find(access->agent, request->device, &space, err);
}

/*
 * A copy onto itself is one exclusive lock; two of one call on one tensor would wait for each
 * other.
 */
static tutti_code
lock_copy_tensors(agent_access *access, const Tutti__V1__CopyRequest *request, tutti_error *err)
{
    tutti_table *table = access->agent->table;
    tutti_code code = check_copy(access, request, err);

    if (code == TUTTI_OK) {
        code = tutti_table_lock_by_name(table, &access->lock_set, request->handle, false, err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    if (request->into[0] == '\0') {
        code = agent_access_make(access, request->name, err);
        access->entry = code == TUTTI_OK ? AGENT_ENTRY_NEW : AGENT_ENTRY_FOUND;
        return code;
    }
    code = tutti_table_lock_by_name(table, &access->lock_set, request->into, true, err);
    if (code == TUTTI_OK && access->lock_set.locks[0].entry == access->lock_set.locks[1].entry) {
        tutti_table_unwant(table, &access->lock_set);
        access->lock_set.locks[0].exclusive = true;
    }
    return code;
}

void
agent_on_copy(tutti_rpc_call *call, void *self)
{
    const Tutti__V1__CopyRequest *request = tutti_rpc_call_request(call);
    agent_access *access = agent_access_new(self, call, start_copy);
    tutti_error err;

    if (access == NULL) {
        return;
    }
    if (lock_copy_tensors(access, request, &err) != TUTTI_OK) {
        agent_access_refuse(access, request->name, &err);
        return;
    }
    agent_access_go(access);
}
