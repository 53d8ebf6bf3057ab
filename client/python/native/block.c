/*
 * Memory that is lent: an array keeps its Block, and when the last array of it is gone the memory
 * goes back to where it came from. NumPy keeps whatever gave it the buffer, so views, DLPack
 * capsules and torch tensors of an array keep it, too.
 */
#include "native.h"

#define VIEWS_MAX                                                                                  \
    16 /* of one another; NumPy has two at most: a class of a program's may have itself */

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

/*
 * The Block at the end of a chain of views, each of which keeps the one that it was made of as `base`.
 * [out, owned] NULL = it ends in something else.
 */
static PyObject *
find_block(PyTypeObject *type, PyObject *array)
{
    PyObject *base = Py_NewRef(array);
    int views = 0;

    while (base != NULL && Py_TYPE(base) != type) {
        PyObject *const next = views++ < VIEWS_MAX ? PyObject_GetAttrString(base, "base") : NULL;

        Py_DECREF(base);
        base = next;
    }
    if (base == NULL) {
        PyErr_Clear(); /* the last of them has no `base`: None has not */
    }
    return base;
}

/* Only elements that stand one after the other, in rows, can be named to an agent. */
static PyObject *
place_of(PyObject *type, PyObject *array)
{
    PyObject *const found = find_block((PyTypeObject *)type, array);
    const native_block *block = (native_block *)found;
    PyObject *place = NULL;
    Py_buffer view;

    if (block == NULL || PyObject_GetBuffer(array, &view, PyBUF_C_CONTIGUOUS) != 0) {
        PyErr_Clear();
        Py_XDECREF(found);
        Py_RETURN_NONE;
    }
    place = Py_BuildValue("Onn", block->freed,
                          (Py_ssize_t)((char *)view.buf - (char *)block->memory.buf), view.len);
    PyBuffer_Release(&view);
    Py_DECREF(found);
    return place;
}

static PyMethodDef methods[] = {
    {"place", place_of, METH_O | METH_CLASS,
     "place(array): (freed, offset, bytes) of the array in its Block; None: it is in none, or its "
     "elements are not one after the other."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef members[] = {
    {"freed", freed_of, NULL, "What it calls at its end.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "Block(memory, freed): lent memory; freed() is called at its end."},
    {Py_tp_new, (void *)make_block},
    {Py_tp_dealloc, (void *)free_block},
    {Py_tp_methods, methods},
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
