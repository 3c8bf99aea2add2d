/* A libnvJitLink without functions, which programs find instead of NVIDIA's.
 *
 * nvJitLink links PTX to machine code, which the software driver cannot run. numba-cuda, its MLIR
 * version and cuda.core ask for the version of nvJitLink. Versions before 12.3 have no function
 * that returns it. If these programs do not find this function, they let the driver link the PTX,
 * as they do where nvJitLink is too old.
 *
 * The library is built like an extension module, so that wheels can contain it: see api/module.cpp.
 * setup.py gives it the SONAME of the version for CUDA 13. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

const char cudadrvNoNvJitLink[] = "libnvJitLink of cudadrv: it has no functions";

PyObject *PyModuleDef_Init(PyModuleDef *) __attribute__((weak));

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "cudadrv._nvjitlink",
    .m_doc = "A libnvJitLink without functions, opened by its path.",
};

PyMODINIT_FUNC PyInit__nvjitlink(void) { return PyModuleDef_Init(&definition); }
