/*
 * The module: its types, errors, and signals.
 *
 * Signals. CPython's handler in C only notes a signal; the handler in Python runs when the main
 * thread holds the GIL. So libtutti asks us while it waits (tutti_set_interrupt), and on the main
 * thread we take the GIL and let CPython look. If a handler raises (KeyboardInterrupt), the call
 * is given up; the exception stays set on this thread, and native_raise leaves it.
 */
#include "native.h"
#include "tutti/version.h"

#include <unistd.h>

/* One interpreter alone: libtutti's hook and gRPC are the process's. */
static PyObject *make_error;

/* How deep this thread is in calls that Python made; 0 = a call of somebody else's. */
static _Thread_local unsigned waiting;

static bool
is_main_thread(void)
{
    return gettid() == getpid();
}

static bool
ask_python(void)
{
    PyGILState_STATE state;
    bool stop;

    if (waiting == 0 || !is_main_thread()) {
        return false;
    }
    state = PyGILState_Ensure();
    stop = PyErr_CheckSignals() != 0;
    PyGILState_Release(state);
    return stop;
}

void
native_wait_begin(void)
{
    waiting++;
}

void
native_wait_end(void)
{
    waiting--;
}

PyObject *
native_error_with(const tutti_error *err, const void *details, size_t size)
{
    if (make_error == NULL) {
        return PyObject_CallFunction(PyExc_RuntimeError, "s", err->text);
    }
    return PyObject_CallFunction(make_error, "issisKiy#", (int)err->code, err->text, err->reason, 0,
                                 err->group, (unsigned long long)err->sequence, (int)err->rank,
                                 size == 0 ? "" : (const char *)details, (Py_ssize_t)size);
}

PyObject *
native_error(const tutti_error *err)
{
    return native_error_with(err, NULL, 0);
}

PyObject *
native_raise(const tutti_error *err)
{
    return native_raise_with(err, NULL, 0);
}

void
native_raise_closed(void)
{
    const tutti_error closed = {.code = TUTTI_FAILED_PRECONDITION,
                                .rank = TUTTI_ERROR_RANK_NONE,
                                .reason = "CLOSED",
                                .text = "this connection is closed: connect again"};

    (void)native_raise(&closed);
}

PyObject *
native_raise_with(const tutti_error *err, const void *details, size_t size)
{
    PyObject *error;

    if (PyErr_Occurred() != NULL) { /* of a signal handler */
        return NULL;
    }
    error = native_error_with(err, details, size);
    if (error != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_DECREF(error);
    }
    return NULL;
}

static PyObject *
set_error(PyObject *module, PyObject *function)
{
    (void)module;
    Py_XDECREF(make_error);
    make_error = Py_NewRef(function);
    Py_RETURN_NONE;
}

static PyObject *
version(PyObject *module, PyObject *none)
{
    (void)module;
    (void)none;
    return PyUnicode_FromString(tutti_version());
}

static PyObject *
built_for(PyObject *module, PyObject *none)
{
    (void)module;
    (void)none;
    return PyUnicode_FromString(TUTTI_VERSION);
}

static PyMethodDef functions[] = {
    {"set_error", set_error, METH_O,
     "set_error(make): make(code, text, reason, scope, group, sequence, rank, details) gives "
     "exceptions."},
    {"version", version, METH_NOARGS, "The version of libtutti that is loaded."},
    {"built_for", built_for, METH_NOARGS,
     "The version of libtutti whose headers it was built with."},
    {NULL, NULL, 0, NULL},
};

static int
add_type(PyObject *module, const char *name, PyObject *type)
{
    const int failed = type == NULL ? -1 : PyModule_AddObjectRef(module, name, type);

    Py_XDECREF(type);
    return failed;
}

static int
run_module(PyObject *module)
{
    tutti_set_interrupt(ask_python);
    if (add_type(module, "Client", native_client_type(module)) != 0) {
        return -1;
    }
    if (add_type(module, "Queue", native_queue_type(module)) != 0) {
        return -1;
    }
    if (add_type(module, "Channel", native_channel_type(module)) != 0) {
        return -1;
    }
    if (add_type(module, "Call", native_stream_type(module)) != 0) {
        return -1;
    }
    return add_type(module, "Block", native_block_type(module));
}

/* Headers of 3.13 have Py_mod_gil, but not for the stable ABI of 3.11: a free-threaded interpreter,
 * which cannot load a module of that ABI anyway, would take the GIL again. */
static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)run_module},
    {0, NULL},
};

static PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "tutti._native",
    .m_doc = "What the package does by libtutti directly.",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__native(void);

PyMODINIT_FUNC
PyInit__native(void)
{
    return PyModuleDef_Init(&definition);
}
