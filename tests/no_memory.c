/* Python's allocators fail in one thread: in the thread that asks for it, and in no other one.
 *
 * _testcapi.set_nomemory makes the allocators fail in all threads. A thread of pytest-xdist that
 * receives the next tests meanwhile then ends the whole worker. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

static PyMemAllocatorEx allocators[3];       /* Python's own, by domain */
static __thread long seen, first, last = -1; /* allocations of this thread; the range that fails */

static int fails(void) { return last >= 0 && seen++ >= first && seen <= last; }

static void *hooked_malloc(void *domain, size_t size) {
    PyMemAllocatorEx *own = domain;
    return fails() ? NULL : own->malloc(own->ctx, size);
}

static void *hooked_calloc(void *domain, size_t count, size_t size) {
    PyMemAllocatorEx *own = domain;
    return fails() ? NULL : own->calloc(own->ctx, count, size);
}

static void *hooked_realloc(void *domain, void *block, size_t size) {
    PyMemAllocatorEx *own = domain;
    return fails() ? NULL : own->realloc(own->ctx, block, size);
}

static void hooked_free(void *domain, void *block) {
    PyMemAllocatorEx *own = domain;
    own->free(own->ctx, block);
}

static PyObject *begin(PyObject *module, PyObject *args) {
    if (!PyArg_ParseTuple(args, "ll", &first, &last)) {
        return NULL;
    }
    seen = 0;
    Py_RETURN_NONE;
}

static PyObject *end(PyObject *module, PyObject *unused) {
    last = -1;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"begin", begin, METH_VARARGS, "Let the allocations from `first` up to `last` fail."},
    {"end", end, METH_NOARGS, "Let no allocation fail any more."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "no_memory", NULL, -1, methods};

PyMODINIT_FUNC PyInit_no_memory(void) {
    /* The hooks stay, because a thread may free a block at any time. */
    for (int domain = PYMEM_DOMAIN_RAW; domain <= PYMEM_DOMAIN_OBJ; domain++) {
        PyMemAllocatorEx hooked = {&allocators[domain], hooked_malloc, hooked_calloc,
                                   hooked_realloc, hooked_free};
        PyMem_GetAllocator((PyMemAllocatorDomain)domain, &allocators[domain]);
        PyMem_SetAllocator((PyMemAllocatorDomain)domain, &hooked);
    }
    return PyModule_Create(&definition);
}
