# cython: nonecheck=True
"""Arguments of launches: checks them against the kernel, and packs them as the driver expects them.

State that outlives a call: the limits of each device (the GIL guards them).
"""

import ctypes
import operator
from struct import pack as pack_number

import numpy as np

cimport cython
from cpython.long cimport PyLong_AsLongLong, PyLong_CheckExact
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from cudadrv._device cimport Context, Device
from cudadrv._driver cimport (
    CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CU_ACCESS_PROPERTY_PERSISTING,
    CU_ACCESS_PROPERTY_STREAMING, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH,
    CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE,
    CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X,
    CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z,
    CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y,
    CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT,
    CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE, CUdeviceptr, CUfunction, CUresult, has_answered,
    in_cuFuncGetParamInfo, items_of, likely, unlikely,
)
from cudadrv._engine cimport OWN_READ, OWN_SHARED, OWN_WRITE
from cudadrv._errors cimport only_made_by
from cudadrv._exchange cimport import_argument, is_foreign_array
from cudadrv._offload cimport IN, ArrayArgument, Capture
from cudadrv._region cimport (
    Region, check_region, grows, is_closed, is_region, of_present_size, overlap, plain_array,
    pointer_of,
)
from cudadrv._signal cimport Signal, word_of
from cudadrv._stream cimport Stream
from cudadrv._textures cimport Handle

from cudadrv._errors import CudaError
from cudadrv._ptx import Parameter as Listed

# ---- what a kernel does with a buffer ----

cdef dict WORDS = {OWN_READ: "read", OWN_WRITE: "write", OWN_SHARED: "shared"}


@cython.final
@cython.freelist(16)
cdef class Access:
    """Access(*args, **kwargs)\n--\n
    A kernel argument: a buffer, and how the kernel uses it. See `read`, `write` and `shared`.

    Attributes
    ----------
    buffer : Buffer
    mode : str
        "read", "write" or "shared".
    """

    @property
    def buffer(self):
        """The buffer that is passed, or the array of another library."""
        return self.other if self.region is None else self.region

    @property
    def mode(self):
        """How the kernel uses the buffer: "read", "write" or "shared"."""
        return WORDS[self.mode]

    def __repr__(self):
        return f"{WORDS[self.mode]}({self.buffer!r})"


only_made_by(Access, "use cudadrv.read(buffer), write(buffer) or shared(buffer)")


cdef inline Access _access_to(Region region, int mode):
    cdef Access access = Access.__new__(Access)
    access.mode = mode
    if mode == OWN_WRITE:
        access.other = region
    else:
        access.region = region
    return access


cdef Region region_in(Access access):
    """Return the buffer of an argument in `read`, `write` or `shared`; None for an array."""
    if access.region is None and is_region(access.other):
        return access.other
    return access.region


cdef inline Access _access(object buffer, int mode):
    cdef Access access
    if likely(is_region(buffer)):
        return _access_to(buffer, mode)
    if type(buffer) is Signal:
        if mode != OWN_SHARED:
            raise TypeError(f"{WORDS[mode]}() takes no signal, whose number changes while kernels"
                            " run; pass it as cudadrv.shared(signal)")
        return _access_to(word_of(buffer), mode)
    if not is_foreign_array(buffer):
        raise TypeError(f"{WORDS[mode]}() takes a buffer, or an array with DLPack or the CUDA Array"
                        f" Interface, not {type(buffer).__name__}")
    access = _access_to(None, mode)
    access.other = buffer
    return access


def read(buffer):
    """Return an argument for `Kernel.launch`: a buffer that the kernel only reads.

    Other work may read the buffer at the same time. The kernel must not write it, except through a
    bare argument that overlaps it. Raises TypeError if the argument is neither a buffer nor an
    array of another library.
    """
    return _access(buffer, OWN_READ)


def write(buffer):
    """Return an argument for `Kernel.launch`: a buffer that the kernel reads and writes.

    A buffer that is passed without `read`, `write` or `shared` counts as written, too. But only a
    bare buffer may overlap a buffer that the same launch gets in `read`: with `write`, the launch
    raises ValueError. Raises TypeError if the argument is neither a buffer nor an array of another
    library.
    """
    return _access(buffer, OWN_WRITE)


def shared(buffer):
    """Return an argument for `Kernel.launch`: a buffer whose use the program itself synchronizes.

    An example is a flag that the host sets while the kernel waits for it. cudadrv does not check
    how this use is ordered with others; it only keeps the memory from being closed or freed while
    the kernel may use it. A `Signal` is passed in this way, too: the kernel gets the address of its
    number (8 bytes, unsigned). Raises TypeError if the argument is neither a buffer, a signal nor
    an array of another library.
    """
    return _access(buffer, OWN_SHARED)


# ---- parts of the L2 cache ----

@cython.final
cdef class AccessWindow:
    """AccessWindow(*args, **kwargs)\n--\n
    A range of memory that a launch keeps in the L2 cache: see `access_window`.

    Attributes
    ----------
    buffer : Buffer
    hit_ratio : float
    """

    @property
    def buffer(self):
        """The buffer whose bytes stay in the cache."""
        return self.region

    @property
    def hit_ratio(self):
        """The part of the accesses that persist in the cache."""
        return self.raw.hitRatio

    def __repr__(self):
        return f"access_window({self.region!r}, hit_ratio={self.hit_ratio:g})"


only_made_by(AccessWindow, "use cudadrv.access_window(buffer)")


def access_window(buffer, *, hit_ratio=1.0):
    """Return the argument ``window=`` of `Kernel.launch`: memory that is to stay in the L2 cache.

    Accesses of the kernel to the buffer persist in the part of the cache that
    ``context.limits.persisting_bytes`` sets aside. If the buffer is larger than that part, choose
    ``hit_ratio`` so that the product is not: that part of the accesses, from 0 to 1, persists, and
    the others pass through. It is a hint, which changes no results.

    Raises TypeError if the argument is no buffer, and ValueError for another ratio, or for a buffer
    larger than the device's attribute ``max_access_policy_window_size``.
    """
    cdef AccessWindow window = AccessWindow.__new__(AccessWindow)
    cdef Region region
    if not is_region(buffer):
        raise TypeError(f"access_window takes a buffer, not {type(buffer).__name__}")
    ratio = float(hit_ratio)
    if not 0 <= ratio <= 1:
        raise ValueError(f"hit_ratio is {hit_ratio!r}, and must be from 0 to 1")
    check_region(<Region>buffer)
    region = of_present_size(<Region>buffer)
    most = region.memory.context.device.attribute_value(
        CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE)
    if region.nbytes > <size_t>most:
        raise ValueError(f"{region.describe()} has {region.nbytes} bytes, and a window of"
                         f" {region.memory.context.device!r} at most {most}; use a part of it")
    window.region = region
    window.raw.num_bytes, window.raw.hitRatio = region.nbytes, ratio
    window.raw.hitProp = CU_ACCESS_PROPERTY_PERSISTING
    window.raw.missProp = CU_ACCESS_PROPERTY_STREAMING
    return window


# ---- bytes that do not fit on the stack ----

@cython.final
cdef class Room:
    """A block of host memory that is freed with this object. Internal to cudadrv."""

    def __dealloc__(self):
        free(self.start)


cdef Room new_room(size_t nbytes):
    cdef Room room = Room.__new__(Room)
    room.start = malloc(nbytes if nbytes else 1)
    if room.start is NULL:
        raise MemoryError()
    return room


# ---- numbers and structures as the bytes of a parameter ----

cdef extern from "Python.h":
    unsigned long long PyLong_AsUnsignedLongLong(object number) except? -1

# NumPy's own types of scalars.
cdef set _NUMBERS = set(np.sctypeDict.values())
_SimpleCType = ctypes.c_int.__mro__[1]
_CData = _SimpleCType.__mro__[1]
cdef tuple TYPED = (np.generic, np.ndarray, _CData)
# Formats of `struct` for .f16 (half precision), .f32 and .f64, by size in bytes.
cdef dict FLOATS = {2: "<e", 4: "<f", 8: "<d"}


cdef int _put_value(
    Signature signature, Py_ssize_t index, object value, unsigned char *place
) except -1:
    """Convert a value to the type of parameter `index`, and write it to `place`.

    Raises TypeError or ValueError if the parameter cannot have this value.
    """
    cdef Parameter *parameter = &signature.parameters[index]
    if put_number(parameter, value, place):
        return 0
    data = _converted(signature, index, value, parameter)
    memcpy(place, <const char *>data, parameter.nbytes)
    return 0


cdef int _put_integer(
    Signature signature, Py_ssize_t index, object value, unsigned char *place
) except -1:
    """Write an integer, or raise ValueError if it does not fit.

    Negative numbers fit a .u32, because PTX uses that type for signed integers of C, too.
    """
    cdef Parameter *parameter = &signature.parameters[index]
    cdef uint64_t large = 0
    if put_number(parameter, value, place):
        return 0
    if parameter.nbytes != 8 or parameter.kind == b"s":
        _refuse_range(signature, index, value)
    try:
        large = PyLong_AsUnsignedLongLong(value)
    except OverflowError:
        _refuse_range(signature, index, value)
    memcpy(place, &large, 8)
    return 0


cdef bytes _converted(
    Signature signature, Py_ssize_t index, object value, Parameter *parameter
):
    """Return the bytes of a value that `put_number` does not accept.

    Raises TypeError or ValueError if the parameter cannot have this value.
    """
    if isinstance(value, TYPED):
        return bytes_of_value(signature, index, value)
    if parameter.kind == 0:
        refuse_argument(signature, index, value, "its type is not known here, so give it one: pass"
                                                 " numpy.int32(...), a ctypes value or a buffer")
    if parameter.kind == b"f" and isinstance(value, (int, float)):
        return _float(signature, index, value, parameter.nbytes)
    if parameter.kind in (b"u", b"s", b"b") and parameter.nbytes <= 8 \
            and not isinstance(value, float) and hasattr(value, "__index__"):
        data = bytearray(8)
        _put_integer(signature, index, operator.index(value), data)
        return bytes(data)
    refuse_argument(signature, index, value, _advice(value, parameter))


cdef bytes _float(Signature signature, Py_ssize_t index, object value, int nbytes):
    """Return the bytes of a number as a float. Raises ValueError if an integer would be rounded."""
    code = FLOATS.get(nbytes)
    if code is None:
        refuse_argument(signature, index, value, "pass a NumPy or ctypes value of that size")
    data = b""
    try:
        data = pack_number(code, float(value))
    except OverflowError:
        _refuse_range(signature, index, value)
    if isinstance(value, int) and int(np.frombuffer(data, code)[0]) != value:
        raise ValueError(f"{signature.called(index)} of {signature.kernel} is {value!r}, and no"
                         f" float of {nbytes} bytes is exactly that; pass float(...) to round it")
    return data


cdef bytes bytes_of_value(Signature signature, Py_ssize_t index, object value):
    """Return the bytes of a NumPy scalar, a 0-dimensional array or a ctypes value.

    Raises TypeError if its type does not fit the parameter.
    """
    cdef Parameter *parameter = NULL
    if not isinstance(value, TYPED):
        refuse_argument(signature, index, value, "nothing is known of the parameters of this kernel"
                                                 ", so pass NumPy or ctypes values, or buffers")
    if isinstance(value, _CData):
        kind, data = _ctype_kind(value), bytes(memoryview(value))
    else:
        if type(value) not in _NUMBERS:
            value = plain_array(value)  # a subclass can override the attributes
        if value.shape or value.dtype.hasobject:
            refuse_argument(signature, index, value, _advice(value, NULL))
        if not value.dtype.isnative:
            refuse_argument(signature, index, value, "the device has the other byte order; convert"
                                                     " it: value.astype(dtype.newbyteorder('='))")
        kind, data = value.dtype.kind, value.tobytes()
    if signature.count < 0:
        return data
    parameter = &signature.parameters[index]
    if len(data) != parameter.nbytes:
        refuse_argument(signature, index, value,
                        f"it has {len(data)} bytes, and the parameter {parameter.nbytes}")
    if not (parameter.kind in (0, b"b", b"S") or kind == "f" and parameter.kind == b"f"
            or kind in "iub" and parameter.kind in (b"u", b"s")):
        refuse_argument(signature, index, value, "that is another kind of number")
    return data


cdef str _ctype_kind(object value):
    """Return the letter that NumPy would use for the kind of a ctypes value."""
    if not isinstance(value, _SimpleCType):
        return "u" if isinstance(value, ctypes._Pointer) else "V"
    return "f" if value._type_ in "fdg" else "u"


cdef str _advice(object value, Parameter *parameter):
    """Return what to pass instead of a value of the wrong type, for the message."""
    if isinstance(value, np.ndarray):
        return "the device cannot see the memory of an array; pass cudadrv.In(array), Out(array)" \
               " or InOut(array), or copy it to a buffer and pass that:" \
               " DeviceBuffer.from_array(array)"
    if parameter is not NULL and parameter.kind == b"S":
        return "pass a NumPy structured scalar (array[i], or numpy.void) or a ctypes structure" \
               f" of {parameter.nbytes} bytes"
    if isinstance(value, float) and parameter is not NULL and parameter.kind == b"b":
        return "the kernel does not say what kind of number it takes; pass" \
               f" numpy.float{8 * parameter.nbytes}({value})"
    if isinstance(value, (int, float)):
        return "pass a number of the declared kind"
    return "pass a buffer, a number, or a NumPy or ctypes value"


cdef int refuse_argument(Signature signature, Py_ssize_t index, object value, str why) except -1:
    raise TypeError(f"{signature.called(index)} of {signature.kernel} cannot be {_shown(value)}:"
                    f" {why}")


cdef int _refuse_range(Signature signature, Py_ssize_t index, object value) except -1:
    raise ValueError(f"{signature.called(index)} of {signature.kernel} cannot be {_shown(value)}:"
                     " it does not fit")


cdef str _shown(object value):
    """Return one short line with a value and its type, for messages."""
    if isinstance(value, np.generic):
        return f"numpy.{type(value).__name__}({str(value)[:60]})"
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and dtype {value.dtype}"
    text = repr(value).split("\n")[0]
    return f"{text[:60]}{'...' if len(text) > 60 else ''} ({type(value).__name__})"


# ---- the parameters of a kernel, from the driver and from its PTX text ----

@cython.final
cdef class Signature:
    """The parameters of a kernel. Internal to `Kernel`."""

    def __dealloc__(self):
        free(self.parameters)

    cdef str called(self, Py_ssize_t index):
        """Return the name of a parameter in messages: ``argument 2 (y, .u64)``."""
        if self.count < 0:
            return f"argument {index}"
        given = self.listed[index]
        if given.name is None:
            return f"argument {index} ({given.nbytes} bytes)"
        return f"argument {index} ({given.name}, .{given.type})"


cdef Signature new_signature(str kernel, CUfunction function, Context context, object text):
    """Make the Signature of a kernel.

    `text` is a tuple of the parameters that the kernel's PTX text declares, or None. Offsets and
    sizes come from the driver, or from the text if the driver cannot list them. Names and types
    come from the text, if the text and the driver agree on offsets and sizes. Raises CudaError if
    text and driver differ in the number of parameters, because a launch could then have too few
    arguments.
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
        _fill_range(each)
        signature.nbytes = max(signature.nbytes, given.offset + given.nbytes)
    signature.listed, signature.count = listed, len(listed)
    return signature


cdef int _fill_range(Parameter *parameter) except -1:
    """Set the range of integers that fit.

    Negative numbers fit .u32 and .b32, because PTX uses these for signed integers of C, too.
    """
    cdef int bits = 8 * parameter.nbytes
    parameter.least, parameter.most = 1, 0
    if parameter.kind not in (b"u", b"s", b"b") or bits > 64:
        return 0
    parameter.least, parameter.most = INT64_MIN, INT64_MAX
    if bits < 64:
        parameter.least = -(<int64_t>1 << (bits - 1))
        parameter.most = (<int64_t>1 << (bits - 1 if parameter.kind == b"s" else bits)) - 1
    return 0


cdef bint _same_places(tuple listed, tuple text):
    """Whether both lists of parameters have the same offsets and sizes."""
    for one, other in zip(listed, text, strict=True):
        if (one.offset, one.nbytes) != (other.offset, other.nbytes):
            return False
    return True


cdef tuple _of_driver(CUfunction function, Context context):
    """Return the driver's offsets and sizes of the parameters; None if it cannot list them."""
    cdef size_t offset = 0
    cdef size_t nbytes = 0
    cdef size_t index
    cdef CUresult status
    found = []
    while True:
        index = len(found)
        with nogil:
            status = in_cuFuncGetParamInfo(context.raw, function, index, &offset, &nbytes)
        if has_answered(status, CUDA_ERROR_NOT_SUPPORTED):
            return None
        if has_answered(status, CUDA_ERROR_INVALID_VALUE):  # no parameter has this index
            return tuple(found)
        context.check(status)
        found.append(Listed(None, None, offset, nbytes))


# ---- grid, block and shared memory, and what the device allows ----

cdef dict _known = {}   # Limits by ordinal


@cython.final
cdef class Limits:
    """The limits of a device for the shape of a launch. Internal to kernels."""


cdef Limits limits_of(Device device):
    """Return the limits of a device. The driver is asked only the first time."""
    cdef Limits limits
    if device.ordinal in _known:
        return _known[device.ordinal]
    limits = Limits.__new__(Limits)
    limits.device = device
    limits.grid[0] = device.attribute_value(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X)
    limits.grid[1] = device.attribute_value(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y)
    limits.grid[2] = device.attribute_value(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)
    limits.block[0] = device.attribute_value(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X)
    limits.block[1] = device.attribute_value(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y)
    limits.block[2] = device.attribute_value(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)
    limits.shared_bytes = device.attribute_value(
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
    limits.multiprocessors = device.attribute_value(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
    limits.cooperative = device.attribute_value(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH)
    limits.clusters = device.attribute_value(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH)
    return _known.setdefault(device.ordinal, limits)


cdef int fill_shape(
    Shape *shape, Limits limits, object grid, object block, object shared_bytes, bint cooperative,
    object cluster
) except -1:
    """Check the shape of a launch against the limits of the device, and fill in `shape`.

    The caller checks the limits of the kernel.
    """
    cdef long long dynamic
    _fill_dimensions(shape.grid, limits.grid, limits.device, "grid", grid)
    _fill_dimensions(shape.block, limits.block, limits.device, "block", block)
    dynamic = PyLong_AsLongLong(shared_bytes) if likely(PyLong_CheckExact(shared_bytes)) \
        else operator.index(shared_bytes)
    if unlikely(dynamic < 0):
        raise ValueError(f"shared_bytes must not be negative, and is {shared_bytes}")
    shape.shared_bytes = <unsigned int>min(dynamic, 0xffffffff)
    shape.cooperative = cooperative
    shape.cluster[0] = shape.cluster[1] = shape.cluster[2] = 0
    shape.windowed = shape.domain = shape.prioritized = shape.priority = shape.early = 0
    shape.plain = cluster is None and not cooperative
    if likely(shape.plain):
        return 0
    if cooperative and not limits.cooperative:
        raise ValueError(f"{limits.device!r} does not support cooperative launches (its attribute"
                         " cooperative_launch is 0)")
    if cluster is not None:
        if not limits.clusters:
            raise ValueError(f"{limits.device!r} does not support clusters of blocks (its attribute"
                             " cluster_launch is 0)")
        _fill_dimensions(shape.cluster, limits.grid, limits.device, "cluster", cluster)
    return 0


cdef dict DOMAINS = {"default": <int>CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT,
                     "remote": <int>CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE}


cdef tuple add_attributes(
    Shape *shape, Packed *packed, Context context, object priority, object domain, object window,
    tuple borrows
):
    """Add what launches can have besides their shape. Called after `fill_shape`.

    Returns `borrows`, with an item that keeps the buffer of the window open. The caller keeps the
    window as long as `packed`.
    """
    if priority is not None:
        shape.priority, shape.prioritized = _checked_priority(context, priority), True
    if domain is not None:
        if not isinstance(domain, str) or domain not in DOMAINS:
            raise ValueError(f"domain is {domain!r}, and must be 'default' or 'remote'")
        shape.domain = 1 + <int>DOMAINS[domain]
    if window is not None:
        if type(window) is not AccessWindow:
            raise TypeError("window takes cudadrv.access_window(buffer), not"
                            f" {type(window).__name__}")
        (<AccessWindow>window).raw.base_ptr = \
            <void *><size_t>pointer_of((<AccessWindow>window).region)
        packed.window = &(<AccessWindow>window).raw
        shape.windowed = True
        borrows = borrows + (_access_to((<AccessWindow>window).region, OWN_SHARED),)
    shape.plain = shape.plain and not (shape.prioritized or shape.domain or shape.windowed)
    return borrows


cdef int _checked_priority(Context context, object priority) except? -1:
    number = operator.index(priority)
    greatest, least = context.priority_range
    if not greatest <= number <= least:
        raise ValueError(f"priority is {number}, and {context!r} has priorities from {greatest}"
                         f" (the greatest) to {least}")
    return number


cdef int _fill_dimensions(
    unsigned int *sizes, unsigned int *most, Device device, str name, object given
) except -1:
    """Set the sizes in x, y and z from an int or a tuple of up to three. Missing sizes are 1."""
    cdef int overflow = 0
    cdef long long number
    sizes[0] = sizes[1] = sizes[2] = 1
    if likely(PyLong_CheckExact(given)):
        number = PyLong_AsLongLongAndOverflow(given, &overflow)
        if likely(1 <= number <= most[0] and not overflow):
            sizes[0] = <unsigned int>number
            return 0
        return _fill_size(sizes, most, 0, device, name, given, given)
    if isinstance(given, tuple):
        count = len(<tuple>given)
        if 1 <= count <= 3:
            for i in range(count):
                _fill_size(sizes, most, i, device, name, (<tuple>given)[i], given)
            return 0
    elif hasattr(given, "__index__"):
        return _fill_size(sizes, most, 0, device, name, given, given)
    raise TypeError(f"{name} must be an int or a tuple of up to three, not {given!r}")


cdef int _fill_size(
    unsigned int *sizes, unsigned int *most, Py_ssize_t axis, Device device, str name, object size,
    object given
) except -1:
    cdef long long number
    try:
        number = PyLong_AsLongLong(operator.index(size) if not PyLong_CheckExact(size) else size)
    except OverflowError:
        number = -1 if size < 0 else 1 << 62
    except TypeError:
        raise TypeError(f"{name} must be an int or a tuple of up to three, not {given!r}") from None
    if number < 1:
        raise ValueError(f"{name} is {given}, and must be at least 1 in each direction")
    if number > most[axis]:
        kind = "block" if name == "block" else "grid"
        raise ValueError(f"{name} is {given}, and {device!r} takes at most {most[axis]} in"
                         f" {'xyz'[axis]} (max_{kind}_dim_{'xyz'[axis]})")
    sizes[axis] = <unsigned int>number
    return 0


cdef int check_shape(Shape *shape, Takes *takes, str kernel, object shared_bytes) except -1:
    """Check the shape of a launch against what its kernel takes. Raises ValueError."""
    check_block(shape, takes, kernel)
    check_shared(shape.shared_bytes, takes, kernel, shared_bytes)
    return _check_clusters(shape, takes, kernel)


cdef int check_block(Shape *shape, Takes *takes, str kernel) except -1:
    cdef unsigned long long threads = product_of(shape.block)
    if takes.block[0] and not _are_equal(shape.block, takes.block):
        raise ValueError(f"block is {dimensions(shape.block)}, and {kernel} can only be launched"
                         f" with {dimensions(takes.block)}, as .reqntid in its PTX says")
    if threads > <unsigned long long>takes.threads:
        raise ValueError(f"block is {dimensions(shape.block)}, {threads} threads, and {kernel}"
                         f" takes at most {takes.threads} (max_threads_per_block)")
    return 0


cdef int check_shared(
    unsigned int nbytes, Takes *takes, str kernel, object given
) except -1:
    """Check dynamic shared memory. `given` is what the program has passed, for the message."""
    if nbytes > <unsigned int>takes.shared:
        raise ValueError(f"shared_bytes is {given}, and {kernel} takes at most {takes.shared};"
                         " kernel.max_dynamic_shared_bytes = ... raises that, where the device"
                         " allows it")
    return 0


cdef int _check_clusters(Shape *shape, Takes *takes, str kernel) except -1:
    cdef unsigned int *cluster = takes.cluster
    cdef Py_ssize_t i
    if shape.cluster[0]:
        if cluster[0] and not _are_equal(shape.cluster, cluster):
            raise ValueError(f"cluster is {dimensions(shape.cluster)}, and {kernel} can only be"
                             f" launched with {dimensions(cluster)}, for which it was compiled")
        cluster = shape.cluster
    if not cluster[0]:
        if takes.only_clusters:
            raise ValueError(f"{kernel} can only be launched with clusters (.explicitcluster in its"
                             " PTX): pass cluster=")
        return 0
    if product_of(cluster) > takes.in_cluster:
        raise ValueError(f"cluster is {dimensions(cluster)}, {product_of(cluster)} blocks, and"
                         f" {kernel} takes at most {takes.in_cluster}")
    if not takes.grid_of_blocks and not shape.cluster[0]:
        return 0
    for i in range(3):
        if shape.grid[i] % cluster[i]:
            raise ValueError(f"grid is {dimensions(shape.grid)}, which cannot be cut into clusters"
                             f" of {dimensions(cluster)} blocks")
    return 0


cdef bint _are_equal(const unsigned int *one, const unsigned int *other) noexcept:
    return one[0] == other[0] and one[1] == other[1] and one[2] == other[2]


cdef unsigned long long product_of(const unsigned int *sizes) noexcept:
    return <unsigned long long>sizes[0] * sizes[1] * sizes[2]


cdef str dimensions(const unsigned int *sizes):
    return f"({sizes[0]}, {sizes[1]}, {sizes[2]})"


# ---- packing ----

cdef enum:
    ALIGNED = 16


cdef Room room_on_heap(
    Signature signature, Py_ssize_t count, Py_ssize_t uses, bint cooperative, Packed *packed
):
    """The slow path of `room_for`: let `packed` refer to memory of the heap, not of the stack."""
    cdef bint known = signature.count >= 0
    cdef size_t nbytes = signature.nbytes if known else WIDEST
    cdef Room room
    nbytes += -nbytes % ALIGNED
    uses *= MOST_OPERANDS
    room = new_room(nbytes + count * sizeof(void *) + uses * sizeof(Operand))
    use_block(packed, <unsigned char *>room.start, signature.nbytes)
    packed.operands = <Operand *>(packed.values + nbytes)
    packed.pointers = <void **>(packed.operands + uses)
    if cooperative or not known:
        packed.extra = NULL
    point_to_values(signature, count, packed)   # unless `pack_unknown` sets the pointers
    return room


cdef void point_to_values(Signature signature, Py_ssize_t count, Packed *packed) noexcept:
    """Set the pointers to the values of known parameters."""
    cdef Py_ssize_t i
    for i in range(min(count, signature.count)):
        packed.pointers[i] = packed.values + signature.parameters[i].offset


cdef bint is_array(object value) except -1:
    """Whether an argument is another library's array, bare or in `read`, `write` or `shared`, or an
    array of the host in `In`, `Out` or `InOut`.
    """
    if type(value) is Access:
        return region_in(value) is None
    return is_foreign_array(value) or type(value) is ArrayArgument


cdef tuple with_regions(
    PyObject *const *values, Py_ssize_t count, Stream stream, list used, list captures
):
    """Return the arguments, with each array replaced by a buffer.

    An array of another library is replaced by a buffer over its memory, and the stream waits for
    the work of that library. Once the launch is queued, the caller passes `used` to
    `hold_arguments`. An array in `In`, `Out` or `InOut` is replaced by the buffer of its capture:
    `captures` is the result of `captures_of`, or None where such arrays cannot be passed.
    """
    cdef tuple found = PyTuple_New(count)
    cdef Capture capture
    cdef Py_ssize_t captured = 0
    cdef Py_ssize_t i
    for i in range(count):
        value = <object>values[i]
        if type(value) is float or type(value) is int or is_region(value):
            pass
        elif type(value) is Access:
            if is_array(value):
                value = _access_to(import_argument((<Access>value).other, stream, used),
                                   (<Access>value).mode)
        elif is_foreign_array(value):
            value = import_argument(value, stream, used)
        elif type(value) is ArrayArgument:
            if captures is None:
                raise TypeError(f"{value!r} is for the arguments of a launch, not for borrows")
            capture = captures[captured]
            captured += 1
            value = _access_to(capture.buffer, OWN_READ if capture.way == IN else OWN_WRITE)
        Py_INCREF(value)
        PyTuple_SET_ITEM(found, i, value)
    return found


cdef int pack_borrows(
    Signature signature, PyObject *const *arguments, Py_ssize_t count, Packed *packed
) except -1:
    """The part of `pack` that adds the buffers in ``borrows`` to the operands."""
    for i, each in enumerate(<tuple>packed.borrows):
        if add_operand(each, -1 - i, packed) is None \
                and add_written(signature, arguments, count, each, -1 - i, packed) is None \
                and not add_handle(each, -1 - i, packed):
            if is_array(each):
                return ARRAYS
            raise TypeError("borrows takes buffers, or read(buffer), write(buffer) and"
                            " shared(buffer), textures and surfaces, not"
                            f" {type(each).__name__}")
    return 0


cdef int put_other(
    Signature signature, PyObject *const *arguments, Py_ssize_t index, Packed *packed
) except -1:
    """Write an argument for which `put_number` and `put_buffer` are not enough."""
    cdef unsigned char *place = packed.values + signature.parameters[index].offset
    if not _put_written(signature, arguments, signature.count, index, packed, place) \
            and not _put_handle(signature, index, <object>arguments[index], packed, place):
        _put_value(signature, index, <object>arguments[index], place)
    return 0


cdef bint _put_handle(
    Signature signature, Py_ssize_t index, object value, Packed *packed, unsigned char *place
) except -1:
    """As `put_buffer`, for a texture or a surface. Returns False for other values."""
    cdef Parameter *parameter
    if not add_handle(value, index, packed):
        return False
    if signature.count >= 0:
        parameter = &signature.parameters[index]
        if parameter.nbytes != sizeof(uint64_t) or parameter.kind in (b"f", b"S"):
            refuse_argument(signature, index, value, "the parameter is no handle of 64 bits")
    check_region((<Handle>value).region)
    check_region((<Handle>value).object)
    (<uint64_t *>place)[0] = (<Handle>value).object.memory.address
    return True


cdef bint add_handle(object value, Py_ssize_t argument, Packed *packed) except -1:
    """Add the operands of an argument that is a texture or a surface: what the kernel uses through
    it, and the object of the driver. Returns False for other values.
    """
    cdef Operand *operand = &packed.operands[packed.operand_count]
    cdef Handle handle
    if not isinstance(value, Handle):
        return False
    handle = value
    handle.usable()
    operand[0] = Operand(<PyObject *>handle.region, argument, handle.mode, False)
    operand[1] = Operand(<PyObject *>handle.object, argument, OWN_SHARED, False)
    packed.operand_count += MOST_OPERANDS
    packed.handles = True
    return True


cdef bint _put_written(
    Signature signature, PyObject *const *arguments, Py_ssize_t count, Py_ssize_t index,
    Packed *packed, unsigned char *place
) except -1:
    """Like `put_buffer`, for a buffer in `write`. Returns False for other values."""
    cdef Region region = _written_in(
        signature, arguments, count, <object>arguments[index], index, packed)
    if region is None:
        return False
    put_buffer(signature, index, region, packed, place)
    packed.operands[packed.operand_count - 1].bare = False
    return True


cdef Region add_written(
    Signature signature, PyObject *const *arguments, Py_ssize_t count, object value,
    Py_ssize_t argument, Packed *packed
):
    """Like `add_operand`, for a buffer in `write`. Returns None for other values."""
    cdef Region region = _written_in(signature, arguments, count, value, argument, packed)
    if region is not None:
        add_operand(region, argument, packed)
        packed.operands[packed.operand_count - 1].bare = False
    return region


cdef Region _written_in(
    Signature signature, PyObject *const *arguments, Py_ssize_t count, object value,
    Py_ssize_t argument, Packed *packed
):
    """Return the buffer of an argument in `write`, and None for other arguments.

    Raises ValueError if the launch gets a part of the buffer in `read`, too. Only this slow path
    compares arguments, so that bare ones and those in `read` need no comparison.
    """
    cdef Region region
    cdef Py_ssize_t i
    if type(value) is not Access or (<Access>value).mode != OWN_WRITE or is_array(value):
        return None
    region = region_in(value)
    for i in range(count):
        _refuse_read_too(signature, region, argument, <object>arguments[i], i)
    for i, each in enumerate(<tuple>packed.borrows):
        _refuse_read_too(signature, region, argument, each, -1 - i)
    return region


cdef int _refuse_read_too(
    Signature signature, Region written, Py_ssize_t argument, object value, Py_ssize_t other
) except -1:
    """Refuse a buffer in `write` if `value` is a buffer in `read` that shares bytes with it."""
    cdef Region read_only
    if type(value) is not Access or (<Access>value).mode != OWN_READ:
        return 0
    read_only = (<Access>value).region
    if read_only is None or is_closed(read_only) or is_closed(written) \
            or not overlap(read_only, written):
        return 0
    raise ValueError(
        f"{_described(signature, other, read_only)} is passed as cudadrv.read, and"
        f" {_described(signature, argument, written)} as cudadrv.write, and they overlap:"
        f" {signature.kernel} cannot both leave bytes unchanged and write them. If it works in"
        " place, pass the second buffer bare, without cudadrv.write")


cdef int pack_unknown(
    Signature signature, PyObject *const *arguments, Py_ssize_t count, Packed *packed
) except -1:
    """Pack the arguments of a kernel whose parameters are not known.

    The size of an argument follows from the type of its value.
    """
    cdef size_t at = 0
    cdef size_t nbytes
    cdef Py_ssize_t i
    for i in range(count):
        each = <object>arguments[i]
        packed.pointers[i] = packed.values + at
        if at + sizeof(CUdeviceptr) <= WIDEST \
                and (put_buffer(signature, i, each, packed, packed.values + at)
                     or _put_written(signature, arguments, count, i, packed, packed.values + at)
                     or _put_handle(signature, i, each, packed, packed.values + at)):
            at += ALIGNED
            continue
        if is_array(each):
            return ARRAYS
        data = bytes_of_value(signature, i, each)
        nbytes = len(data)
        if at + nbytes > WIDEST - ALIGNED:
            raise ValueError(f"the arguments of {signature.kernel} have more than {WIDEST} bytes")
        memcpy(packed.values + at, <const char *>data, nbytes)
        at += nbytes + (-nbytes % ALIGNED)
    return 0


cdef int refuse_count(
    Signature signature, PyObject *const *arguments, Py_ssize_t given
) except -1:
    cdef list wanted = []
    for each in signature.listed:
        wanted.append(f"{each.name} (.{each.type})" if each.name is not None
                      else f"{each.nbytes} bytes")
    raise TypeError(f"{signature.kernel} takes {signature.count} arguments, not {given}:"
                    f" {', '.join(wanted) or 'none'}{hint_at(arguments, given)}")


cdef str hint_at(PyObject *const *arguments, Py_ssize_t given):
    """Return what may be wrong with the arguments of a launch as a whole, or an empty string."""
    cdef Py_ssize_t index
    for index in range(given):
        if isinstance(<object>arguments[index], Stream):
            return f". Argument {index} is {<object>arguments[index]!r}: pass it as stream="
    if given == 1 and isinstance(<object>arguments[0], (tuple, list)):
        return f". Unpack the {type(<object>arguments[0]).__name__}: *arguments"
    return ""


cdef int refuse_address(Signature signature, Py_ssize_t index, object value) except -1:
    refuse_argument(signature, index, value, "the parameter is no address")


def buffers_in(tuple uses, bint written):
    """Return the buffers that the arguments of a launch use: those it writes, or those it reads."""
    cdef int mode = OWN_WRITE if written else OWN_READ
    found = []
    for value in uses:
        if type(value) is Access:
            if (<Access>value).mode == mode:
                found.append(region_in(value))
        elif written and is_region(value):
            found.append(value)
        elif isinstance(value, Handle) and (<Handle>value).mode == mode:
            found.append((<Handle>value).source)
    return tuple(found)


cdef object of_present_sizes(object uses):
    """Return a buffer, or the arguments of a launch, in the form that a node of a graph keeps.

    Buffers that can grow are replaced by parts, which never grow. Other objects are returned as
    they are.
    """
    if type(uses) is tuple:
        return _all_of_present_sizes(<tuple>uses)
    if type(uses) is Access:
        region = region_in(uses)
        present = None if region is None else of_present_size(region)
        return uses if region is present else _access_to(present, (<Access>uses).mode)
    return of_present_size(uses) if is_region(uses) else uses


cdef tuple _all_of_present_sizes(tuple uses):
    cdef list found = None
    cdef PyObject *const *each = items_of(uses)
    cdef Py_ssize_t i
    for i in range(len(uses)):
        if type(<object>each[i]) is float or type(<object>each[i]) is int \
                or (is_region(<object>each[i]) and not grows(<Region>each[i])):
            continue
        use = of_present_sizes(<object>each[i])
        if use is not uses[i]:
            if found is None:
                found = []
                for each_use in uses:
                    found.append(each_use)
            found[i] = use
    return uses if found is None else tuple(found)


cdef Region region_of(object use):
    """Return the buffer of an operand: an argument, or an item of `borrows`."""
    return region_in(use) if type(use) is Access else use


cdef str describe_operand(Signature signature, Operand *operand):
    """Describe a buffer argument: ``argument 2 (y, .u64) DeviceBuffer 'y'[0:64] (float32)``."""
    return _described(signature, operand.argument, <Region>operand.region)


cdef str _described(Signature signature, Py_ssize_t argument, Region region):
    """Like `describe_operand`, for a region and the number of its argument."""
    if argument < 0:
        return f"borrows[{-1 - argument}] {region.describe()}"
    return f"{signature.called(argument)} {region.describe()}"
