#include "server/agent/service/value_pb.h"

#include <stdio.h>
#include <string.h>

#include "base/error/fail.h"

/* ------------------------------------------------------------------------------ in */

static tutti_any
any_of(int32_t kind)
{
    tutti_any any = tutti_any_null();

    any.kind = kind;
    return any;
}

static tutti_code
read_device(const char *text, tutti_any *any, tutti_error *err)
{
    any->kind = TUTTI_ANY_DEVICE;
    if (!tutti_dlpack_parse_device(text, &any->u.device)) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_VALUE",
                              "\"%.40s\" is no device: cpu, cuda:0 ...", text);
    }
    return TUTTI_OK;
}

static tutti_code
read_function(const char *text, tutti_any *any, tutti_error *err)
{
    any->kind = AGENT_ANY_FUNCTION;
    any->u.text = text;
    if (!agent_function_is_name(text, AGENT_FUNCTION_NAME_MAX)) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_VALUE",
                              "\"%.100s\" is no name of a function", text);
    }
    return TUTTI_OK;
}

/* What points to memory points to `span` and `dims`, and those into the message. */
static tutti_code
read_any(const Tutti__V1__Value *message, tutti_span *span, tutti_dims *dims, tutti_any *any,
         tutti_error *err)
{
    switch (message->kind_case) {
    case TUTTI__V1__VALUE__KIND_NULL:
        return TUTTI_OK;
    case TUTTI__V1__VALUE__KIND_INTEGER:
        *any = tutti_any_int(message->integer);
        return TUTTI_OK;
    case TUTTI__V1__VALUE__KIND_REAL:
        *any = tutti_any_float(message->real);
        return TUTTI_OK;
    case TUTTI__V1__VALUE__KIND_TEXT:
        *any = tutti_any_text(message->text);
        return TUTTI_OK;
    case TUTTI__V1__VALUE__KIND_DATA:
        *span = (tutti_span){(const char *)message->data.data, message->data.len};
        *any = any_of(TUTTI_ANY_BYTES);
        any->u.bytes = span;
        return TUTTI_OK;
    case TUTTI__V1__VALUE__KIND_DTYPE:
        *any = any_of(TUTTI_ANY_DTYPE);
        any->u.dtype = tutti_dlpack_of_dtype((tutti_dtype)message->dtype);
        return TUTTI_OK;
    case TUTTI__V1__VALUE__KIND_DEVICE:
        return read_device(message->device, any, err);
    case TUTTI__V1__VALUE__KIND_SHAPE:
        *dims = (tutti_dims){message->shape->dims, message->shape->n_dims};
        *any = any_of(TUTTI_ANY_SHAPE);
        any->u.shape = dims;
        return TUTTI_OK;
    case TUTTI__V1__VALUE__KIND_FUNCTION:
        return read_function(message->function, any, err);
    default:
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_VALUE",
                              "a value without a kind, or of one that this agent does not know");
    }
}

tutti_code
agent_read_value(const Tutti__V1__Value *message, agent_value **ret_value, tutti_error *err)
{
    tutti_any any = tutti_any_null();
    tutti_span span;
    tutti_dims dims;

    *ret_value = NULL;
    if (message == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_VALUE", "no value");
    }
    if (message->kind_case == TUTTI__V1__VALUE__KIND_TENSOR ||
        message->kind_case == TUTTI__V1__VALUE__KIND_NAME) {
        return TUTTI_OK;
    }
    TUTTI_TRY(read_any(message, &span, &dims, &any, err));
    return agent_value_new(&any, ret_value, err);
}

/* ------------------------------------------------------------------------------ out */

static void
write_memory(const agent_value *value, wire_value *ret)
{
    Tutti__V1__Value *message = &ret->message;
    const tutti_any *any = &value->any;

    switch (any->kind) {
    case TUTTI_ANY_TEXT:
        message->kind_case = TUTTI__V1__VALUE__KIND_TEXT;
        message->text = (char *)(uintptr_t)any->u.text;
        break;
    case AGENT_ANY_FUNCTION:
        message->kind_case = TUTTI__V1__VALUE__KIND_FUNCTION;
        message->function = (char *)(uintptr_t)any->u.text;
        break;
    case TUTTI_ANY_BYTES:
        message->kind_case = TUTTI__V1__VALUE__KIND_DATA;
        message->data.data = (uint8_t *)(uintptr_t)any->u.bytes->data;
        message->data.len = any->u.bytes->size;
        break;
    case TUTTI_ANY_SHAPE:
        message->kind_case = TUTTI__V1__VALUE__KIND_SHAPE;
        tutti__v1__shape__init(&ret->shape);
        ret->shape.n_dims = any->u.shape->size;
        ret->shape.dims = (int64_t *)(uintptr_t)any->u.shape->data;
        message->shape = &ret->shape;
        break;
    default:
        message->kind_case = TUTTI__V1__VALUE__KIND_NULL;
        message->null = true;
        break;
    }
}

void
agent_write_value(const agent_value *value, wire_value *ret)
{
    Tutti__V1__Value *message = &ret->message;

    tutti__v1__value__init(message);
    switch (value->any.kind) {
    case TUTTI_ANY_INT:
        message->kind_case = TUTTI__V1__VALUE__KIND_INTEGER;
        message->integer = value->any.u.integer;
        break;
    case TUTTI_ANY_FLOAT:
        message->kind_case = TUTTI__V1__VALUE__KIND_REAL;
        message->real = value->any.u.real;
        break;
    case TUTTI_ANY_DTYPE:
        message->kind_case = TUTTI__V1__VALUE__KIND_DTYPE;
        message->dtype = (Tutti__V1__Dtype)tutti_dlpack_dtype(value->any.u.dtype);
        break;
    case TUTTI_ANY_DEVICE:
        message->kind_case = TUTTI__V1__VALUE__KIND_DEVICE;
        tutti_dlpack_device_name(value->any.u.device, ret->text);
        message->device = ret->text;
        break;
    default:
        write_memory(value, ret);
        break;
    }
}

void
agent_write_tensor_value(const char *handle, const tutti_spec *spec, wire_value *ret)
{
    tutti__v1__value__init(&ret->message);
    (void)snprintf(ret->text, sizeof(ret->text), "%s", handle);
    ret->message.kind_case = TUTTI__V1__VALUE__KIND_TENSOR;
    ret->message.tensor = ret->text;
    agent_write_spec(spec, &ret->spec);
    ret->message.spec = &ret->spec.message;
}

void
agent_write_function(const agent_function *function, Tutti__V1__FunctionInfo *ret)
{
    tutti__v1__function_info__init(ret);
    ret->name = (char *)(uintptr_t)function->name;
    ret->source = (char *)(uintptr_t)function->source;
    ret->signature = (char *)(uintptr_t)function->signature;
    ret->calls = function->calls;
}
