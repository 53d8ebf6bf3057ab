/*
 * Types of types.proto as structs of include/tutti, and back. Everything that a server answers is
 * checked here (dimensions, sizes, lengths of handles): what makes no sense is DATA_LOSS, and
 * never reaches the caller's memory.
 */
#include "client/conn/types_pb.h"

#include <stdio.h>
#include <string.h>

#include "base/error/fail.h"
#include "client/conn/client.h"
#include "tensor/spec.h"

void
client_write_spec(const tutti_spec *spec, wire_spec *ret)
{
    tutti__v1__tensor_spec__init(&ret->message);
    memcpy(ret->dims, spec->dims, sizeof(ret->dims));
    ret->message.dtype = (Tutti__V1__Dtype)spec->dtype;
    ret->message.n_shape = spec->dim_count;
    ret->message.shape = ret->dims;
}

char *
client_write_text(const char *text)
{
    return (char *)(uintptr_t)(text == NULL ? "" : text);
}

ProtobufCBinaryData
client_write_bytes(const void *data, size_t size)
{
    return (ProtobufCBinaryData){.len = size, .data = (uint8_t *)(uintptr_t)data};
}

tutti_code
client_read_spec(const Tutti__V1__TensorSpec *message, tutti_spec *ret_spec, tutti_error *err)
{
    tutti_spec spec = {0};
    tutti_error inner;
    size_t i;

    if (message == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BAD_ANSWER",
                              "the agent answered a tensor without a spec");
    }
    if (message->n_shape > TUTTI_DIMS_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BAD_ANSWER",
                              "the agent answered a tensor of %zu dimensions, at most %d",
                              message->n_shape, TUTTI_DIMS_MAX);
    }
    spec.dtype = (tutti_dtype)message->dtype;
    spec.dim_count = (uint32_t)message->n_shape;
    for (i = 0; i < message->n_shape; i++) {
        spec.dims[i] = message->shape[i];
    }
    if (tutti_spec_check(&spec, NULL, NULL, &inner) != TUTTI_OK) {
        return TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BAD_ANSWER",
                              "the agent answered a bad tensor: %.900s", inner.text);
    }
    *ret_spec = spec;
    return TUTTI_OK;
}

tutti_code
client_read_id(const char *text, char ret_id[TUTTI_HANDLE_MAX + 1], tutti_error *err)
{
    const size_t size = strlen(text);

    if (size > TUTTI_HANDLE_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BAD_ANSWER",
                              "the agent answered a handle of %zu bytes, at most %d", size,
                              TUTTI_HANDLE_MAX);
    }
    memcpy(ret_id, text, size + 1);
    return TUTTI_OK;
}

tutti_code
client_read_handle(const Tutti__V1__TensorRef *message, bool needed, tutti_handle *ret_handle,
                   tutti_error *err)
{
    tutti_handle handle = {0};
    tutti_code code = TUTTI_OK;

    if (needed && (message == NULL || message->handle[0] == '\0')) {
        return TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BAD_ANSWER",
                              "the agent answered without a handle");
    }
    if (message != NULL) {
        code = client_read_id(message->handle, handle.text, err);
    }
    if (code == TUTTI_OK && message != NULL && message->spec != NULL) {
        code = client_read_spec(message->spec, &handle.spec, err);
        handle.known = true;
    }
    if (code == TUTTI_OK) {
        *ret_handle = handle;
    }
    return code;
}

void
client_read_text(const char *text, char *ret, size_t size)
{
    (void)snprintf(ret, size, "%s", text);
}

static tutti_code
known_code(uint32_t number)
{
    return number > TUTTI_OK && number <= TUTTI_UNAUTHENTICATED ? (tutti_code)number
                                                                : TUTTI_UNKNOWN;
}

static tutti_scope
known_scope(const char *name)
{
    if (strcmp(name, "group") == 0) {
        return TUTTI_SCOPE_GROUP;
    }
    return strcmp(name, "agent") == 0 ? TUTTI_SCOPE_AGENT : TUTTI_SCOPE_CALL;
}

void
client_read_error(const Tutti__V1__Error *message, tutti_error *ret)
{
    *ret = (tutti_error){.code = TUTTI_OK, .rank = TUTTI_ERROR_RANK_NONE};
    if (message == NULL) {
        return;
    }
    ret->code = known_code(message->code);
    ret->scope = known_scope(message->scope);
    ret->sequence = message->sequence;
    ret->rank = message->rank;
    tutti_rpc_text_clean(ret->reason, sizeof(ret->reason), message->reason);
    tutti_rpc_text_clean(ret->text, sizeof(ret->text), message->text);
    tutti_rpc_text_clean(ret->group, sizeof(ret->group), message->group);
}

void
client_write_member(const tutti_client *client, Tutti__V1__Member *ret)
{
    tutti__v1__member__init(ret);
    ret->job = client_write_text(client_job(client));
    ret->rank = client->agent.rank;
    ret->incarnation = client->agent.incarnation;
}
