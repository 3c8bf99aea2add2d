/* What the library of the Cython modules has once: the table of driver functions, the engine, the
 * bodies of the engine's slow paths, and how a module finds the modules that it imports. */

#include <Python.h>
#include <pthread.h>
#include <string.h>

#define OWN_BODIES 1
#include "cudadrv/driver.h"
#include "cudadrv/process.h"

cudadrv_driver cudadrv_the_table;
own_engine cudadrv_the_engine; /* zeroed memory is an engine without streams */

/* The forking thread takes the lock before a fork, and releases it in both processes. If another
 * thread held the lock during the fork, it would stay taken in the child, and a destructor in the
 * child would wait for it forever. */
static void lock_the_engine(void) { own_lock(&cudadrv_the_engine); }
static void unlock_the_engine(void) { own_unlock(&cudadrv_the_engine); }

/* Runs when the library is loaded, so no module has to be imported for it. */
__attribute__((constructor)) static void watch_forks(void) {
    pthread_atfork(lock_the_engine, unlock_the_engine, unlock_the_engine);
}

/* The build lets the Cython modules call cudadrv_import_module under the name of Python's function.
 * Each module asks for most modules above it, up to three times. While `cudadrv` is being imported,
 * Python's function takes 17,000 instructions each time: it first asks whether another thread is
 * importing `cudadrv`. A module that is initialized needs no such question. */
#undef PyImport_ImportModule
PyObject *PyImport_ImportModule(const char *name);

PyObject *cudadrv_import_module(const char *name) {
    static PyObject *initialized; /* the dict of that name in cudadrv._finder */
    if (strncmp(name, "cudadrv._", 9) != 0) {
        return PyImport_ImportModule(name);
    }
    if (!initialized) {
        PyObject *finder = PyImport_ImportModule("cudadrv._finder");
        initialized = finder ? PyObject_GetAttrString(finder, "INITIALIZED") : NULL;
        Py_XDECREF(finder);
        if (!initialized) {
            return NULL;
        }
    }
    PyObject *key = PyUnicode_FromString(name);
    PyObject *found = key ? PyDict_GetItemWithError(initialized, key) : NULL;
    Py_XINCREF(found);
    Py_XDECREF(key);
    return found || PyErr_Occurred() ? found : PyImport_ImportModule(name);
}

/* Adds a frame to a traceback. The build lets the Cython modules call cudadrv_trace_back under the
 * name of Python's function. It adds only the first frame, of the line that raises, so a traceback
 * does not show how a call of the program came to this line. (Cython's code for `except` needs one
 * frame.) With -DCUDADRV_FRAMES in CFLAGS, tracebacks show all frames. */
#undef PyTraceBack_Here
PyAPI_FUNC(int) PyTraceBack_Here(PyFrameObject *frame);

static int has_traceback(void) {
#if PY_VERSION_HEX >= 0x030C0000
    PyObject *raised = PyErr_GetRaisedException();
    PyObject *traceback = raised ? PyException_GetTraceback(raised) : NULL;
    int found = traceback != NULL;
    Py_XDECREF(traceback);
    PyErr_SetRaisedException(raised);
#else
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    int found = traceback != NULL;
    PyErr_Restore(type, value, traceback);
#endif
    return found;
}

int cudadrv_trace_back(PyFrameObject *frame) {
#ifndef CUDADRV_FRAMES
    if (has_traceback()) {
        return 0;
    }
#endif
    return PyTraceBack_Here(frame);
}
