"""Signature: what arguments a kernel takes, as the driver and its PTX text tell."""

cimport cython
from libc.stdlib cimport calloc, free

from cudadrv._context cimport Context, enter_context, leave_context
from cudadrv._driver cimport (
    CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUfunction, CUresult,
    bind_driver, cudadrv_table, cuFuncGetParamInfo,
)

from cudadrv._errors import CudaError
from cudadrv._ptx import Parameter as Listed

bind_driver(&cudadrv_table)


@cython.final
cdef class Signature:
    """The parameters of a kernel: internal to `Kernel`."""

    def __dealloc__(self):
        free(self.parameters)

    cdef str called(self, Py_ssize_t index):
        """A parameter in messages: ``argument 2 (y, .u64)``."""
        if self.count < 0:
            return f"argument {index}"
        given = self.listed[index]
        if given.name is None:
            return f"argument {index} ({given.nbytes} bytes)"
        return f"argument {index} ({given.name}, .{given.type})"


cdef Signature new_signature(str kernel, CUfunction function, Context context, object text):
    """What is known of a kernel whose parameters the PTX text says to be these, or None.

    The driver's word counts; names and types come from the text, where both agree. Raises CudaError
    where they do not agree on how many there are: a launch could lack arguments.
    """
    cdef Signature signature = Signature.__new__(Signature)
    cdef Parameter *each
    signature.kernel = kernel
    signature.count = -1
    listed = _of_driver(function, context)
    if listed is not None and text is not None and len(listed) != len(text):
        raise CudaError(
            <int>CUDA_ERROR_INVALID_VALUE, "cuFuncGetParamInfo",
            f"The driver counts {len(listed)} parameters of kernel {kernel!r}, its PTX {len(text)}")
    if listed is None or (text is not None and _same_places(listed, text)):
        listed = text
    if listed is None:
        return signature
    signature.parameters = <Parameter *>calloc(len(listed) + 1, sizeof(Parameter))
    if signature.parameters is NULL:
        raise MemoryError()
    for i, given in enumerate(listed):
        each = &signature.parameters[i]
        each.offset, each.nbytes = given.offset, given.nbytes
        if given.type is not None:
            each.kind = ord("S") if "[" in given.type else ord(given.type[0])
        signature.nbytes = max(signature.nbytes, given.offset + given.nbytes)
    signature.listed, signature.count = listed, len(listed)
    return signature


cdef bint _same_places(tuple listed, tuple text):
    """Whether offsets and sizes are the same."""
    for one, other in zip(listed, text, strict=True):
        if (one.offset, one.nbytes) != (other.offset, other.nbytes):
            return False
    return True


cdef tuple _of_driver(CUfunction function, Context context):
    """Offsets and sizes; None if the driver does not support the question."""
    cdef size_t offset = 0
    cdef size_t nbytes = 0
    cdef size_t index
    cdef CUresult status
    cdef bint pushed = False
    found = []
    while True:
        index = len(found)
        with nogil:
            context.check(enter_context(context.raw, &pushed))
            status = cuFuncGetParamInfo(function, index, &offset, &nbytes)
            leave_context(pushed)
        if status == CUDA_ERROR_NOT_SUPPORTED:
            return None
        if status == CUDA_ERROR_INVALID_VALUE:  # there is no parameter of this number
            return tuple(found)
        context.check(status)
        found.append(Listed(None, None, offset, nbytes))
