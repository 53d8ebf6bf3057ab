/*
 * TensorsService: the messages of calls that make, read, write and list tensors. Bulk loop.
 *
 * Each call makes an access (transfer/access.h), fills its lock set and goes in line; its turn_
 * function answers when the locks are granted. A call that is refused before it is in line leaves
 * no trace: new entries are dropped with the access. Requests stay valid until the call is
 * answered, so they are read again at the turn instead of being copied.
 */
#include <inttypes.h>

#include "base/error/fail.h"
#include "server/agent/service/methods_pb.h"
#include "server/agent/service/services.h"
#include "server/agent/service/types_pb.h"
#include "server/agent/state/state.h"
#include "server/agent/tensor/table.h"
#include "server/agent/transfer/access.h"
#include "server/agent/transfer/gpu.h"
#include "tutti/v1/tensors_service.pb-c.h"

#define DELETE_MAX 1024

/* ------------------------------------------------------------------------------ Create */

static void
turn_create(agent_access *access)
{
    Tutti__V1__CreateResponse response = TUTTI__V1__CREATE_RESPONSE__INIT;
    const tutti_tensor *tensor =
        tutti_table_tensor(access->agent->table, &access->lock_set.locks[0]);
    wire_use ref;

    agent_write_use(access, 0, &tensor->spec, &ref);
    response.tensor = &ref.message;
    agent_access_written(access, 0);
    tutti_rpc_call_reply(access->call, &response.base, NULL);
    agent_access_drop(access);
}

static void
on_create(tutti_rpc_call *call, void *self)
{
    const Tutti__V1__CreateRequest *request = tutti_rpc_call_request(call);
    agent_access *access = agent_access_new(self, call, turn_create);
    tutti_spec spec;
    tutti_error err;
    tutti_code code;

    if (access == NULL) {
        return;
    }
    code = agent_read_spec(request->spec, &spec, &err);
    if (code == TUTTI_OK) {
        code =
            agent_access_destination(access, &spec, "", request->name, request->device, true, &err);
    }
    if (code != TUTTI_OK) {
        agent_access_refuse(access, request->name, &err);
        return;
    }
    agent_access_go(access);
}

/* ------------------------------------------------------------------------------ Put */

static void
answer_put(agent_access *access, const tutti_tensor *tensor)
{
    Tutti__V1__PutResponse response = TUTTI__V1__PUT_RESPONSE__INIT;
    wire_use ref;

    agent_write_use(access, 0, &tensor->spec, &ref);
    response.tensor = &ref.message;
    agent_access_written(access, 0);
    tutti_count(&access->agent->numbers.bytes_in, tensor->bytes);
    tutti_rpc_call_reply(access->call, &response.base, NULL);
    agent_access_drop(access);
}

/* The bytes are on the GPU. The chunk is freed last: it holds a reference to the access. */
static void
on_put_copied(agent_gpu_chunk *piece, const tutti_error *err)
{
    agent_access *access = piece->access;

    if (err != NULL) {
        agent_access_fail(access, err);
    } else {
        answer_put(access, tutti_table_tensor(access->agent->table, &access->lock_set.locks[0]));
    }
    agent_gpu_chunk_free(piece);
}

/*
 * The spec is compared with the tensor at the turn, since `into` may have been replaced while the
 * call was in line.
 */
static void
turn_put(agent_access *access)
{
    const Tutti__V1__PutRequest *request = tutti_rpc_call_request(access->call);
    tutti_rpc_message *message = tutti_rpc_call_message(access->call);
    tutti_tensor *tensor = NULL;
    tutti_spec spec;
    tutti_error err;

    if (agent_read_spec(request->spec, &spec, &err) != TUTTI_OK ||
        agent_access_check(access, 0, &spec, &tensor, &err) != TUTTI_OK) {
        agent_access_fail(access, &err);
        return;
    }
    if (tensor->bytes > 0 && !tutti_tensor_is_host(tensor)) {
        agent_staged_put(access, tensor, on_put_copied);
        return;
    }
    if (tensor->bytes > 0) {
        tutti_rpc_message_read(message, tensor->data, (size_t)tensor->bytes);
    }
    answer_put(access, tensor);
}

/* Before memory is made: a message whose header and payload disagree costs nothing. */
static tutti_code
check_payload(const tutti_spec *spec, size_t got, tutti_error *err)
{
    const uint64_t bytes = tutti_spec_bytes(spec);

    if (bytes > TUTTI_INLINE_BYTES_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "INLINE_LIMIT",
                              "%" PRIu64 " bytes in one message, at most %u: use Upload", bytes,
                              TUTTI_INLINE_BYTES_MAX);
    }
    if (got != bytes) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "SIZE_MISMATCH",
                              "%zu bytes in the payload, the tensor has %" PRIu64, got, bytes);
    }
    return TUTTI_OK;
}

static void
on_put(tutti_rpc_call *call, void *self)
{
    const Tutti__V1__PutRequest *request = tutti_rpc_call_request(call);
    agent_access *access = agent_access_new(self, call, turn_put);
    tutti_spec spec;
    tutti_error err;
    tutti_code code;

    if (access == NULL) {
        return;
    }
    code = agent_read_spec(request->spec, &spec, &err);
    if (code == TUTTI_OK) {
        code = check_payload(&spec, tutti_rpc_message_payload_bytes(tutti_rpc_call_message(call)),
                             &err);
    }
    if (code == TUTTI_OK) {
        code = agent_access_destination(access, &spec, request->into, request->name,
                                        request->device, false, &err);
    }
    if (code != TUTTI_OK) {
        agent_access_refuse(access, request->name, &err);
        return;
    }
    agent_access_go(access);
}

/* ------------------------------------------------------------------------------ Get */

/*
 * blob: NULL = no bytes. It holds a reference of its own, so the tensor stays locked until gRPC has
 * sent it, though the call's reference is dropped here.
 */
static void
answer_get(agent_access *access, const tutti_tensor *tensor, const tutti_rpc_blob *blob)
{
    Tutti__V1__GetResponse response = TUTTI__V1__GET_RESPONSE__INIT;
    wire_use ref;

    agent_write_use(access, 0, &tensor->spec, &ref);
    response.tensor = &ref.message;
    tutti_count(&access->agent->numbers.bytes_out, tensor->bytes);
    tutti_rpc_call_reply(access->call, &response.base, blob);
    agent_access_drop(access);
}

/* The blob takes the chunk, which is freed when gRPC has let go of the bytes. */
static void
on_get_copied(agent_gpu_chunk *piece, const tutti_error *err)
{
    agent_access *access = piece->access;
    tutti_rpc_blob blob;

    if (err != NULL) {
        agent_access_fail(access, err);
        agent_gpu_chunk_free(piece);
        return;
    }
    blob = agent_gpu_chunk_blob(piece);
    answer_get(access, tutti_table_tensor(access->agent->table, &access->lock_set.locks[0]), &blob);
}

static void
turn_get(agent_access *access)
{
    tutti_tensor *tensor = NULL;
    tutti_rpc_blob blob;
    tutti_error err;
    tutti_code code = agent_access_tensor(access, 0, &tensor, &err);

    if (code == TUTTI_OK && tensor->bytes > TUTTI_INLINE_BYTES_MAX) {
        code = TUTTI_FAIL_FOR(&err, TUTTI_FAILED_PRECONDITION, "INLINE_LIMIT",
                              "%" PRIu64 " bytes do not fit into one message (limit %u): use "
                              "Download",
                              tensor->bytes, TUTTI_INLINE_BYTES_MAX);
    }
    if (code != TUTTI_OK) {
        agent_access_fail(access, &err);
        return;
    }
    if (tensor->bytes > 0 && !tutti_tensor_is_host(tensor)) {
        agent_staged_get(access, tensor, on_get_copied);
        return;
    }
    if (tensor->bytes > 0) {
        blob = agent_access_blob(access, tensor, 0, (size_t)tensor->bytes);
    }
    answer_get(access, tensor, tensor->bytes > 0 ? &blob : NULL);
}

static void
on_get(tutti_rpc_call *call, void *self)
{
    const Tutti__V1__GetRequest *request = tutti_rpc_call_request(call);
    agent_access *access = agent_access_new(self, call, turn_get);
    tutti_error err;

    if (access == NULL) {
        return;
    }
    if (tutti_table_lock_by_name(access->agent->table, &access->lock_set, request->handle, false,
                                 &err) != TUTTI_OK) {
        agent_access_fail(access, &err);
        return;
    }
    agent_access_go(access);
}

/* ------------------------------------------------------------------------------ Delete */

/* Without waiting: calls that hold or await the tensor keep it until they end. */
static void
on_delete(tutti_rpc_call *call, void *self)
{
    const Tutti__V1__DeleteRequest *request = tutti_rpc_call_request(call);
    Tutti__V1__DeleteResponse response = TUTTI__V1__DELETE_RESPONSE__INIT;
    tutti_agent *agent = self;
    tutti_error err;
    tutti_code code;

    if (request->n_handles == 0 || request->n_handles > DELETE_MAX) {
        code = TUTTI_FAIL_FOR(&err, TUTTI_INVALID_ARGUMENT, "BAD_HANDLE",
                              "%zu handles, need 1 to %d", request->n_handles, DELETE_MAX);
    } else {
        code = tutti_table_delete(agent->table, request->handles, request->n_handles,
                                  request->missing_ok != 0, &err);
    }
    if (code != TUTTI_OK) {
        tutti_rpc_call_fail(call, &err);
        return;
    }
    tutti_rpc_call_reply(call, &response.base, NULL);
}

/* ------------------------------------------------------------------------------ the service */

void
agent_add_tensors(tutti_agent *agent)
{
    static const tutti_rpc_method methods[] = {
        TUTTI_RPC_UNARY("Create", on_create),
        TUTTI_RPC_UNARY("Put", on_put),
        TUTTI_RPC_UNARY("Get", on_get),
        TUTTI_RPC_STREAM("Upload", &agent_upload_ops),
        TUTTI_RPC_STREAM("Download", &agent_download_ops),
        TUTTI_RPC_UNARY("Copy", agent_on_copy),
        TUTTI_RPC_UNARY("Delete", on_delete),
        TUTTI_RPC_UNARY("List", agent_on_list),
        TUTTI_RPC_UNARY("Stat", agent_on_stat),
        TUTTI_RPC_UNARY("Share", agent_on_share),
        TUTTI_RPC_STREAM("ShareGpu", &agent_share_gpu_ops),
        TUTTI_RPC_STREAM("ShareEvents", &agent_share_events_ops),
        TUTTI_RPC_QUIET_STREAM("Lease", &agent_lease_ops),
        TUTTI_RPC_UNARY("CloseLease", agent_on_close_lease),
    };
    const tutti_rpc_service service = {
        .descriptor = &tutti__v1__tensors_service__descriptor,
        .methods = methods,
        .method_count = sizeof(methods) / sizeof(methods[0]),
        .self = agent,
        .loop = agent->bulk,
        .quiet_loop = agent->control,
        .open_enums = true,
    };

    tutti_rpc_server_add(agent->server, &service);
}
