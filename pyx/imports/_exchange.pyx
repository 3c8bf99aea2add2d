"""Exchange: arrays of other libraries as buffers, by DLPack and the CUDA Array Interface.

State that outlives a call: `_arguments`, arrays that launches have used, for as long as these
arrays live, and `_recent`, a table that finds them quickly (the GIL guards both).
"""

import ctypes
import math
import operator
import weakref

import numpy as np

cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int32_t, int64_t, uint64_t

from cudadrv._box cimport lay_out, steps_of
from cudadrv._buffer cimport Buffer
from cudadrv._buffers cimport class_of_kind
from cudadrv._device cimport Context, Device, context_of, default_context
from cudadrv._dlpack cimport (
    DL_COMPLEX, DL_CPU, DL_CUDA, DL_CUDA_HOST, DL_CUDA_MANAGED, Tensor, dl_exchange, dl_tensor,
    dl_versioned, dtype_of, exchange_of, is_contiguous, our_exchange, own_tensor, pair_of_ints,
    shape_of_tensor, take_exchanged, take_tensor,
)
from cudadrv._driver cimport CUdeviceptr, likely
from cudadrv._engine cimport OWN_UNCHECKED, own_box
from cudadrv._foreign cimport kind_at
from cudadrv._loan cimport (
    Loan, export_to_c, follow_returns, note_write, protocol_handle, stream_of_exchange,
)
from cudadrv._memory cimport Memory, unlist_memory
from cudadrv._memory_kinds cimport DEVICE, MemoryKind, kind_of_dlpack
from cudadrv._names cimport IMPORT
from cudadrv._region cimport Region, is_closed, is_ndarray, lay_over
from cudadrv._release cimport drain, release_part
from cudadrv._stream cimport (
    Stream, known_stream, legacy_stream, per_thread_stream, wait_for_handle,
)

from cudadrv._errors import CaptureError, CudaError

cdef extern from "cudadrv/driver.h":
    enum:
        CUDA_ERROR_STREAM_CAPTURE_IMPLICIT

cdef str COPY_IT = "copy it: DeviceBuffer.from_array(array) or buffer.copy_from(array); or put it" \
                   " into page-locked memory: LockedBuffer.from_array(array)"


def from_dlpack(array, stream=None, *, bint ordered=False):
    """Make a buffer over an array of another library, without a copy, by DLPack.

    The other library makes the stream wait for its work, as the protocol demands. The import counts
    as a write on the stream, so uses on other streams have to be ordered after it. The stream also
    waits for the streams on which bytes of the array were given back (`Buffer.give_back`). For
    page-locked memory nothing is ordered.

    The array is kept alive until the last use of the buffer is known to be complete. Buffers over
    overlapping memory conflict like parts of one buffer.

    Parameters
    ----------
    array : object with ``__dlpack__``
        An array in device memory, page-locked memory or managed memory. If its rows have gaps
        between them, as in a part of an image, the buffer is a box; other arrays have to be
        C-contiguous.
    stream : Stream, optional
        Default: the current one of a ``with stream:`` block, else the legacy default stream.
    ordered : bool, optional
        You say that the other library's work on the array is complete, or ordered before all uses
        of the buffer. Then the other library is asked to order nothing (the stream -1 of DLPack),
        and the import counts as no write: the buffer can be used on all streams, and in captures.

    Returns
    -------
    DeviceBuffer, LockedBuffer or UnifiedBuffer
        The class depends on the kind of memory that the driver reports. The buffer has the array's
        shape, and is read-only if the array is.

    Raises
    ------
    TypeError
        The array has no ``__dlpack__``.
    BufferError
        The array has more than three dimensions that cannot be joined, or strides that overlap or
        run backwards; it is in ordinary memory or on a device of another kind than
        CUDA's, or has a dtype that NumPy does not support; or the capsule is of a version of DLPack
        that is not supported.
    ValueError
        The stream does not belong to the primary context of the array's device, is closed, or is
        another thread's default stream; or the driver does not know the array's memory.

    If the array's type has ``__dlpack_c_exchange_api__``, its functions are called instead of
    ``__dlpack__``, except for complex numbers. Then cudadrv makes the stream wait for the library's
    current stream.

    Driver functions: cuPointerGetAttribute, cuMemGetAddressRange; the exporter's own, or
    cuEventRecord and cuStreamWaitEvent.
    """
    return _import_dlpack(array, stream, ordered, not ordered)


cdef object _import_dlpack(object array, object stream, bint ordered, bint noted):
    """See `from_dlpack`. With `noted`, the import counts as a write on the stream."""
    cdef Context context
    cdef Stream found
    cdef Region region
    cdef Tensor taken = None
    cdef dl_exchange *api = exchange_of(type(array))
    # For cudadrv's own buffers `__dlpack__` is called, because the stream is passed to it.
    if api is not NULL and api != &our_exchange:
        taken = take_exchanged(api, array)
        if taken.tensor.dtype.code == DL_COMPLEX:
            # `__dlpack__` is called instead, because PyTorch's `__dlpack__` refuses tensors that
            # are only marked as conjugated.
            taken = None
    if taken is None:
        device, ordinal = _dlpack_device(array)
    else:
        device, ordinal = taken.tensor.device.device_type, taken.tensor.device.device_id
    _check_device(array, device)
    on_host = device in (DL_CPU, DL_CUDA_HOST)
    context = _context_near(stream) if on_host else context_of(Device(ordinal))
    found = _stream_of_import(stream, context)
    if taken is None:
        options = {} if on_host else {"stream": -1 if ordered else protocol_handle(found)}
        taken = take_tensor(_call_dlpack(array, options))
    elif not on_host and not ordered:
        _wait_for_owner(found, api, device, ordinal)
    region = _buffer_of(taken, device, context, None if on_host or not noted else found,
                        _name(array))
    follow_returns(region, found)
    return region


cdef int _check_device(object array, device) except -1:
    if device == DL_CPU:
        if type(array) is Loan:  # `lend` checks that this is not ordinary memory
            return 0
        raise BufferError(f"{_name(array)} is in ordinary memory, which asynchronous work cannot"
                          f" use; {COPY_IT}")
    if kind_of_dlpack(device) is NULL:
        raise BufferError(f"{_name(array)} is on a device that is none of CUDA's (DLPack's type"
                          f" {device})")
    return 0


cdef int _wait_for_owner(
    Stream stream, dl_exchange *api, int32_t device_type, int32_t ordinal
) except -1:
    """Make a stream wait for the stream on which the library of an array works."""
    cdef void *theirs = NULL
    api.current_work_stream(device_type, ordinal, &theirs)
    return wait_for_handle(stream, <size_t>theirs)


cdef tuple _dlpack_device(object array):
    asked = _attribute(array, "__dlpack_device__")
    if asked is None:
        raise TypeError(f"{_name(array)} has no __dlpack__; from_cuda_array takes what has the CUDA"
                        " Array Interface")
    return pair_of_ints(asked(), f"__dlpack_device__ of {_name(array)}")


cdef object _call_dlpack(object array, dict options):
    """Return the array's capsule, versioned if the exporter can make one."""
    try:
        return array.__dlpack__(**options, max_version=(1, 1))
    except TypeError:
        return array.__dlpack__(**options)


cdef Context _context_near(object stream):
    """Return the context for memory on no device: the primary context of the stream's device."""
    return context_of(_stream_or_current(stream, default_context()).context.device)


cdef Stream _stream_or_current(object stream, Context context):
    return stream_of_exchange(context) if stream is None else known_stream(stream)


cdef Stream _stream_of_import(object stream, Context context):
    cdef Stream found = _stream_or_current(stream, context)
    if found.context is not context:
        raise ValueError(f"the array is on {context.device!r}, and {found!r} belongs to"
                         f" {found.context!r}; use a stream of its primary context")
    return found


cdef Region _buffer_of(Tensor taken, int device, Context context, Stream stream, str name):
    """Make a buffer over a tensor. The buffer owns the tensor, which keeps the array alive.

    `device` is DLPack's type of the device. If a stream is given, the import counts as a write on
    it.
    """
    cdef Region region
    cdef dl_tensor *tensor = taken.tensor
    dtype = dtype_of(tensor.dtype)
    shape = shape_of_tensor(tensor)
    count = math.prod(shape)
    strides = None
    if not is_contiguous(tensor):
        strides = _strides_of(tensor, dtype.itemsize)
    address = <size_t>tensor.data + tensor.byte_offset if count else 0
    if count and address < tensor.byte_offset:
        raise BufferError(f"the capsule of {name} breaks the protocol: byte_offset"
                          f" {tensor.byte_offset} is behind the last address")
    kind = _kind_of(device, context, address)
    region = _region_over(
        _class_of(kind), address, shape, strides, dtype, taken, context.device, name)
    region.read_only = taken.readonly
    if stream is not None and count:
        note_write(region, stream, IMPORT, OWN_UNCHECKED)
    return region


cdef tuple _strides_of(dl_tensor *tensor, int64_t itemsize):
    """Return the strides of a tensor in bytes."""
    cdef int32_t i
    strides = []
    for i in range(tensor.ndim):
        strides.append(tensor.strides[i] * <object>itemsize)
    return tuple(strides)


cdef Region _region_over(
    object cls, object address, tuple shape, tuple strides, object dtype, object owner,
    object device, str name
):
    """Make a buffer over an array of another library. `strides` are bytes; None means C order."""
    cdef Region region
    cdef own_box box
    if strides is None:
        region = cls.from_address(address, math.prod(shape), dtype, owner=owner, device=device)
        region.sizes = shape if len(shape) != 1 else None
        return region
    last = 0
    for size, step in zip(shape, strides, strict=True):
        last += (size - 1) * max(step, 0)
    try:
        lay_out(shape, strides, dtype.itemsize, &box)
    except (ValueError, OverflowError) as error:
        raise BufferError(f"{name} cannot be used: {error}. Make it C-contiguous there first, with"
                          " contiguous() or copy()") from None
    if address % dtype.alignment:
        raise BufferError(f"there cannot be items of dtype {dtype} at address {address:#x}")
    region = cls.from_address(address, last + dtype.itemsize, "u1", owner=owner, device=device)
    lay_over(region, dtype, shape, strides)
    return region


cdef MemoryKind _kind_of(int device, Context context, CUdeviceptr address) except NULL:
    """Return the kind of memory, if DLPack describes the memory as memory of a device.

    Page-locked and managed memory may be described as memory of a device, or of the host.
    """
    cdef MemoryKind kind
    cdef int ordinal = 0
    if address and device in (DL_CUDA, DL_CPU):
        kind = kind_at(context, address, &ordinal)
        if kind is not NULL and kind.host_access:
            return kind
    return kind_of_dlpack(DL_CUDA_HOST if device == DL_CPU else device)


cdef object _class_of(MemoryKind kind):
    """Return the class of buffers over memory of this kind."""
    return class_of_kind(<str>kind.word, "kind")


cdef object _attribute(object array, str name):
    """Return an attribute of an array, or None. The type of a proxy need not have the attribute.

    Classes of arrays are no arrays, although they have the attributes.
    """
    return None if isinstance(array, type) else getattr(array, name, None)


cdef str _name(object array):
    return f"an object of type {type(array).__name__}"


# ---- the CUDA Array Interface ----

def from_cuda_array(array, stream=None, *, bint ordered=False):
    """Make a buffer over another library's array, without a copy, by the CUDA Array Interface.

    Like `from_dlpack`. The interface can name a stream on which the array may be in use; an array
    whose interface names none may be in use on the legacy default stream of its device. ``stream``
    waits for that stream, and the import counts as a write on ``stream``.

    Parameters
    ----------
    array : object with ``__cuda_array_interface__``
        C-contiguous or a box (see `from_dlpack`), without a mask.
    stream : Stream, optional
        As for `from_dlpack`.
    ordered : bool, optional
        You say that the other library's work on the array is complete, or ordered before all uses
        of the buffer. Then ``stream`` does not wait, and the import counts as no write: the buffer
        can be used on all streams, and in captures.

    Raises
    ------
    TypeError, BufferError
        The array has no such interface, or one that breaks the protocol; it is masked, or has
        strides of another kind.
    ValueError
        The driver does not know the address; or the stream does not belong to the primary context
        of the array's device, is closed, or is another thread's default stream.
    CaptureError
        A capture forbids the wait. The legacy default stream cannot be waited for while a blocking
        stream of its context is captured.

    Driver functions: cuPointerGetAttribute, cuMemGetAddressRange, cuEventRecord, cuStreamWaitEvent.
    """
    return _import_interface(array, stream, ordered, not ordered)


cdef object _import_interface(object array, object stream, bint ordered, bint noted):
    """See `from_cuda_array`, and `_import_dlpack`."""
    cdef Region region
    cdef Stream found
    cdef MemoryKind kind = DEVICE
    cdef int ordinal = 0
    interface = _attribute(array, "__cuda_array_interface__")
    if interface is None:
        raise TypeError(f"{_name(array)} has no __cuda_array_interface__; from_dlpack takes what"
                        " has __dlpack__")
    shape, strides, dtype, address, read_only, theirs = _checked_interface(array, interface)
    count = math.prod(shape)
    context = None
    if count:
        kind = kind_at(default_context(), address, &ordinal)
        if kind is NULL:
            raise ValueError(f"{_name(array)} says that its memory is at {address:#x}, and that is"
                             " none of the driver's")
        context = context_of(Device(ordinal))
    if kind.page_locked or not count:
        context = _context_near(stream)
    found = _stream_of_import(stream, context)
    if not ordered and theirs is not None:
        _wait_for_named(found, theirs)
    elif not ordered and count:
        _wait_for_legacy(found, _name(array))
    region = _region_over(_class_of(kind), address if count else 0, shape, strides, dtype, array,
                          context.device, _name(array))
    region.read_only = read_only
    if count and noted:
        note_write(region, found, IMPORT, OWN_UNCHECKED)
    follow_returns(region, found)
    return region


cdef int _wait_for_named(Stream stream, object theirs) except -1:
    """Make a stream wait for the stream that an array interface names."""
    device = stream.context.device
    named = legacy_stream(device) if theirs == 1 else per_thread_stream(device) if theirs == 2 \
        else Stream.from_handle(theirs)
    if named is not stream:
        stream.wait(named)
    return 0


cdef int _wait_for_legacy(Stream stream, str name) except -1:
    """Make a stream wait for the legacy default stream, on which the owner of an array works."""
    cdef Stream legacy = legacy_stream(stream.context.device)
    if legacy is stream:
        return 0
    try:
        stream.wait(legacy)
    except (CaptureError, CudaError) as error:
        if isinstance(error, CudaError) and error.status != CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
            raise
        raise CaptureError(
            f"{name} names no stream, so its import waits for the legacy default stream: {error}."
            " If the work on the array is complete, or ordered before all uses of the buffer, make"
            " the buffer with from_cuda_array(array, ordered=True)") from None
    return 0


cdef tuple _checked_interface(object array, object interface):
    """Return ``(shape, strides, dtype, address, readonly, stream)``. The strides are None in C
    order.

    Raises BufferError if the interface breaks the protocol, or the array is masked.
    """
    try:
        shape = []
        for size in interface["shape"]:
            shape.append(operator.index(size))
        shape = tuple(shape)
        dtype = np.dtype(interface["typestr"])
        nbytes = dtype.itemsize
        if dtype.kind == "V" and interface.get("descr"):
            dtype = np.dtype(interface["descr"])
        address, read_only = interface["data"]
        address = operator.index(address)
        mask, strides = interface.get("mask"), interface.get("strides")
        if strides is not None:
            steps = []
            for step in strides:
                steps.append(operator.index(step))
            strides = tuple(steps)
        theirs = interface.get("stream")
        if theirs is not None:
            theirs = operator.index(theirs)
    except (TypeError, KeyError, ValueError) as error:
        raise BufferError(f"the __cuda_array_interface__ of {_name(array)} breaks the protocol:"
                          f" {type(error).__name__}: {error}") from None
    if dtype.itemsize != nbytes:
        raise BufferError(f"the __cuda_array_interface__ of {_name(array)} breaks the protocol:"
                          f" items of {nbytes} bytes (typestr), and of {dtype.itemsize} (descr)")
    if min(shape, default=0) < 0 or theirs == 0 or not 0 <= address < 1 << 64 \
            or strides is not None and len(strides) != len(shape):
        raise BufferError(f"the __cuda_array_interface__ of {_name(array)} breaks the protocol:"
                          f" shape {shape}, strides {strides}, address {address}, stream {theirs}")
    if mask is not None:
        raise BufferError(f"{_name(array)} has a mask, which would be lost")
    if 0 in shape or strides == steps_of(shape, dtype.itemsize):
        strides = None
    return shape, strides, dtype, address, bool(read_only), theirs


# ---- as arguments of kernels ----
#
# Programs often launch with the same arrays. So the result of an import is kept until the array
# dies, and each launch compares it with what the array's library says then. While a launch may use
# an array, a `Held` in the queue of `_release` keeps the array alive.

# Types whose values are no arrays of other libraries. The last is the base class of all types of
# ctypes, which has no public name.
cdef tuple NO_ARRAYS = (Buffer, int, float, np.generic, ctypes.c_int.__mro__[2])
cdef dict _arguments = {}   # `Argument` by the id of the array

cdef enum:
    RECENT = 256

# Arguments without a reference, because `_arguments` has one. The place of each follows from the id
# of its array.
cdef PyObject *_recent[RECENT]


@cython.final
cdef class Argument:
    """An array whose type has the C exchange API, as the argument of launches."""

    cdef object array           # a weak reference
    cdef size_t key             # the id of the array
    cdef dl_exchange *api       # the exchange API of the array's type
    cdef Region region          # over the array's memory, without keeping the array alive
    cdef size_t address
    cdef uint64_t nbytes
    cdef int32_t device_type
    cdef int32_t ordinal
    cdef Py_ssize_t launches    # how many launches have used the array
    cdef bint held              # whether a `Held` keeps the array alive

    cdef bint is_current(self, object array) except -1:
        """Whether the array still has the address, size and device that it had at the import, is
        contiguous, and its region can be used. The dtype and the shape may differ.
        """
        cdef dl_tensor tensor
        self.api.tensor_from_object(<void *>array, &tensor)
        return (<size_t>tensor.data + tensor.byte_offset == self.address
                and _bytes_of(&tensor) == self.nbytes
                and tensor.device.device_type == self.device_type
                and tensor.device.device_id == self.ordinal and is_contiguous(&tensor)
                and not self.region.memory.context.lost and not is_closed(self.region))


@cython.final
@cython.no_gc_clear
cdef class Held:
    """Keeps an array alive while launches use it."""

    cdef Argument argument
    cdef object array
    cdef Py_ssize_t launches    # `launches` of the argument when this was put into the queue

    def __dealloc__(self):
        # The queue drops this object when no work uses the array. If there was another launch
        # since this object was put into the queue, the array is put into the queue again.
        if self.argument is not None:
            self.argument.held = False
            if self.argument.launches != self.launches:
                _hold(self.argument, self.array)


cdef int _hold(Argument argument, object array) except -1:
    cdef Region region = argument.region
    cdef Memory memory = region.memory
    cdef Held held = Held.__new__(Held)
    held.argument, held.array, held.launches = argument, array, argument.launches
    argument.held = True
    release_part(memory.home, memory.state, region.start, region.start + region.nbytes,
                 memory.context, held)
    return 0


cdef uint64_t _bytes_of(dl_tensor *tensor) noexcept:
    cdef uint64_t nbytes = (tensor.dtype.bits * tensor.dtype.lanes + 7) // 8
    cdef int32_t i
    for i in range(tensor.ndim):
        nbytes *= <uint64_t>tensor.shape[i]
    return nbytes


def _forget_argument(reference):
    """Drop the record of an array that has died. This is the callback of its weak reference."""
    known = <Argument>_arguments.get(reference.key)
    if known is not None and known.array is reference:
        if _place_of(known.key)[0] is <PyObject *>known:
            _place_of(known.key)[0] = NULL
        del _arguments[reference.key]


cdef inline PyObject **_place_of(size_t key) noexcept:
    return &_recent[key // sizeof(PyObject) % RECENT]


cdef inline Argument _known(object array):
    """Return the record of an array, or None."""
    cdef size_t key = <size_t><void *>array
    cdef PyObject **place = _place_of(key)
    if likely(place[0] is not NULL and (<Argument>place[0]).key == key):
        return <Argument>place[0]
    return _look_up(key) if _arguments else None


cdef Argument _look_up(size_t key):
    """The slow path of `_known`."""
    cdef Argument known = _arguments.get(key)
    if known is not None:
        _place_of(key)[0] = <PyObject *>known
    return known


cdef bint is_foreign_array(object value) except -1:
    """Return whether the value is an array of another library, by DLPack or the array interface.
    """
    if _known(value) is not None:
        return True
    return not isinstance(value, NO_ARRAYS) and (
        _has_dlpack(value) or _has(value, "__cuda_array_interface__"))


cdef bint _has_dlpack(object array) except -1:
    """Whether an array is passed by DLPack.

    NumPy's `__dlpack__` describes ordinary memory, so an instance of a subclass of `ndarray` is
    passed by the CUDA Array Interface, if at all.
    """
    return not is_ndarray(array) and _has(array, "__dlpack__")


cdef bint _has(object array, str name) except -1:
    """Whether `_attribute` would return something. Does not run the getter of a property."""
    return not isinstance(array, type) and (
        hasattr(type(array), name) or getattr(array, name, None) is not None)


cdef Region import_argument(object array, Stream stream, list used):
    """Return a buffer over a foreign array, for a launch on a stream.

    The launch is ordered after the work of the array's owner. Adds to `used` what `hold_arguments`
    takes after the launch was queued.
    """
    cdef dl_exchange *api
    cdef Argument known = _known(array)
    if known is None or not known.is_current(array):
        api = exchange_of(type(array))
        known = None if api is NULL or api.tensor_from_object is NULL \
            else _new_argument(api, array)
    if known is not None:
        if known.device_type != DL_CUDA_HOST and not _has_waited(known, used):
            _stream_of_import(stream, known.region.memory.context)
            _wait_for_owner(stream, known.api, known.device_type, known.ordinal)
        if known.region.memory.home.returns:
            follow_returns(known.region, stream)
        used.append(known)
        return known.region
    if _has_dlpack(array):
        return _import_dlpack(array, stream, False, False)
    return _import_interface(array, stream, False, False)


cdef bint _has_waited(Argument known, list used):
    """Whether the stream has already waited for this owner's stream, for the previous argument."""
    cdef Argument before
    if not used:
        return False
    before = <Argument>used[len(used) - 1]
    return before.api == known.api and before.ordinal == known.ordinal \
        and before.device_type != DL_CUDA_HOST


cdef Argument _new_argument(dl_exchange *api, object array):
    """Import an array for launches. Returns None if each launch has to import it anew."""
    cdef Argument argument
    cdef Tensor taken = take_exchanged(api, array)
    cdef dl_tensor *tensor = taken.tensor
    _check_device(array, tensor.device.device_type)
    if tensor.dtype.code == DL_COMPLEX:
        return None
    # In a program that launches with new arrays, and neither allocates nor waits, only this call
    # empties the queue.
    drain(False)
    argument = Argument.__new__(Argument)
    argument.api = api
    argument.device_type, argument.ordinal = tensor.device.device_type, tensor.device.device_id
    context = default_context() if argument.device_type == DL_CUDA_HOST \
        else context_of(Device(argument.ordinal))
    argument.region = _buffer_of(taken, argument.device_type, context, None, _name(array))
    argument.address = <size_t>tensor.data + tensor.byte_offset
    argument.nbytes = _bytes_of(tensor)
    # No home: the array is empty, or the driver does not know the bounds of the allocation.
    if argument.region.memory.home is None:
        return None
    # The region must not keep the array alive: `hold_arguments` does so while launches use it.
    argument.region.memory.owner = None
    unlist_memory(argument.region.memory)
    try:
        argument.array = weakref.KeyedRef(array, _forget_argument, <size_t><void *>array)
    except TypeError:
        return None
    argument.key = <size_t><void *>array
    _place_of(argument.key)[0] = NULL   # before `_arguments` drops the earlier record of this id
    _arguments[argument.key] = argument
    _place_of(argument.key)[0] = <PyObject *>argument
    return argument


cdef int hold_arguments(list used) except -1:
    """Keep arrays alive until the launch that was just queued is known to be complete."""
    for known in used:
        (<Argument>known).launches += 1
        if not (<Argument>known).held:
            _hold(<Argument>known, (<Argument>known).array())
    return 0


# ---- our buffers for consumers in C ----

cdef int _managed_from_object(void *array, dl_versioned **tensor) except -1:
    if not isinstance(<object>array, Buffer):
        raise TypeError(f"not a buffer, but {_name(<object>array)}")
    tensor[0] = export_to_c(<Region><object>array)
    return 0


cdef int _object_from_managed(dl_versioned *managed, void **array) except -1:
    cdef Region region = _region_of(own_tensor(managed))
    Py_INCREF(region)
    array[0] = <void *>region
    return 0


cdef Region _region_of(Tensor taken):
    """Make a buffer over a tensor whose owner works on cudadrv's current stream."""
    cdef Region region
    device = taken.tensor.device.device_type
    _check_device(taken, device)
    context = default_context() if device == DL_CUDA_HOST \
        else context_of(Device(taken.tensor.device.device_id))
    stream = stream_of_exchange(context)
    region = _buffer_of(taken, device, context, None if device == DL_CUDA_HOST else stream,
                        "the tensor")
    follow_returns(region, stream)
    return region


cdef int _allocate(
    dl_tensor *like, dl_versioned **tensor, void *error,
    void (*set_error)(void *error, const char *kind, const char *message) noexcept
) noexcept with gil:
    try:
        tensor[0] = export_to_c(_new_buffer(like))
    except BaseException as failure:
        set_error(error, type(failure).__name__.encode(), str(failure).encode())
        return -1
    return 0


cdef Region _new_buffer(dl_tensor *like):
    cdef Region region
    _check_device(None, like.device.device_type)
    shape = shape_of_tensor(like)
    ordinal = 0 if like.device.device_type == DL_CUDA_HOST else like.device.device_id
    region = _class_of(kind_of_dlpack(like.device.device_type))(
        math.prod(shape), dtype_of(like.dtype), device=Device(ordinal))
    region.sizes = shape
    return region


cdef int _current_work_stream(
    int32_t device_type, int32_t device_id, void **stream
) except -1 with gil:
    stream[0] = NULL
    if device_type in (DL_CUDA, DL_CUDA_MANAGED):
        stream[0] = <void *><size_t>stream_of_exchange(context_of(Device(device_id))).handle
    return 0


our_exchange.allocate = _allocate
our_exchange.managed_from_object = _managed_from_object
our_exchange.object_from_managed = _object_from_managed
our_exchange.tensor_from_object = NULL  # cudadrv would not learn when the consumer's use ends
our_exchange.current_work_stream = _current_work_stream
