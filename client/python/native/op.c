/*
 * Client.op(kind, input, output, dtype, group, reduce, number, timeout_ms, sequence, step, token)
 *
 * kind    a tutti_op_kind
 * input   a handle, or what has a buffer, row-major; None = this rank gives nothing
 * output  likewise, writable; of another kind of memory than the input it is not: two handles, or
 *         two buffers
 * dtype   of the buffers: a tutti_dtype. Their shape is the input's
 * number  the root, or the factor of PREMUL_SUM
 *
 * All have been checked by the package; what is wrong nevertheless is libtutti's to refuse.
 * Returns None; raises what set_error() makes.
 */
#include <string.h>

#include "native.h"
#include "tutti/op_data.h"

enum {
    KIND,
    INPUT,
    OUTPUT,
    DTYPE,
    GROUP,
    REDUCE,
    NUMBER,
    TIMEOUT,
    SEQUENCE,
    STEP,
    TOKEN,
    ARGS
};

/* One op: what was given, as libtutti takes it. */
typedef struct op_call {
    tutti_op_kind kind;
    tutti_op op;
    tutti_spec spec;
    Py_buffer input; /* .obj NULL = it is not a buffer */
    Py_buffer output;
} op_call;

/* [out, borrowed] ret_text  NULL = it is no text */
static bool
read_text(PyObject *thing, const char **ret_text)
{
    *ret_text = NULL;
    if (PyUnicode_Check(thing)) {
        *ret_text = PyUnicode_AsUTF8AndSize(thing, NULL);
        return *ret_text != NULL;
    }
    return true;
}

static bool
read_thing(PyObject *thing, int flags, const char **ret_handle, Py_buffer *ret_buffer)
{
    if (thing == Py_None) {
        return true;
    }
    if (!read_text(thing, ret_handle)) {
        return false;
    }
    if (*ret_handle == NULL && PyObject_GetBuffer(thing, ret_buffer, flags) != 0) {
        ret_buffer->obj = NULL;
        return false;
    }
    return true;
}

static bool
read_numbers(op_call *call, PyObject *const *args)
{
    const double number = PyFloat_AsDouble(args[NUMBER]);

    call->kind = (tutti_op_kind)PyLong_AsLong(args[KIND]);
    call->spec.dtype = (tutti_dtype)PyLong_AsLong(args[DTYPE]);
    call->op.reduce = (tutti_reduce)PyLong_AsLong(args[REDUCE]);
    call->op.factor = number;
    call->op.root = call->op.reduce == TUTTI_REDUCE_PREMUL_SUM ? 0 : (int32_t)number;
    call->op.timeout_ms = (uint32_t)PyLong_AsUnsignedLong(args[TIMEOUT]);
    call->op.sequence = PyLong_AsUnsignedLongLong(args[SEQUENCE]);
    call->op.step = PyLong_AsUnsignedLongLong(args[STEP]);
    call->op.token = PyLong_AsUnsignedLongLong(args[TOKEN]);
    return PyErr_Occurred() == NULL;
}

/* Of a call without a buffer as input the spec has no dimensions; it is not looked at then. */
static bool
read_spec(op_call *call)
{
    int i;

    if (call->input.obj == NULL) {
        return true;
    }
    if (call->input.ndim > TUTTI_DIMS_MAX) {
        PyErr_Format(PyExc_ValueError, "%d dimensions, at most %d", call->input.ndim,
                     TUTTI_DIMS_MAX);
        return false;
    }
    call->spec.dim_count = (uint32_t)call->input.ndim;
    for (i = 0; i < call->input.ndim; i++) {
        call->spec.dims[i] = call->input.shape[i];
    }
    return true;
}

/* On failure what was taken is still to be given back. */
static bool
read_call(op_call *call, PyObject *const *args)
{
    const int read = PyBUF_C_CONTIGUOUS | PyBUF_ND;

    memset(call, 0, sizeof(*call));
    tutti_op_init(&call->op);
    return read_numbers(call, args) && read_text(args[GROUP], &call->op.group) &&
           read_thing(args[INPUT], read, &call->op.input, &call->input) &&
           read_thing(args[OUTPUT], read | PyBUF_WRITABLE, &call->op.output, &call->output) &&
           read_spec(call);
}

static void
free_call(op_call *call)
{
    PyBuffer_Release(&call->input);
    PyBuffer_Release(&call->output);
}

/* ------------------------------------------------------------------------------ running it */

static tutti_code
run_data(tutti_client *client, const op_call *call, tutti_error *err)
{
    const tutti_op *op = &call->op;
    const tutti_spec *spec = &call->spec;
    const void *data = call->input.buf;
    const uint64_t bytes = (uint64_t)call->output.len;
    void *result = call->output.buf;

    switch (call->kind) {
    case TUTTI_OP_ALL_REDUCE:
        return tutti_all_reduce_data(client, op, spec, data, result, err);
    case TUTTI_OP_REDUCE_TO_ROOT:
        return tutti_reduce_to_root_data(client, op, spec, data, result, err);
    case TUTTI_OP_REDUCE_SCATTER:
        return tutti_reduce_scatter_data(client, op, spec, data, result, bytes, err);
    case TUTTI_OP_ALL_GATHER:
        return tutti_all_gather_data(client, op, spec, data, result, bytes, err);
    case TUTTI_OP_ALL_TO_ALL:
        return tutti_all_to_all_data(client, op, spec, data, result, err);
    default:
        return tutti_barrier(client, op, NULL, err);
    }
}

static tutti_code
run_handles(tutti_client *client, const op_call *call, tutti_error *err)
{
    tutti_op_result result;

    switch (call->kind) {
    case TUTTI_OP_ALL_REDUCE:
        return tutti_all_reduce(client, &call->op, &result, err);
    case TUTTI_OP_REDUCE_TO_ROOT:
        return tutti_reduce_to_root(client, &call->op, &result, err);
    case TUTTI_OP_REDUCE_SCATTER:
        return tutti_reduce_scatter(client, &call->op, &result, err);
    case TUTTI_OP_ALL_GATHER:
        return tutti_all_gather(client, &call->op, &result, err);
    case TUTTI_OP_ALL_TO_ALL:
        return tutti_all_to_all(client, &call->op, &result, err);
    default:
        return tutti_barrier(client, &call->op, &result, err);
    }
}

static PyObject *
run_call(native_client *self, const op_call *call)
{
    tutti_client *client = self->client;
    tutti_error err;
    tutti_code code;

    Py_BEGIN_ALLOW_THREADS code =
        call->op.input != NULL ? run_handles(client, call, &err) : run_data(client, call, &err);
    Py_END_ALLOW_THREADS return code == TUTTI_OK && PyErr_Occurred() == NULL ? Py_NewRef(Py_None)
                                                                             : native_raise(&err);
}

PyObject *
native_op(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    native_client *client = (native_client *)self;
    PyObject *said = NULL;
    op_call call;

    if (count != ARGS) {
        return PyErr_Format(PyExc_TypeError, "op() takes %d arguments, not %zd", (int)ARGS, count);
    }
    if (read_call(&call, args) && native_client_enter(client)) {
        said = run_call(client, &call);
        native_client_leave(client);
    }
    free_call(&call);
    return said;
}
