/*
 * Memory that is lent: an array keeps its Block, and when the last array of it is gone the memory
 * goes back to where it came from. NumPy keeps whatever gave it the buffer, so views, DLPack
 * capsules and torch tensors of an array keep it, too.
 */
#include "native.h"

typedef struct native_block {
    PyObject_HEAD Py_buffer memory;
    PyObject *freed;
} native_block;

static PyObject *
make_block(PyTypeObject *type, PyObject *args, PyObject *words)
{
    native_block *self;
    PyObject *memory;
    PyObject *freed;

    (void)words;
    if (!PyArg_ParseTuple(args, "OO:Block", &memory, &freed)) {
        return NULL;
    }
    self = (native_block *)PyType_GenericNew(type, args, NULL);
    if (self == NULL) {
        return NULL;
    }
    if (PyObject_GetBuffer(memory, &self->memory, PyBUF_WRITABLE) != 0) {
        self->memory.obj = NULL;
        Py_DECREF(self);
        return NULL;
    }
    self->freed = Py_NewRef(freed);
    return (PyObject *)self;
}

/* A destructor has nobody to raise to, and must leave an exception that is set as it is. */
static void
tell_freed(PyObject *freed)
{
    PyObject *type;
    PyObject *value;
    PyObject *trace;
    PyObject *said;

    PyErr_Fetch(&type, &value, &trace);
    said = PyObject_CallNoArgs(freed);
    if (said == NULL) {
        PyErr_WriteUnraisable(freed);
    }
    Py_XDECREF(said);
    PyErr_Restore(type, value, trace);
}

static void
free_block(PyObject *object)
{
    native_block *self = (native_block *)object;
    PyTypeObject *type = Py_TYPE(object);

    PyBuffer_Release(&self->memory);
    if (self->freed != NULL) {
        tell_freed(self->freed);
        Py_DECREF(self->freed);
    }
    PyObject_Free(self);
    Py_DECREF(type);
}

static int
give_buffer(PyObject *object, Py_buffer *view, int flags)
{
    native_block *self = (native_block *)object;

    return PyBuffer_FillInfo(view, object, self->memory.buf, self->memory.len, 0, flags);
}

static PyObject *
freed_of(PyObject *object, void *closure)
{
    (void)closure;
    return Py_NewRef(((native_block *)object)->freed);
}

static PyGetSetDef members[] = {
    {"freed", freed_of, NULL, "What it calls at its end.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "Block(memory, freed): lent memory; freed() is called at its end."},
    {Py_tp_new, (void *)make_block},
    {Py_tp_dealloc, (void *)free_block},
    {Py_tp_getset, members},
    {Py_bf_getbuffer, (void *)give_buffer},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "tutti._native.Block",
    .basicsize = sizeof(native_block),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};

PyObject *
native_block_type(PyObject *module)
{
    return PyType_FromModuleAndSpec(module, &spec, NULL);
}
