/*
 * The words of types.proto as structs of ours and back. Any thread. What is written borrows from
 * what was given, so it is packed before that changes.
 */
#include "server/agent/service/types_pb.h"

#include <string.h>

#include "base/error/fail.h"
#include "server/agent/tensor/table.h"
#include "server/agent/transfer/access.h"

/* Written to *ret_spec only when it is right: callers go on behind an error with zeros. */
tutti_code
agent_read_spec(const Tutti__V1__TensorSpec *message, tutti_spec *ret_spec, tutti_error *err)
{
    tutti_spec spec = {0};
    size_t i;

    if (message == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_SHAPE",
                              "no spec: say dtype and shape");
    }
    if (message->n_shape > TUTTI_DIMS_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_SHAPE",
                              "%zu dimensions, at most %d", message->n_shape, TUTTI_DIMS_MAX);
    }
    spec.dtype = (tutti_dtype)message->dtype;
    spec.dim_count = (uint32_t)message->n_shape;
    for (i = 0; i < message->n_shape; i++) {
        spec.dims[i] = message->shape[i];
    }
    TUTTI_TRY(tutti_spec_check(&spec, NULL, NULL, err));
    *ret_spec = spec;
    return TUTTI_OK;
}

void
agent_write_spec(const tutti_spec *spec, wire_spec *ret)
{
    tutti__v1__tensor_spec__init(&ret->message);
    memcpy(ret->dims, spec->dims, sizeof(ret->dims));
    ret->message.dtype = (Tutti__V1__Dtype)spec->dtype;
    ret->message.n_shape = spec->dim_count;
    ret->message.shape = ret->dims;
}

void
agent_write_ref(const char *handle, wire_spec *spec, Tutti__V1__TensorRef *ret)
{
    tutti__v1__tensor_ref__init(ret);
    ret->handle = (char *)(uintptr_t)handle;
    ret->spec = spec == NULL ? NULL : &spec->message;
}

void
agent_write_use(const agent_access *access, uint32_t lock, const tutti_spec *spec, wire_use *ret)
{
    tutti_table_handle(&access->lock_set.locks[lock], ret->handle);
    agent_write_spec(spec, &ret->spec);
    agent_write_ref(ret->handle, &ret->spec, &ret->message);
}

void
agent_write_error(const tutti_error *err, Tutti__V1__Error *ret)
{
    static const char *const scopes[] = {"", "group", "agent"};

    tutti__v1__error__init(ret);
    ret->code = (uint32_t)err->code;
    ret->reason = (char *)(uintptr_t)err->reason;
    ret->text = (char *)(uintptr_t)err->text;
    ret->group = (char *)(uintptr_t)err->group;
    ret->sequence = err->sequence;
    ret->rank = err->rank;
    ret->scope = (char *)(uintptr_t)scopes[err->scope];
}

void
agent_fail_answer(tutti_rpc_call *call)
{
    tutti_error err;

    (void)TUTTI_FAIL_MEMORY(&err, "no memory to answer");
    tutti_rpc_call_fail(call, &err);
}
