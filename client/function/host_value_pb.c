/* Values of calls in a host: the arguments as functions of plug-ins take them, and what they return. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "client/conn/client.h"
#include "client/conn/types_pb.h"
#include "client/function/host_pb.h"
#include "tensor/dlpack.h"

/* ------------------------------------------------------------------------------ tensors */

static tutti_code
check_memory(const Tutti__V1__TensorMemory *memory, tutti_spec *ret_spec, tutti_error *err)
{
    uint64_t bytes = 0;

    if (memory->ipc_handle.len > 0) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_INVALID_ARGUMENT, "BAD_VALUE",
            "%.63s is on a GPU, which a host of libtutti does not map: copy it to "
            "\"cpu\", or call a plug-in or a host in Python",
            memory->handle);
    }
    TUTTI_TRY(client_read_spec(memory->spec, ret_spec, err));
    if (tutti_spec_size(ret_spec, NULL, &bytes, NULL) != TUTTI_OK || bytes != memory->byte_count ||
        (bytes > 0 && memory->token.len != TUTTI_SHARE_TOKEN_BYTES)) {
        return TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BAD_ANSWER",
                              "the agent sent a malformed offer of its memory");
    }
    return TUTTI_OK;
}

static tutti_code
map_tensor(const host_call *call, const Tutti__V1__TensorMemory *memory, host_tensor *tensor,
           tutti_error *err)
{
    if (memory->byte_count == 0) {
        return TUTTI_OK;
    }
    TUTTI_TRY(tutti_share_take(memory->socket, (tutti_bytes){memory->token.data, memory->token.len},
                               call->host->client->settings.timeout_ms, &tensor->view, err));
    if (tensor->view.bytes != memory->byte_count || !tensor->view.writable) {
        tutti_share_drop(&tensor->view);
        return TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BAD_ANSWER",
                              "the memory that the agent sent is not the memory of %.63s",
                              memory->handle);
    }
    return TUTTI_OK;
}

static void
fill_dl(host_tensor *tensor, const tutti_spec *spec)
{
    memcpy(tensor->shape, spec->dims, sizeof(tensor->shape));
    tensor->dl = (DLTensor){.data = tensor->view.data,
                            .device = {1, 0},
                            .ndim = (int32_t)spec->dim_count,
                            .dtype = tutti_dlpack_of_dtype(spec->dtype),
                            .shape = tensor->shape};
}

tutti_code
host_open_tensor(host_call *call, const Tutti__V1__TensorMemory *memory, host_tensor **ret_tensor,
                 tutti_error *err)
{
    host_tensor *tensor;
    tutti_spec spec;
    tutti_code code;

    TUTTI_TRY(check_memory(memory, &spec, err));
    tensor = calloc(1, sizeof(*tensor));
    if (tensor == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a tensor");
    }
    code = client_read_id(memory->handle, tensor->handle, err);
    if (code == TUTTI_OK) {
        code = map_tensor(call, memory, tensor, err);
    }
    if (code != TUTTI_OK) {
        free(tensor);
        return code;
    }
    fill_dl(tensor, &spec);
    tutti_list_init(&tensor->link);
    tutti_list_add(&call->tensors, &tensor->link);
    *ret_tensor = tensor;
    return TUTTI_OK;
}

void
host_close_tensors(host_call *call)
{
    tutti_list_node *link;

    while ((link = tutti_list_pop(&call->tensors)) != NULL) {
        host_tensor *tensor = tutti_container_of(link, host_tensor, link);

        tutti_share_drop(&tensor->view);
        free(tensor);
    }
}

const host_tensor *
host_find_tensor(const host_call *call, const DLTensor *dl)
{
    const tutti_list_node *link;

    for (link = call->tensors.next; link != &call->tensors; link = link->next) {
        const host_tensor *tensor = tutti_container_of(link, const host_tensor, link);

        if (&tensor->dl == dl) {
            return tensor;
        }
    }
    return NULL;
}

/* ------------------------------------------------------------------------------ arguments */

static tutti_code
refuse_arg(size_t i, const char *what, tutti_error *err)
{
    return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_VALUE", "argument %zu is %s", i + 1,
                          what);
}

static tutti_code
open_pointed(host_call *call, size_t i, const Tutti__V1__Value *value, tutti_error *err)
{
    tutti_any *any = &call->args[i];

    switch (value->kind_case) {
    case TUTTI__V1__VALUE__KIND_DATA:
        call->spans[i] = (tutti_span){(const char *)value->data.data, value->data.len};
        any->kind = TUTTI_ANY_BYTES;
        any->u.bytes = &call->spans[i];
        return TUTTI_OK;
    case TUTTI__V1__VALUE__KIND_SHAPE:
        call->dims[i] = (tutti_dims){value->shape->dims, value->shape->n_dims};
        any->kind = TUTTI_ANY_SHAPE;
        any->u.shape = &call->dims[i];
        return TUTTI_OK;
    case TUTTI__V1__VALUE__KIND_FUNCTION: /* as functions of plug-ins see them */
        *any = tutti_any_text(value->function);
        return TUTTI_OK;
    case TUTTI__V1__VALUE__KIND_DEVICE:
        any->kind = TUTTI_ANY_DEVICE;
        return tutti_dlpack_parse_device(value->device, &any->u.device)
                   ? TUTTI_OK
                   : refuse_arg(i, "a device that libtutti does not know", err);
    default:
        return refuse_arg(i, "of a kind that libtutti does not know", err);
    }
}

static tutti_code
open_value(host_call *call, size_t i, const Tutti__V1__Value *value, tutti_error *err)
{
    tutti_any *any = &call->args[i];

    *any = tutti_any_null();
    switch (value->kind_case) {
    case TUTTI__V1__VALUE__KIND_NULL:
        return TUTTI_OK;
    case TUTTI__V1__VALUE__KIND_INTEGER:
        *any = tutti_any_int(value->integer);
        return TUTTI_OK;
    case TUTTI__V1__VALUE__KIND_REAL:
        *any = tutti_any_float(value->real);
        return TUTTI_OK;
    case TUTTI__V1__VALUE__KIND_TEXT:
        *any = tutti_any_text(value->text);
        return TUTTI_OK;
    case TUTTI__V1__VALUE__KIND_DTYPE:
        any->kind = TUTTI_ANY_DTYPE;
        any->u.dtype = tutti_dlpack_of_dtype((tutti_dtype)value->dtype);
        return TUTTI_OK;
    default:
        return open_pointed(call, i, value, err);
    }
}

tutti_code
host_open_args(host_call *call, tutti_error *err)
{
    host_tensor *tensor = NULL;
    size_t i;

    for (i = 0; i < call->said->n_args; i++) {
        const Tutti__V1__HostArg *arg = call->said->args[i];

        if (arg->memory != NULL) {
            TUTTI_TRY(host_open_tensor(call, arg->memory, &tensor, err));
            call->args[i] = tutti_any_tensor(&tensor->dl);
        } else if (arg->value != NULL) {
            TUTTI_TRY(open_value(call, i, arg->value, err));
        } else {
            return refuse_arg(i, "missing in the agent's message", err);
        }
    }
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ results */

static tutti_code
refuse_result(const char *what, tutti_error *err)
{
    return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_VALUE", "the function returned %s",
                          what);
}

/* Texts of messages are UTF-8: another one would end the stream, and with it the host. */
static tutti_code
check_returned_text(const char *text, tutti_error *err)
{
    const size_t size = text == NULL ? 0 : strnlen(text, TUTTI_VALUE_BYTES_MAX + 1);
    char *clean;
    bool same;

    if (text == NULL || size > TUTTI_VALUE_BYTES_MAX) {
        return refuse_result("a text that is NULL or longer than 1 MiB", err);
    }
    clean = malloc(size + 1);
    if (clean == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a text");
    }
    tutti_rpc_text_clean(clean, size + 1, text);
    same = strcmp(clean, text) == 0;
    free(clean);
    return same ? TUTTI_OK : refuse_result("a text that is not UTF-8: return bytes", err);
}

static tutti_code
write_any_text(const tutti_any *any, Tutti__V1__Value *ret, tutti_error *err)
{
    TUTTI_TRY(check_returned_text(any->u.text, err));
    ret->kind_case = TUTTI__V1__VALUE__KIND_TEXT;
    ret->text = client_write_text(any->u.text);
    return TUTTI_OK;
}

static tutti_code
write_any_bytes(const tutti_any *any, Tutti__V1__Value *ret, tutti_error *err)
{
    const tutti_span *span = any->u.bytes;

    if (span == NULL || (span->data == NULL && span->size > 0) ||
        span->size > TUTTI_VALUE_BYTES_MAX) {
        return refuse_result("bytes that are NULL or more than 1 MiB", err);
    }
    ret->kind_case = TUTTI__V1__VALUE__KIND_DATA;
    ret->data = client_write_bytes(span->data, span->size);
    return TUTTI_OK;
}

static tutti_code
write_shape(const tutti_any *any, Tutti__V1__Value *ret, Tutti__V1__Shape *shape, tutti_error *err)
{
    const tutti_dims *dims = any->u.shape;

    if (dims == NULL || (dims->data == NULL && dims->size > 0) ||
        dims->size > TUTTI_VALUE_DIMS_MAX) {
        return refuse_result("a shape that is NULL or has more than 64 dimensions", err);
    }
    shape->n_dims = dims->size;
    shape->dims = (int64_t *)(uintptr_t)dims->data;
    ret->kind_case = TUTTI__V1__VALUE__KIND_SHAPE;
    ret->shape = shape;
    return TUTTI_OK;
}

static tutti_code
write_dtype(const tutti_any *any, Tutti__V1__Value *ret, tutti_error *err)
{
    const tutti_dtype dtype = tutti_dlpack_dtype(any->u.dtype);

    if (dtype == TUTTI_DTYPE_NONE) {
        return refuse_result("a dtype that agents do not know", err);
    }
    ret->kind_case = TUTTI__V1__VALUE__KIND_DTYPE;
    ret->dtype = (Tutti__V1__Dtype)dtype;
    return TUTTI_OK;
}

static tutti_code
write_device(const tutti_any *any, Tutti__V1__Value *ret, char ret_device[TUTTI_DEVICE_MAX + 1],
             tutti_error *err)
{
    tutti_dlpack_device_name(any->u.device, ret_device);
    if (ret_device[0] == '\0') {
        return refuse_result("a device that agents do not know", err);
    }
    ret->kind_case = TUTTI__V1__VALUE__KIND_DEVICE;
    ret->device = ret_device;
    return TUTTI_OK;
}

static tutti_code
write_tensor(const host_call *call, const tutti_any *any, Tutti__V1__Value *ret, tutti_error *err)
{
    const host_tensor *tensor = host_find_tensor(call, any->u.tensor);

    if (tensor == NULL) {
        return refuse_result("a tensor that is neither an argument nor of env->make", err);
    }
    ret->kind_case = TUTTI__V1__VALUE__KIND_TENSOR;
    ret->tensor = client_write_text(tensor->handle);
    return TUTTI_OK;
}

tutti_code
host_write_value(const host_call *call, const tutti_any *any, Tutti__V1__Value *ret,
                 Tutti__V1__Shape *ret_shape, char ret_device[TUTTI_DEVICE_MAX + 1],
                 tutti_error *err)
{
    switch (any->kind) {
    case TUTTI_ANY_NULL:
        ret->kind_case = TUTTI__V1__VALUE__KIND_NULL;
        ret->null = true;
        return TUTTI_OK;
    case TUTTI_ANY_INT:
    case TUTTI_ANY_BOOL:
        ret->kind_case = TUTTI__V1__VALUE__KIND_INTEGER;
        ret->integer = any->kind == TUTTI_ANY_BOOL ? any->u.integer != 0 : any->u.integer;
        return TUTTI_OK;
    case TUTTI_ANY_FLOAT:
        ret->kind_case = TUTTI__V1__VALUE__KIND_REAL;
        ret->real = any->u.real;
        return TUTTI_OK;
    case TUTTI_ANY_DTYPE:
        return write_dtype(any, ret, err);
    case TUTTI_ANY_DEVICE:
        return write_device(any, ret, ret_device, err);
    case TUTTI_ANY_TENSOR:
        return write_tensor(call, any, ret, err);
    case TUTTI_ANY_TEXT:
        return write_any_text(any, ret, err);
    case TUTTI_ANY_BYTES:
        return write_any_bytes(any, ret, err);
    case TUTTI_ANY_SHAPE:
        return write_shape(any, ret, ret_shape, err);
    default:
        return refuse_result("something that is no value", err);
    }
}
