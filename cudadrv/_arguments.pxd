"""Arguments: what a launch is given, as the driver takes it."""

from cpython.ref cimport PyObject
from libc.stdint cimport uint8_t

from cudadrv._room cimport Room
from cudadrv._signature cimport Signature

cdef enum:
    FEW_ARGUMENTS = 16      # that fit on the stack,
    FEW_WORDS = 32          # with so many times 8 bytes in all


cdef struct Operand:
    # A buffer that a kernel uses.
    PyObject *region        # whoever has the arguments keeps it alive
    Py_ssize_t argument     # its number; from -1 downward: of `borrows`
    uint8_t mode
    bint bare               # nothing was said of the mode


cdef struct Packed:
    void **pointers         # to the value of each parameter
    unsigned char *values
    Operand *operands
    Py_ssize_t operand_count


cdef struct Frame:
    # Room on the stack for few arguments.
    void *pointers[FEW_ARGUMENTS]
    unsigned long long values[FEW_WORDS]
    Operand operands[FEW_ARGUMENTS]


cdef Room room_for(Signature signature, tuple arguments, tuple borrows, Frame *frame,
                   Packed *packed)
cdef int pack(Signature signature, tuple arguments, tuple borrows, Packed *packed) except -1
cdef object buffers_of(Packed *packed, int mode)
cdef str describe_operand(Signature signature, Operand *operand)
