/* Calls of classes and methods without Cython's own handling of arguments.
 *
 * A call of a class makes a tuple and a dict of its arguments for `__init__`. A method with `*args`
 * makes a tuple, and searches for each of its keywords. For the few calls that programs make most
 * often, Python calls a function of ours instead, which takes the arguments from where they are. */

#ifndef CUDADRV_CALLS_H
#define CUDADRV_CALLS_H

#include <Python.h>

#include "cudadrv/library.h"

/* Makes Python call `function` for a class, or for a function of Cython's. Returns what Python has
 * called so far, which is NULL for a class. Does nothing if the object has no vectorcall slot. */
static inline vectorcallfunc exchange_call(PyObject *callable, vectorcallfunc function) {
    Py_ssize_t offset = Py_TYPE(callable)->tp_vectorcall_offset;
    if (offset <= 0) {
        return NULL;
    }
    vectorcallfunc *place = (vectorcallfunc *)((char *)callable + offset);
    vectorcallfunc former = *place;
    *place = function;
    return former;
}

static inline PyObject *const *items_of(PyObject *tuple) {
    return ((PyTupleObject *)tuple)->ob_item;
}

/* Returns a new tuple of these objects. */
static inline PyObject *tuple_of(PyObject *const *objects, Py_ssize_t count) {
    PyObject *tuple = PyTuple_New(count);
    for (Py_ssize_t i = 0; tuple && i < count; i++) {
        PyTuple_SET_ITEM(tuple, i, Py_NewRef(objects[i]));
    }
    return tuple;
}

/* Lets Python check that a method is called with an object of its class (pyx/methods.c). Returns -1
 * with an exception if that fails. */
CUDADRV_HIDDEN int cudadrv_check_objects(PyTypeObject *cls, PyObject *method);

/* Makes Python call `function` for a method. Returns what Python would call otherwise, which checks
 * the object, or NULL with an exception. */
static inline vectorcallfunc exchange_method(PyTypeObject *cls, PyObject *method,
                                             vectorcallfunc function) {
    return cudadrv_check_objects(cls, method) ? NULL : exchange_call(method, function);
}

#endif
