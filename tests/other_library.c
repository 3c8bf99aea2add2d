/* Another library: a type of arrays with the C exchange API of DLPack, like PyTorch's tensors.
 *
 * Array(address, count, device) has `count` items of 4 bytes. A test can change its attributes, to
 * test how a consumer handles them. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <structmember.h>

#include "cudadrv/dlpack.h"

typedef struct {
    PyObject_HEAD
    PyObject *weak_references;
    unsigned long long address;
    long long shape[2];
    long long strides[2];
    int ndim, device_type, device, code, bits;
} Array;

static unsigned long long current_stream; /* the library's current stream, on every device */
static Py_ssize_t tensors;                /* number of exports that have not ended */
static char fails;                        /* the function that fails, or 0 */

typedef struct {
    dl_versioned managed;
    PyObject *array;
} Exported;

static int failed(char function) {
    if (fails == function) {
        PyErr_Format(PyExc_RuntimeError, "function %c has failed", function);
        return 1;
    }
    return 0;
}

static void fill(Array *array, dl_tensor *tensor) {
    tensor->data = (void *)array->address;
    tensor->device = (dl_device){array->device_type, array->device};
    tensor->ndim = array->ndim;
    tensor->dtype = (dl_dtype){(uint8_t)array->code, (uint8_t)array->bits, 1};
    tensor->shape = (int64_t *)array->shape;
    tensor->strides = (int64_t *)array->strides;
    tensor->byte_offset = 0;
}

static void end(dl_versioned *managed) {
    PyGILState_STATE state = PyGILState_Ensure();
    Exported *exported = managed->context;
    Py_DECREF(exported->array);
    PyMem_Free(exported);
    tensors--;
    PyGILState_Release(state);
}

static int managed_from_object(void *array, dl_versioned **out) {
    if (failed('m')) {
        return -1;
    }
    Exported *exported = PyMem_Calloc(1, sizeof *exported);
    exported->managed.major = DL_MAJOR;
    exported->managed.minor = DL_MINOR;
    exported->managed.context = exported;
    exported->managed.deleter = end;
    fill(array, &exported->managed.tensor);
    exported->array = Py_NewRef(array);
    tensors++;
    *out = &exported->managed;
    return 0;
}

static int tensor_from_object(void *array, dl_tensor *out) {
    if (failed('t')) {
        return -1;
    }
    fill(array, out);
    return 0;
}

static int current_work_stream(int32_t type, int32_t device, void **out) {
    (void)type, (void)device;
    if (failed('s')) {
        return -1;
    }
    *out = (void *)current_stream;
    return 0;
}

static dl_exchange functions = {
    .major = 1,
    .minor = 3,
    .managed_from_object = managed_from_object,
    .tensor_from_object = tensor_from_object,
    .current_work_stream = current_work_stream,
};
static dl_exchange newer = {.major = 2, .older = &functions};

static int begin(Array *self, PyObject *arguments, PyObject *names) {
    (void)names;
    self->shape[0] = 1;
    self->ndim = self->strides[0] = self->strides[1] = 1;
    self->device_type = DL_CUDA;
    self->code = DL_FLOAT;
    self->bits = 32;
    return PyArg_ParseTuple(arguments, "KL|i", &self->address, &self->shape[0], &self->device) - 1;
}

static void forget(Array *self) {
    PyObject_ClearWeakRefs((PyObject *)self);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *device_of(Array *self, PyObject *nothing) {
    (void)nothing;
    return Py_BuildValue("ii", self->device_type, self->device);
}

static PyObject *refuse(Array *self, PyObject *arguments, PyObject *names) {
    (void)self, (void)arguments, (void)names;
    PyErr_SetString(PyExc_BufferError, "__dlpack__ was asked");
    return NULL;
}

static PyMethodDef methods[] = {
    {"__dlpack_device__", (PyCFunction)device_of, METH_NOARGS, NULL},
    {"__dlpack__", (PyCFunction)(void (*)(void))refuse, METH_VARARGS | METH_KEYWORDS, NULL},
    {NULL, NULL, 0, NULL},
};

#define NUMBER(name, kind) {#name, kind, offsetof(Array, name), 0, NULL}
static PyMemberDef members[] = {
    NUMBER(address, T_ULONGLONG),
    NUMBER(ndim, T_INT),
    NUMBER(device_type, T_INT),
    NUMBER(device, T_INT),
    NUMBER(code, T_INT),
    NUMBER(bits, T_INT),
    {"count", T_LONGLONG, offsetof(Array, shape), 0, NULL},
    {"rows", T_LONGLONG, offsetof(Array, shape) + 8, 0, NULL},
    {"stride", T_LONGLONG, offsetof(Array, strides), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "other_library.Array",
    .tp_basicsize = sizeof(Array),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)begin,
    .tp_dealloc = (destructor)forget,
    .tp_methods = methods,
    .tp_members = members,
    .tp_weaklistoffset = offsetof(Array, weak_references),
};

static PyObject *set_stream(PyObject *module, PyObject *handle) {
    (void)module;
    current_stream = PyLong_AsUnsignedLongLongMask(handle);
    Py_RETURN_NONE;
}

static PyObject *live_tensors(PyObject *module, PyObject *nothing) {
    (void)module, (void)nothing;
    return PyLong_FromSsize_t(tensors);
}

static PyObject *fail(PyObject *module, PyObject *function) {
    (void)module;
    fails = PyUnicode_GetLength(function) ? (char)PyUnicode_ReadChar(function, 0) : 0;
    Py_RETURN_NONE;
}

static PyMethodDef module_functions[] = {
    {"set_stream", set_stream, METH_O, NULL},
    {"live_tensors", live_tensors, METH_NOARGS, NULL},
    {"fail", fail, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "other_library", .m_size = -1, .m_methods = module_functions};

PyMODINIT_FUNC PyInit_other_library(void) {
    PyObject *module = PyModule_Create(&definition);
    PyObject *capsule = PyCapsule_New(&newer, "dlpack_exchange_api", NULL);
    if (!module || !capsule || PyType_Ready(&type) < 0 ||
        PyDict_SetItemString(type.tp_dict, "__dlpack_c_exchange_api__", capsule) < 0 ||
        PyModule_AddObjectRef(module, "Array", (PyObject *)&type) < 0) {
        return NULL;
    }
    Py_DECREF(capsule);
    return module;
}
