/*
 * Submitting: the functions that write requests (client_wire_<op>) run with the pipeline's
 * request hook, which takes the finished request and makes it a command. `next` is the call that
 * the hook fills; it is NULL again when the command was written, so finish_pipeline can tell.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "client/conn/call.h"
#include "client/conn/command_stream_pb.h"
#include "client/conn/types_pb.h"
#include "client/op/collectives.h"
#include "client/op/op.h"
#include "client/pipeline/pipeline.h"
#include "tutti/pipeline.h"

/* ------------------------------------------------------------------------------ submitting */

static tutti_code
pack_pipeline(const tutti_pipeline *pipeline, uint64_t id, const ProtobufCMessage *request,
              tutti_bytes payload, tutti_rpc_packed **ret_packed, tutti_error *err)
{
    const tutti_rpc_blob blob = {.data = payload.data, .size = payload.size};
    Tutti__V1__RunRequest message = TUTTI__V1__RUN_REQUEST__INIT;
    Tutti__V1__RunOptions options = TUTTI__V1__RUN_OPTIONS__INIT;

    message.id = id;
    client_set_command(&message, client_command_of(request), request);
    if (id == 1) {
        options.in_flight_max = pipeline->in_flight_max;
        options.stop_on_error = pipeline->stop_on_error;
        message.options = &options;
    }
    return tutti_rpc_pack(&message.base, payload.size > 0 ? &blob : NULL, ret_packed, err);
}

static tutti_code
send_command(tutti_pipeline *pipeline, const ProtobufCMessage *request, const void *payload,
             size_t payload_bytes, tutti_error *err)
{
    pipeline_call *call = pipeline->next;
    tutti_rpc_packed *packed = NULL;
    tutti_code code = pipeline_make_room(pipeline, payload_bytes, err);

    if (code == TUTTI_OK) {
        code = pack_pipeline(pipeline, pipeline->last_id + 1, request,
                             (tutti_bytes){payload, payload_bytes}, &packed, err);
    }
    if (code == TUTTI_OK) {
        code = pipeline_write(pipeline, packed, err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    call->id = ++pipeline->last_id;
    call->payload_bytes = payload_bytes;
    call->by_id.key = tutti_map_key_u64(call->key, call->id);
    (void)tutti_map_add(&pipeline->by_id, &call->by_id);
    pipeline->unanswered++;
    pipeline->payload_bytes += payload_bytes;
    pipeline->next = NULL;
    return TUTTI_OK;
}

static tutti_code
take_pipeline_request(client_request_hook *request_hook, const ProtobufCMessage *request,
                      const void *payload, size_t payload_bytes, tutti_error *err)
{
    return send_command(tutti_container_of(request_hook, tutti_pipeline, request_hook), request,
                        payload, payload_bytes, err);
}

tutti_code
pipeline_open_stream(tutti_pipeline *pipeline, tutti_error *err)
{
    tutti_rpc_call_options options = client_stream_options(pipeline->client);

    pipeline->request_hook.take = take_pipeline_request;
    pipeline->lane = client_lane_open(pipeline->client, &client_commands);
    options.lane = pipeline->lane == NULL ? NULL : &pipeline->lane->end;
    return client_open_commands(pipeline->conn, &options, &pipeline->stream, err);
}

/* A call about to be submitted; what becomes of it is pipeline->next. */
static tutti_code
begin_pipeline(tutti_pipeline *pipeline, const client_inline *memory, tutti_error *err)
{
    pipeline_call *call = calloc(1, sizeof(*call));

    if (call == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a call");
    }
    tutti_list_init(&call->done);
    if (memory != NULL) {
        call->memory = *memory;
        call->spec = memory->spec == NULL ? (tutti_spec){0} : *memory->spec;
        call->memory.spec = &call->spec;
    }
    pipeline->next = call;
    return TUTTI_OK;
}

/* It was submitted, unless pipeline->next is still there. */
static tutti_code
finish_pipeline(tutti_pipeline *pipeline, tutti_code code, uint64_t *ret_id)
{
    free(pipeline->next);
    pipeline->next = NULL;
    if (code == TUTTI_OK && ret_id != NULL) {
        *ret_id = pipeline->last_id;
    }
    return code;
}

static tutti_code
submit_pipeline(tutti_pipeline *pipeline, tutti_op_kind kind, const tutti_op *op,
                client_inline *memory, tutti_error *err)
{
    const client_op_fn fn = client_op_of(kind);
    tutti_op_result none;

    if (fn == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "NO_OP", "kind of op %d is unknown",
                              (int)kind);
    }
    memory->request_hook = &pipeline->request_hook;
    TUTTI_TRY(begin_pipeline(pipeline, memory, err));
    return fn(pipeline->client, op, memory, &none, err);
}

tutti_code
tutti_pipeline_submit(tutti_pipeline *pipeline, tutti_op_kind kind, const tutti_op *op,
                      uint64_t *ret_id, tutti_error *err)
{
    TUTTI_NEED(pipeline, err);

    client_inline memory = {0};
    tutti_op own;
    tutti_code code = client_take_op(op, &own, err);

    if (code == TUTTI_OK) {
        code = submit_pipeline(pipeline, kind, &own, &memory, err);
    }
    return finish_pipeline(pipeline, code, ret_id);
}

static tutti_code
take_data(const tutti_pipeline_data *data, client_inline *ret_memory, tutti_error *err)
{
    *ret_memory = (client_inline){.spec = NULL};
    if (data != NULL) {
        *ret_memory = (client_inline){.spec = &data->spec,
                                      .data = data->data,
                                      .result = data->result,
                                      .result_bytes = data->result_bytes};
    }
    return client_take_memory(ret_memory, err);
}

tutti_code
tutti_pipeline_submit_data(tutti_pipeline *pipeline, tutti_op_kind kind, const tutti_op *op,
                           const tutti_pipeline_data *data, uint64_t *ret_id, tutti_error *err)
{
    TUTTI_NEED(pipeline, err);

    client_inline memory;
    tutti_op own;
    tutti_code code = client_take_op(op, &own, err);

    if (code == TUTTI_OK) {
        code = take_data(data, &memory, err);
    }
    if (code == TUTTI_OK && memory.bytes > TUTTI_INLINE_BYTES_MAX) {
        code = TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "INLINE_LIMIT",
                              "%" PRIu64 " bytes in a pipeline, at most %u: put them into a tensor",
                              memory.bytes, TUTTI_INLINE_BYTES_MAX);
    }
    if (code == TUTTI_OK) {
        own.input = NULL;
        own.output = NULL;
        code = submit_pipeline(pipeline, kind, &own, &memory, err);
    }
    return finish_pipeline(pipeline, code, ret_id);
}

tutti_code
tutti_pipeline_put(tutti_pipeline *pipeline, const tutti_spec *spec, const void *data,
                   const char *name, const char *into, uint64_t *ret_id, tutti_error *err)
{
    TUTTI_NEED(pipeline, err);
    TUTTI_NEED(spec, err);

    Tutti__V1__PutRequest request = TUTTI__V1__PUT_REQUEST__INIT;
    uint64_t bytes = 0;
    wire_spec wire;
    tutti_code code = tutti_spec_size(spec, NULL, &bytes, err);

    TUTTI_NEED_LIST(data, bytes, err);
    if (code == TUTTI_OK && bytes > TUTTI_INLINE_BYTES_MAX) {
        code = TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "INLINE_LIMIT",
                              "%" PRIu64 " bytes in a pipeline, at most %u: use tutti_tensor_put",
                              bytes, TUTTI_INLINE_BYTES_MAX);
    }
    if (code == TUTTI_OK) {
        code = begin_pipeline(pipeline, NULL, err);
    }
    if (code == TUTTI_OK) {
        client_write_spec(spec, &wire);
        request.spec = &wire.message;
        request.name = client_write_text(name);
        request.into = client_write_text(into);
        request.device = client_device(pipeline->client, into);
        code = send_command(pipeline, &request.base, data, (size_t)bytes, err);
    }
    return finish_pipeline(pipeline, code, ret_id);
}

/* A call without payload whose request is complete. */
static tutti_code
send_plain(tutti_pipeline *pipeline, const ProtobufCMessage *request, const client_inline *memory,
           uint64_t *ret_id, tutti_error *err)
{
    tutti_code code = begin_pipeline(pipeline, memory, err);

    if (code == TUTTI_OK) {
        code = send_command(pipeline, request, NULL, 0, err);
    }
    return finish_pipeline(pipeline, code, ret_id);
}

tutti_code
tutti_pipeline_get(tutti_pipeline *pipeline, const char *handle, void *result,
                   uint64_t result_bytes, uint64_t *ret_id, tutti_error *err)
{
    TUTTI_NEED(pipeline, err);
    TUTTI_NEED_LIST(result, result_bytes, err);

    const client_inline memory = {.takes = true, .result = result, .result_bytes = result_bytes};
    Tutti__V1__GetRequest request = TUTTI__V1__GET_REQUEST__INIT;

    request.handle = client_write_text(handle);
    return send_plain(pipeline, &request.base, &memory, ret_id, err);
}

tutti_code
tutti_pipeline_delete(tutti_pipeline *pipeline, const char *handle, uint64_t *ret_id,
                      tutti_error *err)
{
    TUTTI_NEED(pipeline, err);

    Tutti__V1__DeleteRequest request = TUTTI__V1__DELETE_REQUEST__INIT;
    char *handles[1] = {client_write_text(handle)};

    request.handles = handles;
    request.n_handles = 1;
    return send_plain(pipeline, &request.base, NULL, ret_id, err);
}

tutti_code
tutti_pipeline_sync(tutti_pipeline *pipeline, const char *group, uint32_t timeout_ms,
                    uint64_t *ret_id, tutti_error *err)
{
    TUTTI_NEED(pipeline, err);

    Tutti__V1__SyncRequest request = TUTTI__V1__SYNC_REQUEST__INIT;

    request.group = client_write_text(group);
    request.timeout_ms = timeout_ms;
    return send_plain(pipeline, &request.base, NULL, ret_id, err);
}
