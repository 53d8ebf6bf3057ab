/*
 * tutti._native: what the Python package does by libtutti directly, because a message made in
 * Python would cost more than the op. The package gives it what it has checked; the rules for
 * users are in the package.
 *
 * It uses the stable ABI of CPython 3.11 alone. The GIL is released while a call waits.
 */
#ifndef TUTTI_CLIENT_PYTHON_NATIVE_H
#define TUTTI_CLIENT_PYTHON_NATIVE_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

#include <stdbool.h>

#include "tutti/client.h"
#include "tutti/list.h"
#include "tutti/op.h"

/* ------------------------------------------------------------------ module.c */

/*
 * Raise what the function given to set_error() makes of an error; what a signal handler has raised
 * while the call waited comes first. Returns NULL.
 */
PyObject *native_raise(const tutti_error *err);

/* The same; [in] details  the packed google.rpc.Status of the server; size 0 = none */
PyObject *native_raise_with(const tutti_error *err, const void *details, size_t size);

/* [out, owned] That exception, not raised. NULL = making it raised another one. */
PyObject *native_error(const tutti_error *err);
PyObject *native_error_with(const tutti_error *err, const void *details, size_t size);

/* Raise CLOSED: of a connection that the program has closed. */
void native_raise_closed(void);

/* A call that may wait is about to begin on this thread, or has ended: Ctrl-C ends it. With the GIL. */
void native_wait_begin(void);
void native_wait_end(void);

/* ------------------------------------------------------------------ client.c */

/*
 * A connection: closed when it was told to and no call is in it any more. With the GIL.
 */
typedef struct native_client {
    PyObject_HEAD tutti_client *client; /* NULL = closed */
    size_t calls;                       /* that are in it */
    bool closing;
} native_client;

/* [out, owned] NULL = an exception is set */
PyObject *native_client_type(PyObject *module);

/* A call begins: the connection stays open until leave. False = it is closed, and raised. */
bool native_client_enter(native_client *self);
void native_client_leave(native_client *self);

/* ------------------------------------------------------------------ call.c */

/* One op: what was given, as libtutti takes it. */
typedef struct native_call {
    tutti_op_kind kind;
    tutti_op op; /* its strings are those of the arguments */
    tutti_spec spec;
    Py_buffer input; /* .obj NULL = it is not a buffer */
    Py_buffer output;
    Py_buffer src_dst; /* of a permute; .obj NULL = none */
} native_call;

/* False = raised. native_call_free it in either case. With the GIL, as all here. */
bool native_call_read(native_call *call, PyObject *const *args, Py_ssize_t count);
void native_call_free(native_call *call);

/* Is it on tensors in the agent? */
bool native_call_has_handles(const native_call *call);

/* [out, owned] what the op has given to Python; NULL = an exception is set */
PyObject *native_call_said(const native_call *call, const tutti_op_result *result,
                           const tutti_op_more *more);

/* ------------------------------------------------------------------ op.c */

/* Client.op(); see the text at its begin. */
PyObject *native_op(PyObject *self, PyObject *const *args, Py_ssize_t count);

/* ------------------------------------------------------------------ queue.c */

/* Client.queue() */
PyObject *native_queue_new(PyObject *self, PyObject *none);

/* [out, owned] NULL = an exception is set */
PyObject *native_queue_type(PyObject *module);

/* ------------------------------------------------------------------ channel.c */

/* [out, owned] NULL = an exception is set */
PyObject *native_channel_type(PyObject *module);
PyObject *native_stream_type(PyObject *module);

/* ------------------------------------------------------------------ block.c */

/*
 * Block(memory, freed): a part of memory that is lent: it has the buffer of `memory`, and calls
 * freed() when nothing refers to it any more. [out, owned] NULL = an exception is set
 */
PyObject *native_block_type(PyObject *module);

#endif
