/*
 * Queue: a completion queue of a connection, for event loops. The loop waits for fileno() to be
 * readable, and calls take(). When the stream to the agent has ended and all was taken, take()
 * raises: fileno() stays readable then.
 *
 * An op keeps the memory of its arguments until its completion was taken, also when it was
 * cancelled: a thread of libtutti may read and write there until then.
 */
#include <string.h>

#include "native.h"
#include "tutti/queue.h"

typedef struct native_queue {
    PyObject_HEAD native_client *client; /* [owned] entered while the queue is open */
    tutti_queue *queue;                  /* NULL = closed */
    int fd;
} native_queue;

static PyObject *queue_type;

static tutti_code
start_queue(tutti_client *client, native_queue *self, tutti_error *err)
{
    tutti_code code;

    Py_BEGIN_ALLOW_THREADS code = tutti_queue_open(client, NULL, &self->queue, err);
    Py_END_ALLOW_THREADS return code == TUTTI_OK ? tutti_queue_fd(self->queue, &self->fd, err)
                                                 : code;
}

PyObject *
native_queue_new(PyObject *object, PyObject *none)
{
    native_client *client = (native_client *)object;
    native_queue *self;
    tutti_error err;

    (void)none;
    self = (native_queue *)PyType_GenericNew((PyTypeObject *)queue_type, NULL, NULL);
    if (self == NULL || !native_client_enter(client)) {
        Py_XDECREF((PyObject *)self);
        return NULL;
    }
    native_wait_end();
    self->client = (native_client *)Py_NewRef(object);
    if (start_queue(client->client, self, &err) != TUTTI_OK) {
        Py_DECREF(self);
        return native_raise(&err);
    }
    return (PyObject *)self;
}

/* ------------------------------------------------------------------------------ submitting */

static tutti_code
submit_call(tutti_queue *queue, native_call *call, uint64_t *ret_id, tutti_error *err)
{
    tutti_queue_data data;

    if (native_call_has_handles(call)) {
        return tutti_queue_submit(queue, call->kind, &call->op, call, ret_id, err);
    }
    memset(&data, 0, sizeof(data));
    data.spec = call->spec;
    data.data = call->input.buf;
    data.result = call->output.buf;
    data.result_bytes = (uint64_t)call->output.len;
    return tutti_queue_submit_data(queue, call->kind, &call->op, &data, call, ret_id, err);
}

static void
drop_call(native_call *call)
{
    native_call_free(call);
    PyMem_Free(call);
}

/* False = the queue is closed, and raised. */
static bool
is_open(const native_queue *self)
{
    if (self->queue == NULL) {
        native_raise_closed();
    }
    return self->queue != NULL;
}

/* It copies at most TUTTI_INLINE_BYTES_MAX, so the GIL stays. */
static PyObject *
submit(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    native_queue *self = (native_queue *)object;
    native_call *call;
    tutti_error err;
    uint64_t id;

    if (!is_open(self)) {
        return NULL;
    }
    call = PyMem_Malloc(sizeof(*call));
    if (call == NULL) {
        return PyErr_NoMemory();
    }
    if (!native_call_read(call, args, count)) {
        drop_call(call);
        return NULL;
    }
    if (submit_call(self->queue, call, &id, &err) != TUTTI_OK) {
        drop_call(call);
        return native_raise(&err);
    }
    return PyLong_FromUnsignedLongLong(id);
}

static PyObject *
cancel(PyObject *object, PyObject *number)
{
    native_queue *self = (native_queue *)object;
    const uint64_t id = PyLong_AsUnsignedLongLong(number);

    if (PyErr_Occurred() != NULL) {
        return NULL;
    }
    if (self->queue != NULL) { /* what has ended need not be cancelled */
        (void)tutti_queue_cancel(self->queue, id, NULL);
    }
    Py_RETURN_NONE;
}

/* ------------------------------------------------------------------------------ completions */

/* (number, what it has given, exception or None); NULL = an exception is set */
static PyObject *
as_python(tutti_queue_completion *done)
{
    native_call *call = done->user;
    PyObject *said;

    if (done->error.code != TUTTI_OK) {
        PyObject *error = native_error(&done->error);

        return error == NULL ? NULL
                             : Py_BuildValue("KON", (unsigned long long)done->id, Py_None, error);
    }
    said = native_call_said(call, &done->op, &done->more);
    return said == NULL ? NULL : Py_BuildValue("KNO", (unsigned long long)done->id, said, Py_None);
}

/* DEADLINE_EXCEEDED = there is none now. */
static tutti_code
next_done(native_queue *self, tutti_queue_completion *done, tutti_error *err)
{
    return self->queue == NULL ? TUTTI_DEADLINE_EXCEEDED
                               : tutti_queue_next(self->queue, 0, done, err);
}

static bool
append_done(PyObject *list, tutti_queue_completion *done)
{
    PyObject *one = as_python(done);
    const bool fine = one != NULL && PyList_Append(list, one) == 0;

    Py_XDECREF(one);
    tutti_op_more_free(&done->more);
    drop_call(done->user);
    return fine;
}

static PyObject *
take_done(PyObject *object, PyObject *none)
{
    native_queue *self = (native_queue *)object;
    PyObject *list = PyList_New(0);
    tutti_code code = TUTTI_OK;
    tutti_queue_completion done;
    tutti_error err;

    (void)none;
    while (list != NULL && (code = next_done(self, &done, &err)) == TUTTI_OK) {
        if (!append_done(list, &done)) {
            Py_CLEAR(list);
        }
    }
    if (list != NULL && PyList_Size(list) == 0 && code != TUTTI_DEADLINE_EXCEEDED) {
        Py_DECREF(list);
        return native_raise(&err);
    }
    return list;
}

/* ------------------------------------------------------------------------------ its end */

/* Every op has a completion once the queue is shut down; then the memory is nobody's but Python's. */
static void
drain(tutti_queue *queue)
{
    tutti_queue_completion done;
    tutti_code code = TUTTI_OK;

    while (code == TUTTI_OK) {
        Py_BEGIN_ALLOW_THREADS code = tutti_queue_next(queue, TUTTI_QUEUE_FOREVER, &done, NULL);
        Py_END_ALLOW_THREADS if (code == TUTTI_OK)
        {
            tutti_op_more_free(&done.more);
            drop_call(done.user);
        }
    }
}

static PyObject *
close_queue(PyObject *object, PyObject *none)
{
    native_queue *self = (native_queue *)object;
    tutti_queue *queue = self->queue;

    (void)none;
    self->queue = NULL;
    if (queue != NULL) {
        tutti_queue_shutdown(queue);
        drain(queue);
        Py_BEGIN_ALLOW_THREADS(void) tutti_queue_close(queue, NULL);
        Py_END_ALLOW_THREADS
    }
    if (self->client != NULL) {
        native_wait_begin();
        native_client_leave(self->client);
        Py_CLEAR(self->client);
    }
    Py_RETURN_NONE;
}

static void
free_queue(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);

    Py_XDECREF(close_queue(object, NULL));
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyObject *
fileno_of(PyObject *object, PyObject *none)
{
    (void)none;
    return PyLong_FromLong(((native_queue *)object)->fd);
}

static PyMethodDef methods[] = {
    {"submit", (PyCFunction)(void (*)(void))submit, METH_FASTCALL,
     "submit(...): as Client.op(), but it does not wait; the number of the op."},
    {"cancel", cancel, METH_O, "cancel(number): its completion still comes."},
    {"take", take_done, METH_NOARGS,
     "[(number, what it has given, error)] of all that have ended. Raises when the queue is over."},
    {"fileno", fileno_of, METH_NOARGS, "Readable while take() would give something."},
    {"close", close_queue, METH_NOARGS, "Give up all ops, and end the queue."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "A completion queue; Client.queue() makes it."},
    {Py_tp_dealloc, (void *)free_queue},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "tutti._native.Queue",
    .basicsize = sizeof(native_queue),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};

PyObject *
native_queue_type(PyObject *module)
{
    queue_type = PyType_FromModuleAndSpec(module, &spec, NULL);
    return Py_XNewRef(queue_type);
}
