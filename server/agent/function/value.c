#include "server/agent/function/value.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/data/utf8.h"
#include "base/error/fail.h"

/* ------------------------------------------------------------------------------ texts */

bool
agent_is_utf8(const char *text, size_t size)
{
    size_t at = 0;

    while (at < size) {
        const size_t step = tutti_utf8_size(text + at, size - at);

        if (step == 0) {
            return false;
        }
        at += step;
    }
    return true;
}

/* ------------------------------------------------------------------------------ values */

const char *
agent_value_noun(int32_t kind)
{
    switch (kind) {
    case TUTTI_ANY_NULL:
        return "null";
    case TUTTI_ANY_INT:
    case TUTTI_ANY_BOOL:
        return "an int";
    case TUTTI_ANY_FLOAT:
        return "a float";
    case TUTTI_ANY_DTYPE:
        return "a dtype";
    case TUTTI_ANY_DEVICE:
        return "a device";
    case TUTTI_ANY_TENSOR:
        return "a tensor";
    case TUTTI_ANY_TEXT:
        return "a text";
    case TUTTI_ANY_BYTES:
        return "bytes";
    case TUTTI_ANY_SHAPE:
        return "a shape";
    case AGENT_ANY_FUNCTION:
        return "a function";
    default:
        return "nothing";
    }
}

static tutti_code
check_any_text(const char *text, size_t *ret_size, tutti_error *err)
{
    if (text == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_VALUE", "a text that is NULL");
    }
    *ret_size = strnlen(text, AGENT_VALUE_BYTES_MAX + 1);
    if (*ret_size > AGENT_VALUE_BYTES_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_VALUE",
                              "a text of more than %u bytes: give bytes in a tensor",
                              AGENT_VALUE_BYTES_MAX);
    }
    if (!agent_is_utf8(text, *ret_size)) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_VALUE",
                              "a text that is not UTF-8: give it as bytes");
    }
    *ret_size += 1;
    return TUTTI_OK;
}

static tutti_code
check_bytes(const tutti_span *span, size_t *ret_size, tutti_error *err)
{
    if (span == NULL || (span->data == NULL && span->size > 0)) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_VALUE", "bytes that are NULL");
    }
    if (span->size > AGENT_VALUE_BYTES_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_VALUE",
                              "%zu bytes, at most %u: give them in a tensor", span->size,
                              AGENT_VALUE_BYTES_MAX);
    }
    *ret_size = span->size;
    return TUTTI_OK;
}

static tutti_code
check_dims(const tutti_dims *dims, size_t *ret_size, tutti_error *err)
{
    if (dims == NULL || (dims->data == NULL && dims->size > 0)) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_VALUE", "a shape that is NULL");
    }
    if (dims->size > AGENT_VALUE_DIMS_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_VALUE",
                              "a shape of %zu dimensions, at most %d", dims->size,
                              AGENT_VALUE_DIMS_MAX);
    }
    *ret_size = dims->size * sizeof(dims->data[0]);
    return TUTTI_OK;
}

/* Is it a value, and how much memory does it point to? */
static tutti_code
check_any(const tutti_any *any, size_t *ret_size, tutti_error *err)
{
    char name[TUTTI_DEVICE_MAX + 1];

    switch (any->kind) {
    case TUTTI_ANY_NULL:
    case TUTTI_ANY_INT:
    case TUTTI_ANY_BOOL:
    case TUTTI_ANY_FLOAT:
        return TUTTI_OK;
    case TUTTI_ANY_DTYPE:
        if (tutti_dlpack_dtype(any->u.dtype) != TUTTI_DTYPE_NONE) {
            return TUTTI_OK;
        }
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_VALUE",
                              "a dtype that agents do not know: code %d, %d bits, %d lanes",
                              (int)any->u.dtype.code, (int)any->u.dtype.bits,
                              (int)any->u.dtype.lanes);
    case TUTTI_ANY_DEVICE:
        tutti_dlpack_device_name(any->u.device, name);
        if (name[0] != '\0') {
            return TUTTI_OK;
        }
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_VALUE",
                              "a device that agents do not know: type %d",
                              (int)any->u.device.device_type);
    case TUTTI_ANY_TEXT:
    case AGENT_ANY_FUNCTION:
        return check_any_text(any->u.text, ret_size, err);
    case TUTTI_ANY_BYTES:
        return check_bytes(any->u.bytes, ret_size, err);
    case TUTTI_ANY_SHAPE:
        return check_dims(any->u.shape, ret_size, err);
    default:
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_VALUE",
                              "kind %d is none that can be passed", (int)any->kind);
    }
}

static void
copy_memory(agent_value *self, const void *from, size_t size)
{
    if (size > 0) {
        memcpy(self->memory, from, size);
    }
}

/* The copy of what `any` points to. */
static void
take_memory(agent_value *self, const tutti_any *any, size_t size)
{
    switch (any->kind) {
    case TUTTI_ANY_TEXT:
    case AGENT_ANY_FUNCTION:
        copy_memory(self, any->u.text, size);
        self->any.u.text = (const char *)self->memory;
        break;
    case TUTTI_ANY_BYTES:
        copy_memory(self, any->u.bytes->data, size);
        self->span = (tutti_span){(const char *)self->memory, size};
        self->any.u.bytes = &self->span;
        break;
    case TUTTI_ANY_SHAPE:
        copy_memory(self, any->u.shape->data, size);
        self->dims = (tutti_dims){(const int64_t *)self->memory, any->u.shape->size};
        self->any.u.shape = &self->dims;
        break;
    default:
        break;
    }
}

static void
on_value_free(tutti_table_value *base)
{
    free(agent_value_of(base));
}

tutti_code
agent_value_new(const tutti_any *any, agent_value **ret_value, tutti_error *err)
{
    agent_value *self;
    size_t size = 0;

    TUTTI_TRY(check_any(any, &size, err));

    self = calloc(1, sizeof(*self) + size);
    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a value of %zu bytes", size);
    }
    self->base = (tutti_table_value){
        .refs = 1, .noun = agent_value_noun(any->kind), .on_free = on_value_free};
    self->any = *any;
    self->any.zero = 0;
    if (any->kind == TUTTI_ANY_BOOL) { /* there is no such kind on the wire */
        self->any = tutti_any_int(any->u.integer != 0);
    }
    take_memory(self, any, size);
    *ret_value = self;
    return TUTTI_OK;
}

void
agent_value_unref(agent_value *value)
{
    if (value != NULL) {
        tutti_table_value_unref(&value->base);
    }
}
