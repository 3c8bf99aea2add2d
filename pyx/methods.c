/* How methods check the object that they are called with.
 *
 * Python checks this object for methods in C: list.append(3, 4) is a TypeError. Cython does not for
 * its functions, and Stream.synchronize(3) would take the int for a stream. Therefore each module's
 * initialization ends with a step that goes through the methods of the module's classes, and lets
 * Python call one of the two functions below for them. These usually take no more instructions than
 * Cython's functions. Properties and operators need no such step, because Python checks their
 * objects. Class methods need none, because Cython's code uses their class as any object. */

#include <Python.h>
#include <string.h>

#include "cudadrv/calls.h"

typedef PyObject *(*function_of_array)(PyObject *self, PyObject *const *given, Py_ssize_t count,
                                       PyObject *names);
typedef PyObject *(*function_of_tuple)(PyObject *self, PyObject *given, PyObject *options);

/* The field of a method that names its class. Cython uses the field only for classes that are made
 * in Python. */
static PyTypeObject **class_of(PyObject *method) { return &((PyCMethodObject *)method)->mm_class; }

static PyMethodDef *definition_of(PyObject *method) { return ((PyCFunctionObject *)method)->m_ml; }

/* Whether an object is one of a class. Each class has one base whose objects its own contain. */
static int is_object_of(PyObject *object, PyTypeObject *cls) {
    PyTypeObject *type = Py_TYPE(object);
    while (type && type != cls) {
        type = type->tp_base;
    }
    return type != NULL;
}

/* Raises for a method that is called with an object of another class, or with nothing (NULL). Says
 * what Python says for its own methods. */
static __attribute__((noinline)) PyObject *refuse(PyObject *method, PyObject *object) {
    const char *name = definition_of(method)->ml_name, *cls = (*class_of(method))->tp_name;
    if (!object) {
        return PyErr_Format(PyExc_TypeError, "unbound method %s.%s() needs an argument", cls, name);
    }
    return PyErr_Format(PyExc_TypeError,
                        "descriptor '%s' for '%s' objects doesn't apply to a '%s' object", name,
                        cls, Py_TYPE(object)->tp_name);
}

/* Calls the function of a method. `count` arguments follow the object. */
static inline PyObject *call_function(PyObject *method, PyObject *const *given, size_t count,
                                      PyObject *names) {
    function_of_array function = (function_of_array)(void (*)(void))definition_of(method)->ml_meth;
    return function(given[0], given + 1, (Py_ssize_t)count, names);
}

static __attribute__((noinline)) PyObject *call_if_derived(PyObject *method, PyObject *const *given,
                                                           size_t count, PyObject *names) {
    return is_object_of(given[0], *class_of(method)) ? call_function(method, given, count, names)
                                                     : refuse(method, given[0]);
}

/* Calls a method. Most objects are of its class, or of one with this base. */
static PyObject *call(PyObject *method, PyObject *const *given, size_t nargsf, PyObject *names) {
    size_t count = PyVectorcall_NARGS(nargsf);
    /* One subtraction finds out whether there is a `self`, and counts the other arguments. */
    if (__builtin_expect(__builtin_sub_overflow(count, 1, &count), 0)) {
        return refuse(method, NULL);
    }
    PyTypeObject *type = Py_TYPE(given[0]), *cls = *class_of(method);
    if (__builtin_expect(type == cls || type->tp_base == cls, 1)) {
        return call_function(method, given, count, names);
    }
    return call_if_derived(method, given, count, names);
}

/* Calls a method with `*args`, which takes a tuple and a dict. */
static PyObject *call_with_tuple(PyObject *method, PyObject *const *given, size_t nargsf,
                                 PyObject *names) {
    Py_ssize_t count = PyVectorcall_NARGS(nargsf), more = names ? PyTuple_GET_SIZE(names) : 0;
    if (count == 0 || !is_object_of(given[0], *class_of(method))) {
        return refuse(method, count ? given[0] : NULL);
    }
    PyObject *items = tuple_of(given + 1, count - 1), *result = NULL;
    PyObject *options = more ? PyDict_New() : NULL;
    int failed = !items || (more && !options);
    for (Py_ssize_t i = 0; !failed && i < more; i++) {
        failed = PyDict_SetItem(options, PyTuple_GET_ITEM(names, i), given[count + i]);
    }
    if (!failed) {
        function_of_tuple function =
            (function_of_tuple)(void (*)(void))definition_of(method)->ml_meth;
        result = function(given[0], items, options);
    }
    Py_XDECREF(items);
    Py_XDECREF(options);
    return result;
}

int cudadrv_check_objects(PyTypeObject *cls, PyObject *method) {
    if (*class_of(method)) {
        return 0; /* the method checks its objects already */
    }
    switch (definition_of(method)->ml_flags) {
    case METH_FASTCALL | METH_KEYWORDS:
        exchange_call(method, call);
        break;
    case METH_VARARGS | METH_KEYWORDS:
        exchange_call(method, call_with_tuple);
        break;
    default:
        PyErr_Format(PyExc_SystemError, "%s.%s has flags that pyx/methods.c does not know",
                     cls->tp_name, definition_of(method)->ml_name);
        return -1;
    }
    *class_of(method) = (PyTypeObject *)Py_NewRef(cls);
    return 0;
}

/* Whether an attribute of a class is a function of Cython's. A static method is wrapped, so it is
 * none. */
static int is_method(PyObject *thing) {
    static PyTypeObject *functions; /* the class of Cython's functions */
    PyTypeObject *type = Py_TYPE(thing);
    if (!functions && strstr(type->tp_name, ".cython_function_or_method")) {
        functions = type;
    }
    return type == functions;
}

/* Whether something in a module is an extension class of ours that has methods. */
static int is_class(PyObject *thing) {
    PyTypeObject *cls = (PyTypeObject *)thing;
    return PyType_Check(thing) && !PyType_HasFeature(cls, Py_TPFLAGS_HEAPTYPE) && cls->tp_methods &&
           cls->tp_methods->ml_name && strncmp(cls->tp_name, "cudadrv.", 8) == 0;
}

static int check_objects_in(PyObject *module) {
    PyObject *names = PyModule_GetDict(module), *thing, *member;
    for (Py_ssize_t i = 0; PyDict_Next(names, &i, NULL, &thing);) {
        if (!is_class(thing)) {
            continue;
        }
        PyTypeObject *cls = (PyTypeObject *)thing;
        for (Py_ssize_t j = 0; PyDict_Next(cls->tp_dict, &j, NULL, &member);) {
            if (is_method(member) && cudadrv_check_objects(cls, member)) {
                return -1;
            }
        }
    }
    return 0;
}

/* The build lets the Cython modules call cudadrv_define_module under the name of Python's function,
 * to which each of them passes its steps of initialization. */
#undef PyModuleDef_Init
PyObject *PyModuleDef_Init(PyModuleDef *module);

PyObject *cudadrv_define_module(PyModuleDef *module) {
    size_t count = 0;
    while (module->m_slots[count].slot) {
        count++;
    }
    if (module->m_slots[count - 1].value != (void *)check_objects_in) {   /* not yet added */
        PyModuleDef_Slot *slots = PyMem_Calloc(count + 2, sizeof *slots); /* the last one is 0 */
        if (!slots) {
            return PyErr_NoMemory();
        }
        memcpy(slots, module->m_slots, count * sizeof *slots);
        slots[count] = (PyModuleDef_Slot){Py_mod_exec, (void *)check_objects_in};
        module->m_slots = slots;
    }
    return PyModuleDef_Init(module);
}
