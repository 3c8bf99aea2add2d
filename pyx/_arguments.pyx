# cython: nonecheck=True
"""Arguments: buffers and values of one launch, packed as the driver takes them."""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM

from cudadrv._access cimport Access
from cudadrv._driver cimport CUdeviceptr, bind_driver, cudadrv_table
from cudadrv._likely cimport likely, unlikely
from cudadrv._ownership cimport OWN_WRITE
from cudadrv._region cimport Region, check_region, is_region, pointer_of
from cudadrv._room cimport Room, new_room
from cudadrv._signature cimport Signature
from cudadrv._value cimport bytes_of_value, put_value, refuse_argument

from libc.string cimport memcpy

bind_driver(&cudadrv_table)  # for check_region

cdef enum:
    WIDEST = 4096   # bytes that all parameters of a kernel of unknown signature have room for
    ALIGNED = 16


cdef Room room_for(
    Signature signature, tuple arguments, tuple borrows, Frame *frame, Packed *packed
):
    """Where to pack: on the stack if it all fits there, else in a Room, which has to be kept."""
    cdef Py_ssize_t count = len(arguments)
    cdef Py_ssize_t uses = count + len(borrows)
    cdef size_t nbytes = signature.nbytes if signature.count >= 0 else WIDEST
    cdef Room room
    if likely(frame is not NULL and uses <= FEW_ARGUMENTS and nbytes <= 8 * FEW_WORDS):
        packed.pointers = frame.pointers
        packed.operands = frame.operands
        packed.values = <unsigned char *>frame.values
        return None
    nbytes += -nbytes % ALIGNED
    room = new_room(nbytes + count * sizeof(void *) + uses * sizeof(Operand))
    packed.values = <unsigned char *>room.start
    packed.operands = <Operand *>(packed.values + nbytes)
    packed.pointers = <void **>(packed.operands + uses)
    return room


cdef int pack(Signature signature, tuple arguments, tuple borrows, Packed *packed) except -1:
    """Check and convert the arguments. Their buffers are not asked whether they can be used."""
    cdef Py_ssize_t i
    cdef size_t at = 0
    cdef unsigned char *place
    packed.operand_count = 0
    if unlikely(signature.count < 0):
        for i in range(len(arguments)):
            at = _pack_unknown(signature, i, arguments[i], packed, at)
    else:
        if unlikely(len(arguments) != signature.count):
            _refuse_count(signature, len(arguments))
        for i in range(signature.count):
            place = packed.values + signature.parameters[i].offset
            packed.pointers[i] = place
            if not _put_buffer(signature, i, arguments[i], packed, place):
                put_value(signature, i, arguments[i], place)
    for i in range(len(borrows)):
        if _add_operand(borrows[i], -1 - i, packed) is None:
            raise TypeError("borrows takes buffers, or read(buffer), write(buffer) and"
                            f" shared(buffer), not {type(borrows[i]).__name__}")
    return 0


cdef bint _put_buffer(
    Signature signature, Py_ssize_t index, object value, Packed *packed, unsigned char *place
) except -1:
    """Whether it is a buffer, and then its address is the value."""
    cdef CUdeviceptr address
    cdef Region region
    if type(value) is int or type(value) is float:
        return False
    region = _add_operand(value, index, packed)
    if region is None:
        return False
    if unlikely(signature.count >= 0 and (
            signature.parameters[index].nbytes != sizeof(CUdeviceptr)
            or signature.parameters[index].kind in (b"f", b"S"))):
        refuse_argument(signature, index, value, "the parameter is no address")
    check_region(region)
    address = pointer_of(region)
    memcpy(place, &address, sizeof(address))
    return True


cdef Region _add_operand(object value, Py_ssize_t index, Packed *packed):
    """The buffer of an argument, which the launch borrows; None if it is none."""
    cdef Operand *operand = &packed.operands[packed.operand_count]
    cdef Region region
    operand.bare = is_region(value)
    if operand.bare:
        region = <Region>value
        operand.mode = OWN_WRITE
    elif isinstance(value, Access):
        region = (<Access>value).region
        operand.mode = (<Access>value).mode
    else:
        return None
    operand.region = <PyObject *>region
    operand.argument = index
    packed.operand_count += 1
    return region


cdef size_t _pack_unknown(
    Signature signature, Py_ssize_t index, object value, Packed *packed, size_t at
) except? 0:
    """Pack what says by itself how large it is; gives where the next one goes."""
    cdef size_t nbytes = sizeof(CUdeviceptr)
    packed.pointers[index] = packed.values + at
    if at + nbytes <= WIDEST and _put_buffer(signature, index, value, packed, packed.values + at):
        return at + ALIGNED
    data = bytes_of_value(signature, index, value)
    nbytes = len(data)
    if at + nbytes > WIDEST - ALIGNED:
        raise ValueError(f"the arguments of {signature.kernel} have more than {WIDEST} bytes")
    memcpy(packed.values + at, <const char *>data, nbytes)
    return at + nbytes + (-nbytes % ALIGNED)


cdef int _refuse_count(Signature signature, Py_ssize_t given) except -1:
    wanted = []
    for each in signature.listed:
        wanted.append(f"{each.name} (.{each.type})" if each.name is not None
                      else f"{each.nbytes} bytes")
    raise TypeError(f"{signature.kernel} takes {signature.count} arguments, not {given}:"
                    f" {', '.join(wanted) or 'none'}")


cdef object buffers_of(Packed *packed, int mode):
    """The buffers that are used in a mode: None, one, or a tuple of several."""
    cdef Py_ssize_t i
    cdef Py_ssize_t last = 0
    cdef Py_ssize_t count = 0
    cdef tuple found
    for i in range(packed.operand_count):
        if packed.operands[i].mode == mode:
            count += 1
            last = i
    if count == 0:
        return None
    if count == 1:
        return <Region>packed.operands[last].region
    found = PyTuple_New(count)
    count = 0
    for i in range(packed.operand_count):
        if packed.operands[i].mode == mode:
            region = <Region>packed.operands[i].region
            Py_INCREF(region)
            PyTuple_SET_ITEM(found, count, region)
            count += 1
    return found


cdef str describe_operand(Signature signature, Operand *operand):
    """As in messages: ``argument 2 (y, .u64) DeviceBuffer 'y'[0:64] (float32)``."""
    region = <Region>operand.region
    if operand.argument < 0:
        return f"borrows[{-1 - operand.argument}] {region.describe()}"
    return f"{signature.called(operand.argument)} {region.describe()}"
