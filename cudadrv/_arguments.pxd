"""Arguments of launches, packed as the driver expects them."""

from cpython.float cimport PyFloat_AS_DOUBLE
from cpython.object cimport PyObject
from libc.math cimport isinf
from libc.stdint cimport int8_t, int32_t, int64_t, uint32_t, uint8_t
from libc.string cimport memcpy

from cudadrv._device cimport Context, Device
from cudadrv._driver cimport (
    CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE, CU_LAUNCH_PARAM_END,
    CUaccessPolicyWindow, CUdeviceptr, CUfunction, likely, unlikely,
)
from cudadrv._engine cimport OWN_READ, OWN_WRITE
from cudadrv._region cimport Region, check_region, is_region, pointer_of
from cudadrv._stream cimport Stream


cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object number, int *overflow) except? -1


cdef class Access:
    cdef Region region      # the buffer in read() or shared(), or None
    # The buffer in write() (see `add_written`), or an array of another library, for which a launch
    # makes a region; else None.
    cdef object other
    cdef uint8_t mode
    cdef object __weakref__


cdef class AccessWindow:
    cdef Region region
    cdef CUaccessPolicyWindow raw
    cdef object __weakref__


cdef class Room:
    cdef void *start


cdef Room new_room(size_t nbytes)


cdef bytes bytes_of_value(Signature signature, Py_ssize_t index, object value)
cdef int refuse_argument(Signature signature, Py_ssize_t index, object value, str why) except -1


cdef struct Parameter:
    uint32_t offset
    uint32_t nbytes
    char kind           # u, s, b or f as in PTX; S for a structure; 0 if it is not known
    int64_t least       # the smallest integer that fits; larger than `most` if no integer fits
    int64_t most        # the largest integer that fits and that an int64_t can hold


cdef class Signature:
    cdef readonly str kernel        # the name of the kernel
    cdef readonly tuple listed      # a cudadrv._ptx.Parameter for each parameter, or None
    cdef Parameter *parameters
    cdef Py_ssize_t count           # the number of parameters; -1 if it is not known
    cdef size_t nbytes              # the bytes of all parameters together

    cdef str called(self, Py_ssize_t index)


cdef Signature new_signature(str kernel, CUfunction function, Context context, object text)


cdef struct Shape:
    unsigned int grid[3]
    unsigned int block[3]
    unsigned int cluster[3]     # (0, 0, 0) if the launch has no clusters
    unsigned int shared_bytes
    uint8_t cooperative
    uint8_t plain               # the launch has no attributes; it may have shared_bytes
    uint8_t windowed            # `Packed.window` is set
    uint8_t domain              # 1 + the CUlaunchMemSyncDomain, or 0 if none is given
    uint8_t prioritized         # `priority` is given
    uint8_t early               # the launch may begin before the kernel before it has ended
    int8_t priority


cdef struct Takes:
    # The shapes of launches that a kernel takes. The only block and the only cluster are (0, 0, 0)
    # if launches can have others, or if they are not known.
    int threads                 # the most threads of a block
    int shared                  # the most dynamic shared memory of a block, in bytes
    unsigned int block[3]       # the only block
    unsigned int cluster[3]     # the only cluster
    bint only_clusters          # launches without clusters are errors
    unsigned int in_cluster     # the most blocks of a cluster
    unsigned int rank           # the PTX's limit of the blocks of a cluster (.maxclusterrank), or 0
    bint grid_of_blocks         # the grid is known to count blocks, and not clusters


cdef class Limits:
    cdef Device device
    cdef unsigned int grid[3]
    cdef unsigned int block[3]
    cdef readonly int shared_bytes      # the highest value for a kernel's limit of shared memory
    cdef readonly int multiprocessors
    cdef readonly bint cooperative
    cdef readonly bint clusters


cdef Limits limits_of(Device device)
cdef int fill_shape(
    Shape *shape, Limits limits, object grid, object block, object shared_bytes, bint cooperative,
    object cluster) except -1
cdef int check_shape(Shape *shape, Takes *takes, str kernel, object shared_bytes) except -1
cdef int check_block(Shape *shape, Takes *takes, str kernel) except -1
cdef int check_shared(
    unsigned int nbytes, Takes *takes, str kernel, object given) except -1
cdef unsigned long long product_of(const unsigned int *sizes) noexcept
cdef str dimensions(const unsigned int *sizes)


cdef enum:
    FEW_ARGUMENTS = 16      # how many arguments are packed on the stack
    MOST_OPERANDS = 2       # of one argument: a texture has its memory, and its object
    FEW_WORDS = 32          # how many 8-byte words of values are packed on the stack
    WIDEST = 4096           # the most bytes of arguments if the parameters are not known
    ARRAYS = 1              # what `pack` returns if there are arrays among the arguments


cdef struct Operand:
    # A buffer that a kernel uses.
    PyObject *region        # without a reference, because the arguments of the launch keep it alive
    Py_ssize_t argument     # index of the argument; -1 - i for item i of `borrows`
    uint8_t mode
    bint bare               # passed without read(), write() or shared()


cdef struct Packed:
    # The arguments of a launch. The driver takes them as one block of memory, or as a pointer to
    # each argument. A block is faster. Pointers are for kernels whose parameters are not known, and
    # for cooperative launches, for which a graph takes no block. The struct must not be moved.
    void **pointers         # a pointer to the value of each parameter; only on the heap
    void **extra            # `block_items`, by which the driver finds the block; else NULL
    void *block_items[5]
    size_t nbytes           # the size of the block
    unsigned char *values   # the block, or what `pointers` point to
    Operand *operands
    Py_ssize_t operand_count
    bint handles            # there is a texture or a surface
    PyObject *borrows       # the tuple `borrows` of the launch, while `pack` runs
    const CUaccessPolicyWindow *window      # set only if the shape is `windowed`


cdef struct Frame:
    # Memory on the stack for a few arguments.
    unsigned long long values[FEW_WORDS]
    Operand operands[FEW_ARGUMENTS * MOST_OPERANDS]
    void *pointers[FEW_ARGUMENTS]   # only for nodes of graphs: see `point_to_values`


cdef tuple add_attributes(
    Shape *shape, Packed *packed, Context context, object priority, object domain, object window,
    tuple borrows)
cdef bint is_array(object value) except -1
cdef tuple with_regions(
    PyObject *const *values, Py_ssize_t count, Stream stream, list used, list captures)
cdef Room room_on_heap(
    Signature signature, Py_ssize_t count, Py_ssize_t uses, bint cooperative, Packed *packed)
cdef void point_to_values(Signature signature, Py_ssize_t count, Packed *packed) noexcept
cdef int pack_unknown(
    Signature signature, PyObject *const *arguments, Py_ssize_t count, Packed *packed) except -1
cdef int pack_borrows(
    Signature signature, PyObject *const *arguments, Py_ssize_t count, Packed *packed) except -1
cdef int put_other(
    Signature signature, PyObject *const *arguments, Py_ssize_t index, Packed *packed) except -1
cdef Region add_written(
    Signature signature, PyObject *const *arguments, Py_ssize_t count, object value,
    Py_ssize_t argument, Packed *packed)
cdef bint add_handle(object value, Py_ssize_t argument, Packed *packed) except -1
cdef str hint_at(PyObject *const *arguments, Py_ssize_t given)
cdef int refuse_count(
    Signature signature, PyObject *const *arguments, Py_ssize_t given) except -1
cdef int refuse_address(Signature signature, Py_ssize_t index, object value) except -1
cdef object of_present_sizes(object uses)
cdef Region region_of(object use)
cdef str describe_operand(Signature signature, Operand *operand)


cdef inline Room room_for(
    Signature signature, Py_ssize_t count, tuple borrows, bint cooperative, Frame *frame,
    Packed *packed
):
    """Let `packed` refer to `frame` if everything fits there, else to a new Room.

    `count` is the number of arguments. Returns the Room, which the caller keeps as long as `packed`
    is used, or None.
    """
    cdef Py_ssize_t uses = count + len(borrows)
    if likely(frame is not NULL and not cooperative and uses <= FEW_ARGUMENTS
              and signature.count >= 0 and signature.nbytes <= 8 * FEW_WORDS):
        packed.operands = frame.operands
        use_block(packed, <unsigned char *>frame.values, signature.nbytes)
        return None
    return room_on_heap(signature, count, uses, cooperative, packed)


cdef inline void use_block(Packed *packed, unsigned char *values, size_t nbytes) noexcept:
    """Let the driver take the arguments as one block, which `values` points to."""
    packed.values, packed.nbytes = values, nbytes
    packed.block_items[0], packed.block_items[1] = CU_LAUNCH_PARAM_BUFFER_POINTER, values
    packed.block_items[2], packed.block_items[3] = CU_LAUNCH_PARAM_BUFFER_SIZE, &packed.nbytes
    packed.block_items[4] = CU_LAUNCH_PARAM_END
    packed.extra = packed.block_items


cdef inline int pack(
    Signature signature, PyObject *const *arguments, Py_ssize_t count, tuple borrows, Packed *packed
) except -1:
    """Check and convert the arguments. Whether the buffers may be used is checked by the launch.

    Returns 0, or ARRAYS if there are arrays of other libraries, or arrays in `In`, `Out` or `InOut`
    among the arguments. The caller then replaces these by buffers (`with_regions`), and packs the
    arguments again.
    """
    cdef Py_ssize_t i
    cdef unsigned char *place
    packed.operand_count, packed.handles, packed.borrows = 0, False, <PyObject *>borrows
    if unlikely(signature.count < 0):
        if pack_unknown(signature, arguments, count, packed):
            return ARRAYS
    else:
        if unlikely(count != signature.count):
            refuse_count(signature, arguments, count)
        for i in range(count):
            place = packed.values + signature.parameters[i].offset
            if not put_number(&signature.parameters[i], <object>arguments[i], place) \
                    and not put_buffer(signature, i, <object>arguments[i], packed, place):
                if unlikely(is_array(<object>arguments[i])):
                    return ARRAYS
                put_other(signature, arguments, i, packed)
    return pack_borrows(signature, arguments, count, packed) if unlikely(len(borrows)) else 0


cdef inline bint put_number(
    Parameter *parameter, object value, unsigned char *place
) except -1:
    """Write a Python int or float that fits the parameter. Returns False for other values."""
    cdef int overflow = 0
    cdef int64_t number
    cdef double double_precision
    cdef float single
    if type(value) is int:
        number = PyLong_AsLongLongAndOverflow(value, &overflow)
        if unlikely(overflow or not parameter.least <= number <= parameter.most):
            return False
        if likely(parameter.nbytes == 4):
            (<int32_t *>place)[0] = <int32_t>number
        elif likely(parameter.nbytes == 8):
            (<int64_t *>place)[0] = number
        else:
            memcpy(place, &number, parameter.nbytes)  # every host of CUDA is little-endian
        return True
    if type(value) is not float or parameter.kind != b"f":
        return False
    double_precision = PyFloat_AS_DOUBLE(value)
    if parameter.nbytes == 8:
        (<double *>place)[0] = double_precision
        return True
    single = <float>double_precision
    if unlikely(parameter.nbytes != 4 or (isinf(single) and not isinf(double_precision))):
        return False
    (<float *>place)[0] = single
    return True


cdef inline bint put_buffer(
    Signature signature, Py_ssize_t index, object value, Packed *packed, unsigned char *place
) except -1:
    """Write the address of a buffer, and add an operand for it. Returns False for other values.

    A buffer in `write` is one of the other values: see `put_other`.
    """
    cdef Parameter *parameter
    cdef Region region = add_operand(value, index, packed)
    if unlikely(region is None):
        return False
    if likely(signature.count >= 0):
        parameter = &signature.parameters[index]
        if unlikely(parameter.nbytes != sizeof(CUdeviceptr) or parameter.kind in (b"f", b"S")):
            refuse_address(signature, index, value)
    check_region(region)
    (<CUdeviceptr *>place)[0] = pointer_of(region)
    return True


cdef inline Region add_operand(object value, Py_ssize_t index, Packed *packed):
    """Add the operand of an argument that is a buffer, and return the buffer; else return None.

    Returns None for a buffer in `write`, which `add_written` adds.
    """
    cdef Operand *operand = &packed.operands[packed.operand_count]
    cdef Region region
    if type(value) is Access:
        region = (<Access>value).region
        if unlikely(region is None):
            return None
        operand.mode = (<Access>value).mode
        operand.bare = False
    elif is_region(value):
        region = <Region>value
        operand.mode = OWN_WRITE
        operand.bare = True
    else:
        return None
    operand.region = <PyObject *>region
    operand.argument = index
    packed.operand_count += 1
    return region
