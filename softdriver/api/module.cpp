// The library is built as a Python extension module, so that wheels can contain it. Clients open it
// by its path, as they open any libcuda.so. Only base/caller.cpp uses Python, too, if the process
// has it. The one Python symbol that this file needs is weak, so a program without Python can load
// the library too.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern "C" PyObject *PyModuleDef_Init(PyModuleDef *) __attribute__((weak));

static PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                                 "cudadrv._softdriver",
                                 "The software driver: a libcuda in software, opened by its path.",
                                 0,
                                 nullptr,
                                 nullptr,
                                 nullptr,
                                 nullptr,
                                 nullptr};

PyMODINIT_FUNC PyInit__softdriver(void) { return PyModuleDef_Init(&definition); }
