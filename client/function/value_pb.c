/* Values as messages: what a caller made is checked, and what an agent says is copied. */
#include "client/function/value_pb.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "client/conn/types_pb.h"

/* ------------------------------------------------------------------------------ out */

static tutti_code
check_plain_size(size_t size, const char *what, tutti_error *err)
{
    if (size > TUTTI_VALUE_BYTES_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_VALUE",
                              "%s has %zu bytes, at most %u: put them into a tensor", what, size,
                              TUTTI_VALUE_BYTES_MAX);
    }
    return TUTTI_OK;
}

/* All texts share their place in the oneof, and in the union of a value. */
static tutti_code
write_plain_text(const tutti_value *value, const char *what, Tutti__V1__Value__KindCase kind,
                 wire_value *ret, tutti_error *err)
{
    if (value->u.text == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_VALUE",
                              "%s is a %s without a text: it is NULL", what,
                              tutti_value_kind_name(value->kind));
    }
    TUTTI_TRY(check_plain_size(strlen(value->u.text), what, err));
    ret->message.kind_case = kind;
    ret->message.text = client_write_text(value->u.text);
    return TUTTI_OK;
}

static tutti_code
write_plain_bytes(const tutti_value *value, const char *what, wire_value *ret, tutti_error *err)
{
    TUTTI_TRY(check_plain_size(value->u.bytes.size, what, err));
    ret->message.kind_case = TUTTI__V1__VALUE__KIND_DATA;
    ret->message.data = client_write_bytes(value->u.bytes.data, value->u.bytes.size);
    return TUTTI_OK;
}

static tutti_code
write_plain_shape(const tutti_value *value, const char *what, wire_value *ret, tutti_error *err)
{
    if (value->u.shape.count > TUTTI_VALUE_DIMS_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_VALUE",
                              "%s is a shape of %zu dimensions, at most %d", what,
                              value->u.shape.count, TUTTI_VALUE_DIMS_MAX);
    }
    tutti__v1__shape__init(&ret->shape);
    ret->shape.n_dims = value->u.shape.count;
    ret->shape.dims = (int64_t *)(uintptr_t)value->u.shape.dims; /* protobuf-c has no const */
    ret->message.kind_case = TUTTI__V1__VALUE__KIND_SHAPE;
    ret->message.shape = &ret->shape;
    return TUTTI_OK;
}

static tutti_code
fail_kind(const tutti_value *value, const char *what, tutti_error *err)
{
    return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_VALUE",
                          "%s is a %s, which cannot be passed here", what,
                          tutti_value_kind_name(value->kind));
}

tutti_code
client_write_plain(const tutti_value *value, const char *what, wire_value *ret, tutti_error *err)
{
    tutti__v1__value__init(&ret->message);
    switch (value->kind) {
    case TUTTI_VALUE_NULL:
        ret->message.kind_case = TUTTI__V1__VALUE__KIND_NULL;
        ret->message.null = true;
        return TUTTI_OK;
    case TUTTI_VALUE_INT:
        ret->message.kind_case = TUTTI__V1__VALUE__KIND_INTEGER;
        ret->message.integer = value->u.integer;
        return TUTTI_OK;
    case TUTTI_VALUE_FLOAT:
        ret->message.kind_case = TUTTI__V1__VALUE__KIND_REAL;
        ret->message.real = value->u.real;
        return TUTTI_OK;
    case TUTTI_VALUE_DTYPE:
        ret->message.kind_case = TUTTI__V1__VALUE__KIND_DTYPE;
        ret->message.dtype = (Tutti__V1__Dtype)value->u.dtype;
        return TUTTI_OK;
    case TUTTI_VALUE_TEXT:
        return write_plain_text(value, what, TUTTI__V1__VALUE__KIND_TEXT, ret, err);
    case TUTTI_VALUE_BYTES:
        return write_plain_bytes(value, what, ret, err);
    case TUTTI_VALUE_DEVICE:
        return write_plain_text(value, what, TUTTI__V1__VALUE__KIND_DEVICE, ret, err);
    case TUTTI_VALUE_SHAPE:
        return write_plain_shape(value, what, ret, err);
    case TUTTI_VALUE_TENSOR:
        return write_plain_text(value, what, TUTTI__V1__VALUE__KIND_TENSOR, ret, err);
    case TUTTI_VALUE_NAME:
        return write_plain_text(value, what, TUTTI__V1__VALUE__KIND_NAME, ret, err);
    case TUTTI_VALUE_FUNCTION:
        return write_plain_text(value, what, TUTTI__V1__VALUE__KIND_FUNCTION, ret, err);
    case TUTTI_VALUE_REGISTER:
    default:
        return fail_kind(value, what, err);
    }
}

/* ------------------------------------------------------------------------------ in */

/* A copy of `size` bytes with a NUL behind it, which the value owns. */
static tutti_code
copy_plain(tutti_value *value, const void *data, size_t size, tutti_error *err)
{
    char *copy = malloc(size + 1);

    if (copy == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a value of %zu bytes", size);
    }
    if (size > 0) {
        memcpy(copy, data, size);
    }
    copy[size] = '\0';
    value->memory = copy;
    return TUTTI_OK;
}

static tutti_code
read_plain_text(tutti_value_kind kind, const char *text, tutti_value *value, tutti_error *err)
{
    value->kind = kind;
    TUTTI_TRY(copy_plain(value, text, strlen(text), err));
    value->u.text = value->memory;
    return TUTTI_OK;
}

static tutti_code
read_plain_bytes(ProtobufCBinaryData data, tutti_value *value, tutti_error *err)
{
    value->kind = TUTTI_VALUE_BYTES;
    TUTTI_TRY(copy_plain(value, data.data, data.len, err));
    value->u.bytes = (tutti_value_bytes){value->memory, data.len};
    return TUTTI_OK;
}

static tutti_code
read_plain_shape(const Tutti__V1__Shape *shape, tutti_value *value, tutti_error *err)
{
    if (shape->n_dims > TUTTI_VALUE_DIMS_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BAD_ANSWER",
                              "the agent answered a shape of %zu dimensions, at most %d",
                              shape->n_dims, TUTTI_VALUE_DIMS_MAX);
    }
    value->kind = TUTTI_VALUE_SHAPE;
    TUTTI_TRY(copy_plain(value, shape->dims, shape->n_dims * sizeof(int64_t), err));
    value->u.shape = (tutti_value_shape){value->memory, shape->n_dims};
    return TUTTI_OK;
}

static tutti_code
read_plain_tensor(const Tutti__V1__Value *message, tutti_value *value, tutti_error *err)
{
    if (message->spec != NULL) {
        TUTTI_TRY(client_read_spec(message->spec, &value->spec, err));
    }
    return read_plain_text(TUTTI_VALUE_TENSOR, message->tensor, value, err);
}

static tutti_code
read_plain_kind(const Tutti__V1__Value *message, tutti_value *value, tutti_error *err)
{
    switch (message->kind_case) {
    case TUTTI__V1__VALUE__KIND_INTEGER:
        *value = tutti_value_int(message->integer);
        return TUTTI_OK;
    case TUTTI__V1__VALUE__KIND_REAL:
        *value = tutti_value_float(message->real);
        return TUTTI_OK;
    case TUTTI__V1__VALUE__KIND_DTYPE:
        *value = tutti_value_dtype((tutti_dtype)message->dtype);
        return TUTTI_OK;
    case TUTTI__V1__VALUE__KIND_TEXT:
        return read_plain_text(TUTTI_VALUE_TEXT, message->text, value, err);
    case TUTTI__V1__VALUE__KIND_DATA:
        return read_plain_bytes(message->data, value, err);
    case TUTTI__V1__VALUE__KIND_DEVICE:
        return read_plain_text(TUTTI_VALUE_DEVICE, message->device, value, err);
    case TUTTI__V1__VALUE__KIND_SHAPE:
        return read_plain_shape(message->shape, value, err);
    case TUTTI__V1__VALUE__KIND_TENSOR:
        return read_plain_tensor(message, value, err);
    case TUTTI__V1__VALUE__KIND_NAME:
        return read_plain_text(TUTTI_VALUE_NAME, message->name, value, err);
    case TUTTI__V1__VALUE__KIND_FUNCTION:
        return read_plain_text(TUTTI_VALUE_FUNCTION, message->function, value, err);
    case TUTTI__V1__VALUE__KIND_NULL:
    case TUTTI__V1__VALUE__KIND__NOT_SET:
    default: /* a kind of a newer agent: there is something, and no word for it here */
        *value = tutti_value_null();
        return TUTTI_OK;
    }
}

tutti_code
client_read_plain(const Tutti__V1__Value *message, tutti_value *ret_value, tutti_error *err)
{
    tutti_value value = tutti_value_null();

    if (message != NULL) {
        TUTTI_TRY(read_plain_kind(message, &value, err));
    }
    *ret_value = value;
    return TUTTI_OK;
}

tutti_code
client_read_functions(Tutti__V1__FunctionInfo *const *messages, size_t count,
                      tutti_function_info **ret_infos, size_t *ret_count, tutti_error *err)
{
    tutti_function_info *infos;
    size_t i;

    if (ret_infos != NULL) {
        infos = calloc(count + 1, sizeof(*infos));
        if (infos == NULL) {
            return TUTTI_FAIL_MEMORY(err, "no memory for %zu functions", count);
        }
        for (i = 0; i < count; i++) {
            client_read_text(messages[i]->name, infos[i].name, sizeof(infos[i].name));
            client_read_text(messages[i]->source, infos[i].source, sizeof(infos[i].source));
            client_read_text(messages[i]->signature, infos[i].signature,
                             sizeof(infos[i].signature));
            infos[i].calls = messages[i]->calls;
        }
        *ret_infos = infos;
    }
    if (ret_count != NULL) {
        *ret_count = count;
    }
    return TUTTI_OK;
}

tutti_code
client_check_arguments(size_t count, tutti_error *err)
{
    if (count > TUTTI_ARGUMENTS_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "ARGUMENT_LIMIT",
                              "%zu arguments for a function, at most %d: put them into a tensor or "
                              "a text",
                              count, TUTTI_ARGUMENTS_MAX);
    }
    return TUTTI_OK;
}
