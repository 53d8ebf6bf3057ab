/*
 * Channel and Call: generic calls (tutti/generic.h), by which the package makes all calls that are not ops: its messages
 * are protobuf's of Python.
 *
 *     Channel(address, tls_ca=, tls_cert=, tls_key=, tls_name=, keepalive_ms=, keepalive_timeout_ms=)
 *     channel.unary(path, request, timeout_ms, wait, metadata) -> response
 *     channel.start(path, request or None, last, timeout_ms, wait, metadata, key) -> Call
 *     channel.ready() -> [key]         of calls of which something has come; fileno() is readable then
 *     call.next(timeout_ms) -> (event, bytes, an exception, or None)
 *
 * timeout_ms  0 = none; of next(): 0 = do not wait, None = for ever
 * metadata    (key, value, key, value ...)
 * key         0 = the call is not told by ready()
 * event       0 = nothing, 1 = a message, 2 = the end, with the error or None
 *
 * A Call keeps its Channel; close() ends its calls. While other threads are inside unary(), these end first.
 */
#include "native.h"
#include "tutti/generic.h"

typedef struct native_channel {
    PyObject_HEAD tutti_generic *generic; /* NULL = closed */
    size_t calls;                         /* of threads that are in unary() */
    bool closing;
} native_channel;

typedef struct native_stream {
    PyObject_HEAD native_channel *channel; /* [owned] */
    tutti_generic_call *call;
} native_stream;

static PyObject *stream_type;

/* ------------------------------------------------------------------------------ its life */

static const char *const names[] = {
    "address", "tls_ca", "tls_cert", "tls_key", "tls_name", "keepalive_ms", "keepalive_timeout_ms",
    NULL,
};

static PyObject *
make_channel(PyTypeObject *type, PyObject *args, PyObject *words)
{
    tutti_generic_options options;
    const char *address = NULL;
    native_channel *self;
    tutti_error err;

    tutti_generic_options_init(&options);
    if (!PyArg_ParseTupleAndKeywords(args, words, "s|zzzzII:Channel", (char **)(uintptr_t)names,
                                     &address, &options.tls_ca, &options.tls_cert, &options.tls_key,
                                     &options.tls_name, &options.keepalive_ms,
                                     &options.keepalive_timeout_ms)) {
        return NULL;
    }
    self = (native_channel *)PyType_GenericNew(type, args, NULL);
    if (self == NULL) {
        return NULL;
    }
    if (tutti_generic_open(address, &options, &self->generic, &err) != TUTTI_OK) {
        Py_DECREF(self);
        return native_raise(&err);
    }
    return (PyObject *)self;
}

static void
close_idle_channel(native_channel *self)
{
    tutti_generic *generic = self->generic;

    if (self->calls == 0 && generic != NULL) {
        self->generic = NULL;
        Py_BEGIN_ALLOW_THREADS tutti_generic_close(generic);
        Py_END_ALLOW_THREADS
    }
}

static PyObject *
close_channel(PyObject *object, PyObject *none)
{
    native_channel *self = (native_channel *)object;

    (void)none;
    self->closing = true;
    close_idle_channel(self);
    Py_RETURN_NONE;
}

static void
free_channel(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);

    close_idle_channel((native_channel *)object);
    PyObject_Free(object);
    Py_DECREF(type);
}

/* ------------------------------------------------------------------------------ calls */

/* What unary() and start() share. Its texts are those of the arguments. */
typedef struct native_request {
    const char *path;
    Py_buffer data; /* .obj NULL = none */
    tutti_generic_call_options options;
    const char *metadata[2 * TUTTI_GENERIC_METADATA_MAX];
} native_request;

static bool
read_metadata(native_request *request, PyObject *pairs)
{
    const Py_ssize_t count = PyTuple_Size(pairs);
    Py_ssize_t i;

    if (count < 0 || count > 2 * TUTTI_GENERIC_METADATA_MAX || count % 2 != 0) {
        if (PyErr_Occurred() == NULL) {
            PyErr_Format(PyExc_ValueError, "%zd texts of metadata, at most %d pairs", count,
                         TUTTI_GENERIC_METADATA_MAX);
        }
        return false;
    }
    for (i = 0; i < count; i++) {
        request->metadata[i] = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(pairs, i), NULL);
        if (request->metadata[i] == NULL) {
            return false;
        }
    }
    request->options.metadata = request->metadata;
    request->options.metadata_count = (size_t)count / 2;
    return true;
}

/* False = raised. free_request it in either case. */
static bool
read_request(native_request *request, PyObject *path, PyObject *data, PyObject *timeout_ms,
             PyObject *metadata)
{
    request->data.obj = NULL;
    tutti_generic_call_options_init(&request->options);
    request->options.timeout_ms = (uint32_t)PyLong_AsUnsignedLong(timeout_ms);
    request->path = PyErr_Occurred() == NULL ? PyUnicode_AsUTF8AndSize(path, NULL) : NULL;
    if (request->path == NULL || !read_metadata(request, metadata)) {
        return false;
    }
    if (data != Py_None && PyObject_GetBuffer(data, &request->data, PyBUF_SIMPLE) != 0) {
        request->data.obj = NULL;
        return false;
    }
    return true;
}

static void
free_request(native_request *request)
{
    PyBuffer_Release(&request->data);
}

static bool
check_arguments(Py_ssize_t count, Py_ssize_t wanted)
{
    if (count != wanted) {
        PyErr_Format(PyExc_TypeError, "it takes %zd arguments, not %zd", wanted, count);
    }
    return count == wanted;
}

static bool
is_channel_open(const native_channel *self)
{
    if (self->closing || self->generic == NULL) {
        native_raise_closed();
        return false;
    }
    return true;
}

/* [in, moved] message */
static PyObject *
as_bytes(tutti_generic_message *message)
{
    PyObject *bytes =
        PyBytes_FromStringAndSize(NULL, (Py_ssize_t)tutti_generic_message_bytes(message));

    if (bytes == NULL) {
        tutti_generic_message_free(message);
        return NULL;
    }
    tutti_generic_message_take(message, PyBytes_AsString(bytes));
    return bytes;
}

static PyObject *
run_unary(native_channel *self, const native_request *request)
{
    tutti_generic_message *message = NULL;
    tutti_generic_details details = {.size = 0};
    tutti_error err;
    tutti_code code;

    self->calls++;
    native_wait_begin();
    Py_BEGIN_ALLOW_THREADS code =
        tutti_generic_unary(self->generic, request->path, request->data.buf,
                            (size_t)request->data.len, &request->options, &message, &details, &err);
    Py_END_ALLOW_THREADS native_wait_end();
    self->calls--;
    if (self->closing) {
        close_idle_channel(self);
    }
    if (code != TUTTI_OK) {
        return native_raise_with(&err, details.data, details.size);
    }
    if (PyErr_Occurred() != NULL) { /* of a signal handler, while it waited */
        tutti_generic_message_free(message);
        return NULL;
    }
    return as_bytes(message);
}

static PyObject *
call_unary(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    native_channel *self = (native_channel *)object;
    native_request request;
    PyObject *response = NULL;

    if (!check_arguments(count, 5) || !is_channel_open(self)) {
        return NULL;
    }
    if (read_request(&request, args[0], args[1], args[2], args[4])) {
        request.options.wait = PyObject_IsTrue(args[3]) == 1;
        response = run_unary(self, &request);
    }
    free_request(&request);
    return response;
}

static PyObject *
begin_call(native_channel *self, native_request *request, bool last)
{
    native_stream *stream =
        (native_stream *)PyType_GenericNew((PyTypeObject *)stream_type, NULL, NULL);
    tutti_error err;

    if (stream == NULL) {
        return NULL;
    }
    stream->channel = (native_channel *)Py_NewRef((PyObject *)self);
    if (tutti_generic_start(
            self->generic, request->path, request->data.obj == NULL ? NULL : request->data.buf,
            (size_t)request->data.len, last, &request->options, &stream->call, &err) != TUTTI_OK) {
        Py_DECREF(stream);
        return native_raise(&err);
    }
    return (PyObject *)stream;
}

static PyObject *
start_stream(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    native_channel *self = (native_channel *)object;
    native_request request;
    PyObject *stream = NULL;

    if (!check_arguments(count, 7) || !is_channel_open(self)) {
        return NULL;
    }
    if (read_request(&request, args[0], args[1], args[3], args[5])) {
        request.options.wait = PyObject_IsTrue(args[4]) == 1;
        request.options.user = (void *)(uintptr_t)PyLong_AsUnsignedLongLong(args[6]);
        if (PyErr_Occurred() == NULL) {
            stream = begin_call(self, &request, PyObject_IsTrue(args[2]) == 1);
        }
    }
    free_request(&request);
    return stream;
}

/* ------------------------------------------------------------------------------ event loops */

static PyObject *
fileno_of(PyObject *object, PyObject *none)
{
    native_channel *self = (native_channel *)object;
    tutti_error err;
    int fd = -1;

    (void)none;
    if (!is_channel_open(self)) {
        return NULL;
    }
    if (tutti_generic_fd(self->generic, &fd, &err) != TUTTI_OK) {
        return native_raise(&err);
    }
    return PyLong_FromLong(fd);
}

static PyObject *
take_ready(PyObject *object, PyObject *none)
{
    native_channel *self = (native_channel *)object;
    PyObject *list = PyList_New(0);
    void *user = NULL;

    (void)none;
    while (list != NULL && self->generic != NULL && tutti_generic_ready(self->generic, &user)) {
        PyObject *key = PyLong_FromUnsignedLongLong((uintptr_t)user);

        if (key == NULL || PyList_Append(list, key) != 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(key);
    }
    return list;
}

/* ------------------------------------------------------------------------------ a call that was started */

static PyObject *
send_to(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    native_stream *self = (native_stream *)object;
    Py_buffer data = {.obj = NULL};
    tutti_error err;
    tutti_code code;

    if (!check_arguments(count, 2)) {
        return NULL;
    }
    if (args[0] != Py_None && PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE) != 0) {
        return NULL;
    }
    code = tutti_generic_send(self->call, data.obj == NULL ? NULL : data.buf, (size_t)data.len,
                              PyObject_IsTrue(args[1]) == 1, &err);
    PyBuffer_Release(&data);
    if (code != TUTTI_OK) {
        return native_raise(&err);
    }
    Py_RETURN_NONE;
}

/* [out] ret_ms  None = for ever */
static bool
read_timeout(PyObject *thing, uint32_t *ret_ms)
{
    *ret_ms = thing == Py_None ? TUTTI_GENERIC_FOREVER : (uint32_t)PyLong_AsUnsignedLong(thing);
    return PyErr_Occurred() == NULL;
}

static PyObject *
end_of(const tutti_error *err, const tutti_generic_details *details)
{
    PyObject *error;

    if (PyErr_Occurred() != NULL) { /* of a signal handler, while it waited */
        return NULL;
    }
    if (err->code == TUTTI_OK) {
        return Py_BuildValue("iO", (int)TUTTI_GENERIC_ENDED, Py_None);
    }
    error = native_error_with(err, details->data, details->size);
    return error == NULL ? NULL : Py_BuildValue("iN", (int)TUTTI_GENERIC_ENDED, error);
}

/* Without a wait the GIL stays: it is only a look. */
static PyObject *
next_of(PyObject *object, PyObject *timeout)
{
    const native_stream *self = (const native_stream *)object;
    tutti_generic_message *message = NULL;
    tutti_generic_details details = {.size = 0};
    tutti_generic_event event;
    tutti_error err;
    uint32_t timeout_ms;
    PyObject *bytes;

    if (!read_timeout(timeout, &timeout_ms)) {
        return NULL;
    }
    event = tutti_generic_next(self->call, 0, &message, &details, &err);
    if (event == TUTTI_GENERIC_NOTHING && timeout_ms != 0) {
        native_wait_begin();
        Py_BEGIN_ALLOW_THREADS event =
            tutti_generic_next(self->call, timeout_ms, &message, &details, &err);
        Py_END_ALLOW_THREADS native_wait_end();
    }
    if (event == TUTTI_GENERIC_ENDED) {
        return end_of(&err, &details);
    }
    if (event == TUTTI_GENERIC_NOTHING) {
        return PyErr_Occurred() != NULL ? NULL : Py_BuildValue("iO", (int)event, Py_None);
    }
    bytes = as_bytes(message);
    return bytes == NULL ? NULL : Py_BuildValue("iN", (int)event, bytes);
}

static PyObject *
unsent_of(PyObject *object, PyObject *none)
{
    (void)none;
    return PyLong_FromSize_t(tutti_generic_unsent(((native_stream *)object)->call));
}

static PyObject *
wait_sent(PyObject *object, PyObject *none)
{
    const native_stream *self = (const native_stream *)object;

    (void)none;
    native_wait_begin();
    Py_BEGIN_ALLOW_THREADS(void) tutti_generic_wait_sent(self->call, TUTTI_GENERIC_FOREVER, NULL);
    Py_END_ALLOW_THREADS native_wait_end();
    if (PyErr_Occurred() != NULL) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *
cancel_call(PyObject *object, PyObject *none)
{
    (void)none;
    tutti_generic_cancel(((native_stream *)object)->call);
    Py_RETURN_NONE;
}

static void
free_stream(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    native_stream *self = (native_stream *)object;

    tutti_generic_free(self->call);
    Py_XDECREF((PyObject *)self->channel);
    PyObject_Free(object);
    Py_DECREF(type);
}

/* ------------------------------------------------------------------------------ types */

static PyMethodDef channel_methods[] = {
    {"unary", (PyCFunction)(void (*)(void))call_unary, METH_FASTCALL,
     "unary(path, request, timeout_ms, wait, metadata): the response."},
    {"start", (PyCFunction)(void (*)(void))start_stream, METH_FASTCALL,
     "start(path, request, last, timeout_ms, wait, metadata, key): a Call; it does not wait."},
    {"ready", take_ready, METH_NOARGS, "[key] of calls of which something has come."},
    {"fileno", fileno_of, METH_NOARGS, "Readable while ready() would give something."},
    {"close", close_channel, METH_NOARGS, "End its calls, and close it."},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef stream_methods[] = {
    {"send", (PyCFunction)(void (*)(void))send_to, METH_FASTCALL,
     "send(message or None, last): it does not wait."},
    {"next", next_of, METH_O, "next(timeout_ms): (event, what)."},
    {"unsent", unsent_of, METH_NOARGS, "Bytes that have not left."},
    {"wait_sent", wait_sent, METH_NOARGS, "Wait until most has left, or the call has ended."},
    {"cancel", cancel_call, METH_NOARGS, "Give up."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot channel_slots[] = {
    {Py_tp_doc, "A connection for generic calls."},
    {Py_tp_new, (void *)make_channel},
    {Py_tp_dealloc, (void *)free_channel},
    {Py_tp_methods, channel_methods},
    {0, NULL},
};

static PyType_Slot stream_slots[] = {
    {Py_tp_doc, "A call; Channel.start() makes it."},
    {Py_tp_dealloc, (void *)free_stream},
    {Py_tp_methods, stream_methods},
    {0, NULL},
};

static PyType_Spec channel_spec = {
    .name = "tutti._native.Channel",
    .basicsize = sizeof(native_channel),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = channel_slots,
};

static PyType_Spec stream_spec = {
    .name = "tutti._native.Call",
    .basicsize = sizeof(native_stream),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = stream_slots,
};

PyObject *
native_channel_type(PyObject *module)
{
    return PyType_FromModuleAndSpec(module, &channel_spec, NULL);
}

PyObject *
native_stream_type(PyObject *module)
{
    stream_type = PyType_FromModuleAndSpec(module, &stream_spec, NULL);
    return Py_XNewRef(stream_type);
}
