/*
 * Client: a tutti_client. close() while other threads are inside calls lets these end first:
 * tutti_close needs the client for itself.
 */
#include "native.h"

static const char *const names[] = {
    "agent",    "coordinator", "job",        "tls_ca",      "tls_cert", "tls_key",
    "tls_name", "token_file",  "timeout_ms", "traceparent", NULL,
};

/* All by keyword; None and what is left out are the defaults of tutti_client_options. */
static bool
read_options(PyObject *args, PyObject *words, tutti_client_options *options)
{
    return PyArg_ParseTupleAndKeywords(args, words, "z|zzzzzzzIz:Client", (char **)(uintptr_t)names,
                                       &options->agent, &options->coordinator, &options->job,
                                       &options->tls_ca, &options->tls_cert, &options->tls_key,
                                       &options->tls_name, &options->token_file,
                                       &options->timeout_ms, &options->traceparent) != 0;
}

static tutti_code
connect_released(const tutti_client_options *options, tutti_client **ret_client, tutti_error *err)
{
    tutti_code code;

    native_wait_begin();
    Py_BEGIN_ALLOW_THREADS code = tutti_connect_with(options, ret_client, err);
    Py_END_ALLOW_THREADS native_wait_end();
    return code;
}

static PyObject *
make_client(PyTypeObject *type, PyObject *args, PyObject *words)
{
    tutti_client_options options;
    tutti_client *client = NULL;
    native_client *self;
    tutti_error err;

    tutti_client_options_init(&options);
    if (!read_options(args, words, &options)) {
        return NULL;
    }
    self = (native_client *)PyType_GenericNew(type, args, NULL);
    if (self == NULL) {
        return NULL;
    }
    if (connect_released(&options, &client, &err) != TUTTI_OK) {
        Py_DECREF(self);
        return native_raise(&err);
    }
    self->client = client;
    return (PyObject *)self;
}

static void
close_when_idle(native_client *self)
{
    tutti_client *client = self->client;

    if (self->calls == 0 && client != NULL) {
        self->client = NULL;
        Py_BEGIN_ALLOW_THREADS tutti_close(client);
        Py_END_ALLOW_THREADS
    }
}

bool
native_client_enter(native_client *self)
{
    if (self->closing || self->client == NULL) {
        native_raise_closed();
        return false;
    }
    self->calls++;
    native_wait_begin();
    return true;
}

void
native_client_leave(native_client *self)
{
    native_wait_end();
    self->calls--;
    if (self->closing) {
        close_when_idle(self);
    }
}

static PyObject *
close_client(PyObject *object, PyObject *none)
{
    native_client *self = (native_client *)object;

    (void)none;
    self->closing = true;
    close_when_idle(self);
    Py_RETURN_NONE;
}

static void
free_client(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);

    close_when_idle((native_client *)object);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyObject *
incarnation_of(PyObject *object, void *closure)
{
    const native_client *self = (native_client *)object;

    (void)closure;
    return PyLong_FromUnsignedLongLong(
        self->client == NULL ? 0 : tutti_whoami(self->client)->incarnation);
}

static PyMethodDef methods[] = {
    {"op", (PyCFunction)(void (*)(void))native_op, METH_FASTCALL,
     "op(kind, input, output, dtype, group, reduce, number, timeout_ms, sequence, step, token, "
     "tag[, src_dst[, async]])"},
    {"queue", native_queue_new, METH_NOARGS, "A Queue: ops of an event loop."},
    {"close", close_client, METH_NOARGS, "Close it, when the calls of other threads have ended."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef members[] = {
    {"incarnation", incarnation_of, NULL, "Of the agent's process.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "A connection to an agent."},
    {Py_tp_new, (void *)make_client},
    {Py_tp_dealloc, (void *)free_client},
    {Py_tp_methods, methods},
    {Py_tp_getset, members},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "tutti._native.Client",
    .basicsize = sizeof(native_client),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};

PyObject *
native_client_type(PyObject *module)
{
    return PyType_FromModuleAndSpec(module, &spec, NULL);
}
