/*
 * What requests and responses of all ops have in common. Nothing is copied on the way out: the
 * message points into the caller's op, which stays until the call returns.
 */
#include "client/op/op_pb.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "client/conn/call.h"
#include "client/conn/client.h"
#include "client/conn/conn_pool.h"
#include "client/conn/types_pb.h"
#include "client/op/collectives.h"
#include "tutti/list.h"

void
client_write_op(const tutti_op *op, const client_inline *memory, wire_op *ret)
{
    tutti__v1__op_options__init(&ret->options);
    tutti__v1__tensor_arg__init(&ret->input);
    ret->options.async = op->async;
    ret->options.timeout_ms = op->timeout_ms;
    ret->options.sequence = op->sequence;
    ret->options.tracers =
        (char **)(uintptr_t)op->tracers; /* protobuf-c's pointers are not const */
    ret->options.n_tracers = op->tracer_count;
    ret->options.no_grad = op->no_grad;
    ret->options.local_grad = op->local_grad;
    ret->options.step = op->step;
    ret->options.token = op->token;
    ret->options.after_event = op->after_event;
    ret->options.done_event = op->done_event;
    if (memory != NULL && memory->expects) {
        const tutti_spec room = client_inline_room(memory);

        client_write_spec(&room, &ret->expect);
        ret->expects[0] = &ret->expect.message;
        ret->options.expect = ret->expects;
        ret->options.n_expect = 1;
    }
    ret->group = client_write_text(op->group);
    ret->output = client_write_text(op->output);
    ret->memory = NULL;
    ret->rooms = NULL;
    ret->room_pointers = NULL;
    ret->specs = NULL;
    ret->inputs = NULL;
    ret->has_input = op->input != NULL;
    if (ret->has_input) {
        ret->input.kind_case = TUTTI__V1__TENSOR_ARG__KIND_HANDLE;
        ret->input.handle = client_write_text(op->input);
    } else if (memory != NULL && memory->gives && memory->list_count == 0) {
        ret->has_input = true;
        client_write_spec(memory->spec, &ret->spec);
        ret->input.kind_case = TUTTI__V1__TENSOR_ARG__KIND_INLINE_TENSOR;
        ret->input.inline_tensor = &ret->spec.message;
    }
}

Tutti__V1__TensorArg *
client_op_input(wire_op *op)
{
    return op->has_input ? &op->input : NULL;
}

/*
 * The deadline of an op's call. An async op is answered at once, but for one with done_event. Any
 * other has the agent's own
 * deadline, whose error names the missing rank, so the call waits a little longer than that
 * (client_op_deadline).
 */
client_call
client_op_call(const tutti_client *client, const tutti_op *op, const client_inline *memory,
               const tutti_rpc_stub *stub)
{
    client_call call = {.stub = stub, .kind = CLIENT_CONTROL};

    call.deadline_ns = op->async && op->done_event == 0 ? client_deadline(client, 0)
                                                        : client_op_deadline(op->timeout_ms);
    call.request_hook = memory == NULL ? NULL : memory->request_hook;
    if (memory != NULL && memory->gives) {
        call.payload = memory->data;
        call.payload_bytes = (size_t)memory->bytes;
    }
    return call;
}

/* What responses have in common. */
static tutti_code
read_result(const Tutti__V1__TensorRef *output, const Tutti__V1__OpInfo *info,
            tutti_op_result *ret_result, tutti_error *err)
{
    tutti_op_result result = {.sequence = info == NULL ? 0 : info->sequence,
                              .elapsed_us = info == NULL ? 0 : info->elapsed_us};

    TUTTI_TRY(client_read_handle(output, false, &result.output, err));

    if (info != NULL) {
        TUTTI_TRY(client_read_id(info->work, result.work, err));
    }
    *ret_result = result;
    return TUTTI_OK;
}

/*
 * Copy the bytes of an inline result to the caller's memory, if size and dtype are what was
 * expected; nothing is written otherwise.
 */
static tutti_code
read_memory(tutti_rpc_message *message, const tutti_op_result *result, const client_inline *memory,
            tutti_error *err)
{
    const size_t got = tutti_rpc_message_payload_bytes(message);

    if (memory == NULL || !memory->takes) {
        return TUTTI_OK;
    }
    if (got != memory->result_bytes) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "SIZE_MISMATCH",
                              "the result has %zu bytes, but there is room for %" PRIu64, got,
                              memory->result_bytes);
    }
    if (result->output.known && result->output.spec.dtype != memory->spec->dtype) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_INVALID_ARGUMENT, "DTYPE_MISMATCH", "the result is %s, not %s",
            tutti_dtype_name(result->output.spec.dtype), tutti_dtype_name(memory->spec->dtype));
    }
    tutti_rpc_message_read(message, memory->result, got);
    return TUTTI_OK;
}

tutti_code
client_read_op(tutti_rpc_message *message, const Tutti__V1__TensorRef *output,
               const Tutti__V1__OpInfo *info, const client_inline *memory,
               tutti_op_result *ret_result, tutti_error *err)
{
    TUTTI_TRY(read_result(output, info, ret_result, err));

    return read_memory(message, ret_result, memory, err);
}

/* ------------------------------------------------------------------------------ lists */

static size_t
count_inputs(const tutti_op *op, const client_inline *memory)
{
    return memory == NULL || !memory->gives || memory->list_count == 0 ? op->input_count
                                                                       : memory->list_count;
}

static bool
make_wire_lists(wire_op *ret, size_t count, bool inline_list)
{
    ret->memory = calloc(count, sizeof(*ret->memory));
    ret->inputs = calloc(count, sizeof(Tutti__V1__TensorArg *));
    ret->specs = inline_list ? calloc(count, sizeof(*ret->specs)) : NULL;
    return ret->memory != NULL && ret->inputs != NULL && (ret->specs != NULL || !inline_list);
}

/* What the results may be, so that all ranks are refused if one of them fits nowhere. */
static bool
write_rooms(const client_inline *memory, wire_op *ret)
{
    size_t i;

    ret->rooms = calloc(memory->list_count, sizeof(*ret->rooms));
    ret->room_pointers = calloc(memory->list_count, sizeof(Tutti__V1__TensorSpec *));
    if (ret->rooms == NULL || ret->room_pointers == NULL) {
        return false;
    }
    for (i = 0; i < memory->list_count; i++) {
        client_write_spec(&memory->list_rooms[i], &ret->rooms[i]);
        ret->room_pointers[i] = &ret->rooms[i].message;
    }
    ret->options.expect = ret->room_pointers;
    ret->options.n_expect = memory->list_count;
    return true;
}

tutti_code
client_write_lists(const tutti_op *op, const client_inline *memory, wire_op *ret, tutti_error *err)
{
    const size_t count = count_inputs(op, memory);
    const bool inline_list = count > 0 && op->input_count == 0;
    size_t i;

    ret->outputs = (char **)(uintptr_t)op->outputs; /* protobuf-c's pointers are not const */
    ret->output_count = op->output_count;
    ret->input_count = 0;
    if ((count > 0 && !make_wire_lists(ret, count, inline_list)) ||
        (memory != NULL && memory->list_rooms != NULL && !write_rooms(memory, ret))) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a list of %zu tensors", count);
    }
    for (i = 0; i < count; i++) {
        tutti__v1__tensor_arg__init(&ret->memory[i]);
        if (inline_list) {
            client_write_spec(&memory->list[i], &ret->specs[i]);
            ret->memory[i].kind_case = TUTTI__V1__TENSOR_ARG__KIND_INLINE_TENSOR;
            ret->memory[i].inline_tensor = &ret->specs[i].message;
        } else {
            ret->memory[i].kind_case = TUTTI__V1__TENSOR_ARG__KIND_HANDLE;
            ret->memory[i].handle = client_write_text(op->inputs[i]);
        }
        ret->inputs[i] = &ret->memory[i];
    }
    ret->input_count = count;
    return TUTTI_OK;
}

void
client_op_fini(wire_op *op)
{
    free(op->memory);
    free(op->specs);
    free(op->inputs);
    free(op->rooms);
    free(op->room_pointers);
}

/* An inline one of a list has no handle, but a spec. */
static bool
needs_handle(const Tutti__V1__TensorRef *output)
{
    return output == NULL || output->spec == NULL;
}

static tutti_code
read_outputs(Tutti__V1__TensorRef *const *outputs, size_t count, tutti_op_more *more,
             tutti_error *err)
{
    size_t i;

    if (count == 0) {
        return TUTTI_OK;
    }
    more->outputs = calloc(count, sizeof(*more->outputs));
    if (more->outputs == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a list of %zu tensors", count);
    }
    more->output_count = count;
    for (i = 0; i < count; i++) {
        TUTTI_TRY(client_read_handle(outputs[i], needs_handle(outputs[i]), &more->outputs[i], err));
    }
    return TUTTI_OK;
}

tutti_code
client_read_more(Tutti__V1__TensorRef *const *outputs, size_t output_count,
                 ProtobufCBinaryData meta, tutti_op_more *ret_more, tutti_error *err)
{
    tutti_op_more more = {0};
    tutti_code code;

    if (ret_more == NULL) {
        return TUTTI_OK;
    }
    code = read_outputs(outputs, output_count, &more, err);
    if (code == TUTTI_OK && meta.len > 0) {
        code = client_read_value(meta, &more.user_meta, &more.user_meta_size, err);
    }
    if (code != TUTTI_OK) {
        tutti_op_more_free(&more);
        return code;
    }
    *ret_more = more;
    return TUTTI_OK;
}

void
tutti_op_more_free(tutti_op_more *more)
{
    if (more == NULL) {
        return;
    }
    free(more->outputs);
    tutti_free(more->user_meta);
    *more = (tutti_op_more){0};
}
