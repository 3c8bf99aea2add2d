"""Module: code and variables that were loaded into a context."""

from libc.stdint cimport uint64_t

from cudadrv._device cimport Context, is_usable
from cudadrv._driver cimport CUmodule, unlikely
from cudadrv._engine cimport own_guard
from cudadrv._memory cimport Memory


cdef list compiler_options(
    object max_registers, object optimization_level, object target, bint lineinfo, bint debug_info,
    bint verbose)
cdef str load_image(Memory code, object image, list options, str called)


cdef class Module:
    cdef Context context
    cdef str name
    cdef str log
    cdef Memory code            # the loaded code; each launch borrows it until the kernel is done
    cdef object image           # loaded again after a reset of the software driver, else None
    cdef list options           # of the driver's compiler
    cdef uint64_t birth         # see _site.pyx
    cdef object text            # cudadrv._ptx.Text, or None if the image is not PTX
    cdef dict variables         # the Memory of each variable that kernels or buffers use, by name
    cdef list unlisted          # the Memory of each variable that `text` does not list
    cdef Py_ssize_t changes     # how often `unlisted` has changed; a launch starts again after that
    cdef object kernels         # live Kernels by name
    cdef own_guard guard        # the users are calls that pass a handle of the module to the driver
    cdef object __weakref__

    cdef CUmodule raw(self) noexcept nogil
    cdef int usable(self) except -1
    cdef int begin_call(self) except -1
    cdef void end_call(self) noexcept nogil
    cdef str called(self)


cdef list variables_of(Module module, str kernel)


cdef inline int check_module(Module module) except -1:
    """Like `usable`, inlined for the fast path."""
    if unlikely(module.code is None or module.code.state.closed
                or not is_usable(module.context)):
        module.usable()
    return 0
