"""Loading: an image becomes a module of the driver."""

from cudadrv._context cimport Context


cdef list compiler_options(
    object max_registers, object optimization_level, object target, bint lineinfo, bint debug_info,
    bint verbose)
cdef tuple load_image(Context context, object image, list options, str called)
