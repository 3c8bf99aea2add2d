"""Arguments: what a launch is given, as the driver takes it."""

from cpython.ref cimport PyObject
from libc.stdint cimport uint32_t, uint8_t

from cudadrv._device cimport Context, Device
from cudadrv._driver cimport CUfunction
from cudadrv._region cimport Region


cdef class Access:
    cdef Region region
    cdef uint8_t mode
    cdef object __weakref__


cdef class Room:
    cdef void *start


cdef Room new_room(size_t nbytes)


cdef int put_value(
    Signature signature, Py_ssize_t index, object value, unsigned char *place) except -1
cdef bytes bytes_of_value(Signature signature, Py_ssize_t index, object value)
cdef int refuse_argument(Signature signature, Py_ssize_t index, object value, str why) except -1


cdef struct Parameter:
    uint32_t offset
    uint32_t nbytes
    char kind           # u, s, b or f as in PTX; S: a structure; 0: not known


cdef class Signature:
    cdef readonly str kernel        # the name of the kernel
    cdef readonly tuple listed      # cudadrv._ptx.Parameter for each; None if nothing is known
    cdef Parameter *parameters
    cdef Py_ssize_t count           # -1 if nothing is known
    cdef size_t nbytes              # of all of them

    cdef str called(self, Py_ssize_t index)


cdef Signature new_signature(str kernel, CUfunction function, Context context, object text)


cdef struct Shape:
    unsigned int grid[3]
    unsigned int block[3]
    unsigned int cluster[3]     # zeros: none
    unsigned int shared_bytes
    bint cooperative
    bint plain                  # without cluster and not cooperative


cdef class Limits:
    cdef Device device
    cdef unsigned int grid[3]
    cdef unsigned int block[3]
    cdef readonly int shared_bytes      # that a block can have, if its kernel asks for it
    cdef readonly int multiprocessors
    cdef readonly bint cooperative
    cdef readonly bint clusters


cdef Limits limits_of(Device device)
cdef int fill_shape(
    Shape *shape, Limits limits, object grid, object block, object shared_bytes, bint cooperative,
    object cluster) except -1
cdef unsigned long long threads_of(Shape *shape) noexcept
cdef str dimensions(const unsigned int *sizes)


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
