/* Calls of classes and methods without Cython's own handling of arguments.
 *
 * A call of a class makes a tuple and a dict of its arguments for `__init__`. A method with `*args`
 * makes a tuple, and searches for each of its keywords. For the few calls that programs make most
 * often, Python calls a function of ours instead, which takes the arguments from where they are. */

#ifndef CUDADRV_CALLS_H
#define CUDADRV_CALLS_H

#include <Python.h>

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

/* Calls a method of Cython's that has no vectorcall slot of its own, because it takes a tuple and a
 * dict. Returns NULL with an exception if that fails, or if there is no object of the class. */
static inline PyObject *call_with_tuple(PyObject *method, PyTypeObject *cls, PyObject *const *given,
                                        size_t nargsf, PyObject *names) {
    Py_ssize_t count = PyVectorcall_NARGS(nargsf), more = names ? PyTuple_GET_SIZE(names) : 0;
    PyMethodDef *definition = ((PyCFunctionObject *)method)->m_ml;
    if (count == 0 || !PyObject_TypeCheck(given[0], cls)) {
        return PyErr_Format(PyExc_TypeError, "%s is a method of %s", definition->ml_name,
                            cls->tp_name);
    }
    PyObject *items = tuple_of(given + 1, count - 1), *options = PyDict_New(), *result = NULL;
    int failed = !items || !options;
    for (Py_ssize_t i = 0; !failed && i < more; i++) {
        failed = PyDict_SetItem(options, PyTuple_GET_ITEM(names, i), given[count + i]);
    }
    if (!failed) {
        PyCFunctionWithKeywords function =
            (PyCFunctionWithKeywords)(void (*)(void))definition->ml_meth;
        result = function(given[0], items, options);
    }
    Py_XDECREF(items);
    Py_XDECREF(options);
    return result;
}

#endif
