/*
 * A call: the arguments of Client.op() and Queue.submit() as libtutti takes them, and what they
 * give.
 *
 *     (kind, input, output, dtype, group, reduce, number, timeout_ms, sequence, step, token, tag[, src_dst[, async]])
 *
 * kind    a tutti_op_kind
 * input   a handle, or what has a buffer, row-major; None = this rank gives nothing
 * output  likewise, writable; None = this rank takes nothing, or a new tensor. Of another kind of
 *         memory than the input it is not: two handles, or two buffers
 * dtype   of the buffers: a tutti_dtype. Their shape is the input's, or the output's without one
 * reduce  a tutti_reduce; 0 of a recv = what comes must have the shape of the output
 * number  the root, the peer, or the factor of PREMUL_SUM
 * src_dst of a permute: what has a buffer of int32; None or left out = this op has none
 * async   whether the op is on handles and goes on behind the call; left out = no
 *
 * All have been checked by the package; what is wrong nevertheless is libtutti's to refuse.
 *
 * They give (work, handle) of an async op, with handle "" where it has no result; (source, source_global,
 * meta) of a recv; (handle, dtype, shape) where an op on handles without an output has made a tensor; else None.
 */
#include <string.h>

#include "native.h"

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
    TAG,
    SRC_DST,
    ASYNC,
    ARGS_MAX,
    ARGS_MIN = SRC_DST
};

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

static void
set_number(native_call *call, double number)
{
    switch (call->kind) {
    case TUTTI_OP_REDUCE_TO_ROOT:
    case TUTTI_OP_BROADCAST:
    case TUTTI_OP_GATHER:
    case TUTTI_OP_SCATTER:
        call->op.root = (int32_t)number;
        break;
    case TUTTI_OP_SEND:
    case TUTTI_OP_RECV:
        call->op.peer = (int32_t)number;
        break;
    default:
        call->op.factor = number;
    }
}

static bool
read_numbers(native_call *call, PyObject *const *args)
{
    const double number = PyFloat_AsDouble(args[NUMBER]);

    call->kind = (tutti_op_kind)PyLong_AsLong(args[KIND]);
    call->spec.dtype = (tutti_dtype)PyLong_AsLong(args[DTYPE]);
    call->op.reduce = (tutti_reduce)PyLong_AsLong(args[REDUCE]);
    set_number(call, number);
    call->op.timeout_ms = (uint32_t)PyLong_AsUnsignedLong(args[TIMEOUT]);
    call->op.sequence = PyLong_AsUnsignedLongLong(args[SEQUENCE]);
    call->op.step = PyLong_AsUnsignedLongLong(args[STEP]);
    call->op.token = PyLong_AsUnsignedLongLong(args[TOKEN]);
    call->op.tag = (uint32_t)PyLong_AsUnsignedLong(args[TAG]);
    return PyErr_Occurred() == NULL;
}

/* Without a buffer the spec has no dimensions; it is not looked at then. */
static bool
read_spec(native_call *call)
{
    const Py_buffer *buffer = call->input.obj != NULL ? &call->input : &call->output;
    int i;

    if (buffer->obj == NULL) {
        return true;
    }
    if (buffer->ndim > TUTTI_DIMS_MAX) {
        PyErr_Format(PyExc_ValueError, "%d dimensions, at most %d", buffer->ndim, TUTTI_DIMS_MAX);
        return false;
    }
    call->spec.dim_count = (uint32_t)buffer->ndim;
    for (i = 0; i < buffer->ndim; i++) {
        call->spec.dims[i] = buffer->shape[i];
    }
    if (call->kind == TUTTI_OP_RECV && (int)call->op.reduce == 0) {
        call->op.expect = &call->spec;
    }
    return true;
}

/* [in] args  those behind `tag`, `count` of them */
static bool
read_more(native_call *call, PyObject *const *args, Py_ssize_t count)
{
    if (count > 0 && args[0] != Py_None) {
        if (PyObject_GetBuffer(args[0], &call->src_dst, PyBUF_C_CONTIGUOUS) != 0) {
            call->src_dst.obj = NULL;
            return false;
        }
        call->op.src_dst = call->src_dst.buf;
        call->op.src_dst_count = (size_t)call->src_dst.len / sizeof(*call->op.src_dst);
    }
    if (count > 1) {
        const int is_async = PyObject_IsTrue(args[1]);

        call->op.async = is_async > 0;
        return is_async >= 0;
    }
    return true;
}

static bool
read_arguments(native_call *call, PyObject *const *args, Py_ssize_t count)
{
    const int read = PyBUF_C_CONTIGUOUS | PyBUF_ND;

    return read_numbers(call, args) && read_text(args[GROUP], &call->op.group) &&
           read_thing(args[INPUT], read, &call->op.input, &call->input) &&
           read_thing(args[OUTPUT], read | PyBUF_WRITABLE, &call->op.output, &call->output) &&
           read_spec(call) && read_more(call, args + ARGS_MIN, count - ARGS_MIN);
}

bool
native_call_read(native_call *call, PyObject *const *args, Py_ssize_t count)
{
    memset(call, 0, sizeof(*call));
    tutti_op_init(&call->op);
    if (count < ARGS_MIN || count > ARGS_MAX) {
        PyErr_Format(PyExc_TypeError, "an op takes %d to %d arguments, not %zd", (int)ARGS_MIN,
                     (int)ARGS_MAX, count);
        return false;
    }
    return read_arguments(call, args, count);
}

void
native_call_free(native_call *call)
{
    PyBuffer_Release(&call->input);
    PyBuffer_Release(&call->output);
    PyBuffer_Release(&call->src_dst);
}

bool
native_call_has_handles(const native_call *call)
{
    return call->op.input != NULL || call->op.output != NULL;
}

/* ------------------------------------------------------------------------------ what it gives */

static PyObject *
dims_of(const tutti_spec *spec)
{
    PyObject *dims = PyTuple_New((Py_ssize_t)spec->dim_count);
    uint32_t i;

    for (i = 0; dims != NULL && i < spec->dim_count; i++) {
        PyObject *one = PyLong_FromLongLong(spec->dims[i]);

        if (one == NULL || PyTuple_SetItem(dims, (Py_ssize_t)i, one) != 0) {
            Py_CLEAR(dims);
        }
    }
    return dims;
}

PyObject *
native_call_said(const native_call *call, const tutti_op_result *result, const tutti_op_more *more)
{
    const tutti_handle *made = &result->output;

    if (call->op.async) {
        return Py_BuildValue("ss", result->work, made->text);
    }
    if (call->kind == TUTTI_OP_RECV) {
        return Py_BuildValue("IIy#", (unsigned)result->source, (unsigned)result->source_global,
                             more->user_meta == NULL ? "" : (const char *)more->user_meta,
                             (Py_ssize_t)more->user_meta_size);
    }
    if (call->op.input == NULL || call->op.output != NULL || made->text[0] == '\0') {
        Py_RETURN_NONE;
    }
    return Py_BuildValue("siN", made->text, (int)made->spec.dtype, dims_of(&made->spec));
}
