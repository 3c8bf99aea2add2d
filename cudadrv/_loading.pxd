"""Loading: an image becomes a module of the driver."""

from cudadrv._memory cimport Memory


cdef list compiler_options(
    object max_registers, object optimization_level, object target, bint lineinfo, bint debug_info,
    bint verbose)
cdef str load_image(Memory code, object image, list options, str called)
