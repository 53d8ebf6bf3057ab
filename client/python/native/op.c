/*
 * Client.op(): one op, until it has ended. Its arguments and what it gives: call.c; it raises what
 * set_error() makes.
 */
#include <string.h>

#include "native.h"
#include "tutti/list.h"
#include "tutti/op_data.h"

/* The root of a broadcast gives its buffer, the others take into theirs. */
static tutti_code
run_broadcast(tutti_client *client, const native_call *call, tutti_error *err)
{
    void *data = call->input.obj != NULL ? call->input.buf : call->output.buf;

    return tutti_broadcast_data(client, &call->op, &call->spec, data, err);
}

static tutti_code
run_data(tutti_client *client, const native_call *call, tutti_op_result *result, tutti_error *err)
{
    const tutti_op *op = &call->op;
    const tutti_spec *spec = &call->spec;
    const void *data = call->input.buf;
    const uint64_t bytes = (uint64_t)call->output.len;
    void *into = call->output.buf;

    switch (call->kind) {
    case TUTTI_OP_ALL_REDUCE:
        return tutti_all_reduce_data(client, op, spec, data, into, err);
    case TUTTI_OP_REDUCE_TO_ROOT:
        return tutti_reduce_to_root_data(client, op, spec, data, into, err);
    case TUTTI_OP_REDUCE_SCATTER:
        return tutti_reduce_scatter_data(client, op, spec, data, into, bytes, err);
    case TUTTI_OP_BROADCAST:
        return run_broadcast(client, call, err);
    case TUTTI_OP_ALL_GATHER:
        return tutti_all_gather_data(client, op, spec, data, into, bytes, err);
    case TUTTI_OP_GATHER:
        return tutti_gather_data(client, op, spec, data, into, bytes, err);
    case TUTTI_OP_SCATTER:
        return tutti_scatter_data(client, op, spec, data, into, bytes, err);
    case TUTTI_OP_ALL_TO_ALL:
        return tutti_all_to_all_data(client, op, spec, data, into, err);
    case TUTTI_OP_PERMUTE:
        return tutti_permute_data(client, op, spec, data, into, err);
    case TUTTI_OP_SEND:
        return tutti_send_data(client, op, spec, data, err);
    case TUTTI_OP_RECV:
        return tutti_recv_data(client, op, spec, into, result, err);
    default:
        return tutti_barrier(client, op, NULL, err);
    }
}

typedef tutti_code (*op_function)(tutti_client *, const tutti_op *, tutti_op_result *,
                                  tutti_error *);

static tutti_code
run_handles(tutti_client *client, const native_call *call, tutti_op_result *result,
            tutti_error *err)
{
    static const op_function functions[TUTTI_OP_KINDS + 1] = {
        [TUTTI_OP_ALL_REDUCE] = tutti_all_reduce,
        [TUTTI_OP_REDUCE_TO_ROOT] = tutti_reduce_to_root,
        [TUTTI_OP_REDUCE_SCATTER] = tutti_reduce_scatter,
        [TUTTI_OP_BROADCAST] = tutti_broadcast,
        [TUTTI_OP_ALL_GATHER] = tutti_all_gather,
        [TUTTI_OP_GATHER] = tutti_gather,
        [TUTTI_OP_SCATTER] = tutti_scatter,
        [TUTTI_OP_ALL_TO_ALL] = tutti_all_to_all,
        [TUTTI_OP_PERMUTE] = tutti_permute,
        [TUTTI_OP_SEND] = tutti_send,
        [TUTTI_OP_RECV] = tutti_recv,
    };
    const op_function run = (unsigned)call->kind <= TUTTI_OP_KINDS ? functions[call->kind] : NULL;

    return (run == NULL ? tutti_barrier : run)(client, &call->op, result, err);
}

static PyObject *
run_call(native_client *self, native_call *call)
{
    tutti_client *client = self->client;
    tutti_op_result result = {0};
    tutti_op_more more = {0};
    PyObject *said = NULL;
    tutti_error err;
    tutti_code code;

    call->op.more = &more;
    Py_BEGIN_ALLOW_THREADS code = native_call_has_handles(call)
                                      ? run_handles(client, call, &result, &err)
                                      : run_data(client, call, &result, &err);
    Py_END_ALLOW_THREADS if (code == TUTTI_OK && PyErr_Occurred() == NULL)
    {
        said = native_call_said(call, &result, &more);
    }
    else
    {
        (void)native_raise(&err);
    }
    tutti_op_more_free(&more);
    return said;
}

PyObject *
native_op(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    native_client *client = (native_client *)self;
    PyObject *said = NULL;
    native_call call;

    if (native_call_read(&call, args, count) && native_client_enter(client)) {
        said = run_call(client, &call);
        native_client_leave(client);
    }
    native_call_free(&call);
    return said;
}
