/*
 * Answers of a pipeline. All responses of ops have the same fields under the same numbers
 * (CONTRIBUTING.md), so they are read by number from whichever response it is.
 */
#include <inttypes.h>

#include "base/error/fail.h"
#include "client/conn/types_pb.h"
#include "client/op/collectives.h"
#include "client/op/op_pb.h"
#include "client/pipeline/pipeline.h"
#include "tutti/v1/commands_service.pb-c.h"

/* A member of a response by its number, which all ops' responses have in common; NULL = absent. */
static const void *
member_of(const ProtobufCMessage *response, unsigned number, const ProtobufCMessageDescriptor *type)
{
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field(response->descriptor, number);

    if (field == NULL || field->descriptor != type) {
        return NULL;
    }
    return *(const void *const *)(const void *)((const char *)response + field->offset);
}

/* The list of results, in 20, and what came with a tensor, in 24, of responses that have them. */
static tutti_code
read_more(const ProtobufCMessage *response, tutti_op_more *ret_more, tutti_error *err)
{
    const char *base = (const char *)response;
    const ProtobufCFieldDescriptor *outputs =
        protobuf_c_message_descriptor_get_field(response->descriptor, 20);
    const ProtobufCFieldDescriptor *meta =
        protobuf_c_message_descriptor_get_field(response->descriptor, 24);
    Tutti__V1__TensorRef *const *list = NULL;
    size_t count = 0;

    if (outputs != NULL && outputs->descriptor == &tutti__v1__tensor_ref__descriptor) {
        list = *(Tutti__V1__TensorRef *const *const *)(const void *)(base + outputs->offset);
        count = *(const size_t *)(const void *)(base + outputs->quantifier_offset);
    }
    return client_read_more(list, count,
                            meta != NULL && meta->type == PROTOBUF_C_TYPE_BYTES
                                ? *(const ProtobufCBinaryData *)(const void *)(base + meta->offset)
                                : (ProtobufCBinaryData){0, NULL},
                            ret_more, err);
}

static tutti_code
read_recv(const Tutti__V1__RunResponse *answer, tutti_op_result *result)
{
    if (answer->result_case == TUTTI__V1__RUN_RESPONSE__RESULT_RECV) {
        result->source = answer->recv->source;
        result->source_global = answer->recv->source_global;
    }
    return TUTTI_OK;
}

/* Responses of ops have their result in 1 and what there is to know in 2; of put and get, in 1. */
static tutti_code
read_response(const Tutti__V1__RunResponse *answer, tutti_rpc_message *message, pipeline_call *call,
              tutti_error *err)
{
    const ProtobufCMessage *response =
        (const ProtobufCMessage *)answer->all_reduce; /* whichever it is */
    const client_inline nothing = {0};

    if (answer->result_case == TUTTI__V1__RUN_RESPONSE__RESULT_SYNC) {
        client_read_error(answer->sync->error, &call->result.error);
        return TUTTI_OK;
    }
    TUTTI_TRY(client_read_op(message, member_of(response, 1, &tutti__v1__tensor_ref__descriptor),
                             member_of(response, 2, &tutti__v1__op_info__descriptor), &nothing,
                             &call->result.op, err));
    TUTTI_TRY(read_more(response, &call->result.more, err));
    return read_recv(answer, &call->result.op);
}

/*
 * The bytes stay in the message until the result is taken; whether they fit is checked now, so
 * that the result carries the error.
 */
static void
keep_bytes(pipeline_call *call, tutti_rpc_message *message)
{
    const client_inline *memory = &call->memory;
    const size_t got = tutti_rpc_message_payload_bytes(message);
    const tutti_handle *output = &call->result.op.output;

    if (got != memory->result_bytes) {
        (void)TUTTI_FAIL_FOR(&call->result.error, TUTTI_INVALID_ARGUMENT, "SIZE_MISMATCH",
                             "the result has %zu bytes, but there is room for %" PRIu64, got,
                             memory->result_bytes);
    } else if (output->known && call->spec.dtype != TUTTI_DTYPE_NONE &&
               output->spec.dtype != call->spec.dtype) {
        (void)TUTTI_FAIL_FOR(&call->result.error, TUTTI_INVALID_ARGUMENT, "DTYPE_MISMATCH",
                             "the result is %s, not %s", tutti_dtype_name(output->spec.dtype),
                             tutti_dtype_name(call->spec.dtype));
    } else {
        call->message = message;
    }
}

tutti_code
pipeline_read_call(tutti_rpc_message *message, pipeline_call *call, tutti_error *err)
{
    const Tutti__V1__RunResponse *answer = tutti_rpc_message_get(message);

    call->result.id = call->id;
    client_read_error(NULL, &call->result.error);
    if (answer->result_case == TUTTI__V1__RUN_RESPONSE__RESULT__NOT_SET) {
        return TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BAD_ANSWER",
                              "the agent answered call %" PRIu64 " with nothing", call->id);
    }
    if (answer->result_case == TUTTI__V1__RUN_RESPONSE__RESULT_ERROR) {
        client_read_error(answer->error, &call->result.error);
        return TUTTI_OK;
    }
    TUTTI_TRY(read_response(answer, message, call, err));
    if (call->memory.takes && call->result.op.work[0] == '\0') {
        keep_bytes(call, message);
    }
    return TUTTI_OK;
}

tutti_code
pipeline_read_answer(tutti_pipeline *pipeline, tutti_rpc_message *message, tutti_error *err)
{
    const Tutti__V1__RunResponse *answer = tutti_rpc_message_get(message);
    pipeline_call *call = pipeline_find(pipeline, answer->id);
    tutti_code code;

    if (call == NULL || call->answered) {
        code = TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BAD_ANSWER",
                              "the agent answered call %" PRIu64 ", which %s", answer->id,
                              call == NULL ? "was not submitted" : "it had answered already");
        tutti_rpc_message_free(message);
        return code;
    }
    code = pipeline_read_call(message, call, err);
    if (call->message == NULL) {
        tutti_rpc_message_free(message);
    }
    if (code == TUTTI_OK) {
        pipeline_answered(pipeline, call);
    }
    return code;
}
