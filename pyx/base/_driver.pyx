"""The driver layer: opens a libcuda.so.1 at run time, and fills the call table with its functions.

`cudadrv._library` decides which library is opened, and `cudadrv._errors` turns statuses into
exceptions.

State that outlives a call: the call table, and whether the driver is the software driver, written
once (the GIL guards them); the name of the function that failed last, and what the driver logged
then (thread-local).
"""

import os

from libc.string cimport strcmp


cdef extern from "cudadrv/driver_loader.h":
    const char *cudadrv_last_failure
    void cudadrv_prepare_table()
    bint cudadrv_load_table(void *library)
    const char *cudadrv_next_missing(size_t *index)
    const char *cudadrv_library_path(void *library)
    void cudadrv_not_supported()


cdef extern from "cudadrv/driver_log.h":
    void cudadrv_hear(void *data, int level, char *message, size_t length) noexcept nogil
    int cudadrv_log_count() noexcept
    const char *cudadrv_log_line(int i, size_t *length) noexcept


cdef extern from "<dlfcn.h>":
    int RTLD_NOW
    int RTLD_LOCAL
    void *dlopen(const char *path, int mode) nogil
    void *dlsym(void *library, const char *name)
    const char *dlerror()


ctypedef const char *(*explain_function)() noexcept
ctypedef int (*set_words_function)(const Words *words) noexcept nogil
ctypedef const char *(*fault_function)(int device) noexcept nogil

cdef explain_function _explain = NULL
cdef fault_function _fault = NULL
cdef bint _software = False

cudadrv_prepare_table()


cdef const char *last_failure() noexcept nogil:
    """Return the name of the driver function that failed last in this thread."""
    return cudadrv_last_failure


cdef bint was_not_called() noexcept nogil:
    """Whether the driver call that failed last in this thread should have made a context current.

    If so, the driver function that needed this context was not called.
    """
    return strcmp(cudadrv_last_failure, "cuCtxGetCurrent") == 0 \
        or strcmp(cudadrv_last_failure, "cuCtxPushCurrent") == 0 \
        or strcmp(cudadrv_last_failure, "cuCtxSetCurrent") == 0


def hear_log():
    """Begin to keep what the driver logs about failed calls, if it has a log (since CUDA 12.9)."""
    cdef void *handle = NULL
    with nogil:
        cuLogsRegisterCallback(cudadrv_hear, NULL, &handle)


def failure_log():
    """Return the lines that the driver logged for the call that failed last in this thread."""
    cdef int i
    cdef size_t length = 0
    cdef const char *line
    lines = []
    for i in range(cudadrv_log_count()):
        line = cudadrv_log_line(i, &length)
        lines.append(line[:length].decode(errors="replace"))
    return lines


def open_driver(str name not None):
    """Open a libcuda.so.1, fill the call table with its functions, and return its path.

    Raises OSError with the dynamic linker's message if the library cannot be opened, and
    LookupError if it is not a driver of CUDA 12.0 or newer. After an error the table is unchanged.
    """
    global _explain, _fault, _software
    cdef bytes path = os.fsencode(name)
    cdef const char *c_path = path
    cdef void *library
    with nogil:
        library = dlopen(c_path, RTLD_NOW | RTLD_LOCAL)
    if library is NULL:
        raise OSError(os.fsdecode(dlerror()))
    if not cudadrv_load_table(library):
        raise LookupError(
            f"{name} has no cuGetProcAddress_v2, so it is not a CUDA driver of 12.0 or newer")
    _explain = <explain_function>dlsym(library, b"cudadrvSoftError")
    _fault = <fault_function>dlsym(library, b"cudadrvSoftFaultOf")
    _software = dlsym(library, b"cudadrvSoftVersion") is not NULL
    cdef set_words_function set_words = <set_words_function>dlsym(library, b"cudadrvSoftSetWords")
    if set_words is not NULL:
        set_words(&words)
    cdef const char *found = cudadrv_library_path(library)
    return os.fsdecode(found) if found is not NULL else name


def is_software():
    """Whether the opened driver is cudadrv's software driver."""
    return _software


def explanation():
    """Return the software driver's message that says why it does not start; "" if there is none."""
    cdef const char *text = _explain() if _explain is not NULL else NULL
    return text.decode(errors="replace") if text is not NULL else ""


def fault_of(int device):
    """Return the software driver's text about the kernel that failed last on a device.

    Returns "" if no kernel has failed there, or another device's kernel has failed since.
    """
    cdef const char *text = NULL
    if _fault is not NULL:
        with nogil:
            text = _fault(device)
    return text.decode(errors="replace") if text is not NULL else ""


def missing_functions():
    """Return the names of the functions that cudadrv declares and the opened driver lacks."""
    cdef size_t index = 0
    cdef const char *name
    names = []
    while True:
        name = cudadrv_next_missing(&index)
        if name is NULL:
            return tuple(names)
        names.append(name.decode())


cdef const void *missing_entry() noexcept:
    """Return what the table has for each function that the driver lacks."""
    return <const void *>cudadrv_not_supported


def header_version():
    """Return the CUDA_VERSION of the cuda.h that cudadrv was compiled with, such as 13000."""
    return CUDA_VERSION


cdef extern from *:
    """
    /* No other thread ever gets the same number. The identifiers that Python and the system give
     * to threads are given to new threads when the old ones have ended. */
    static unsigned long number_of_this_thread(void) {
        static unsigned long threads;
        static __thread unsigned long number;
        if (!number) {
            number = __atomic_add_fetch(&threads, 1, __ATOMIC_RELAXED);
        }
        return number;
    }
    """
    unsigned long number_of_this_thread() noexcept nogil


cdef unsigned long this_thread() noexcept nogil:
    """Return the number of the calling thread. Another thread never gets the same number."""
    return number_of_this_thread()
