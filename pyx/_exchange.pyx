"""Exchange: arrays of other libraries as buffers, by DLPack and the CUDA Array Interface."""

import ctypes
import operator

import numpy as np

from cudadrv._buffer cimport Buffer
from cudadrv._device cimport Context, Device, context_of, default_context
from cudadrv._dlpack cimport (
    DL_CPU, DL_CUDA, DL_CUDA_HOST, DL_CUDA_MANAGED, Tensor, dl_tensor, dtype_of, is_contiguous,
    shape_of_tensor, take_tensor,
)
from cudadrv._driver cimport bind_driver, cudadrv_table
from cudadrv._engine cimport OWN_UNCHECKED
from cudadrv._loan cimport follow_returns, note_write, protocol_handle
from cudadrv._memory cimport kind_at
from cudadrv._names cimport IMPORT
from cudadrv._region cimport Region
from cudadrv._release cimport DEVICE, LOCKED, UNIFIED
from cudadrv._stream cimport Stream, stream_for

from cudadrv._buffers import DeviceBuffer, LockedBuffer, UnifiedBuffer

bind_driver(&cudadrv_table)

cdef dict CLASSES = {DEVICE: DeviceBuffer, LOCKED: LockedBuffer, UNIFIED: UnifiedBuffer}
cdef dict KINDS = {<int>DL_CUDA: DEVICE, <int>DL_CUDA_HOST: LOCKED, <int>DL_CUDA_MANAGED: UNIFIED}
cdef str COPY_IT = "copy it: DeviceBuffer.from_array(array) or buffer.copy_from(array); or put it" \
                   " into page-locked memory: LockedBuffer.from_array(array)"


def from_dlpack(array, stream=None):
    """Make a buffer over an array of another library, without a copy, by DLPack.

    The other library orders its work before the stream, as the protocol asks: for the checks, the
    memory was written there, so that use on another stream has to be ordered after it. The array is
    kept alive until the last use of the buffer is known to be complete. Buffers over overlapping
    memory conflict as parts of one buffer do. The stream waits for those to which the bytes were
    given back.

    Parameters
    ----------
    array : object with ``__dlpack__``
        An array on a device, page-locked or managed; C-contiguous.
    stream : Stream, optional
        Default: the current one of a ``with stream:`` block, else the legacy default stream.

    Returns
    -------
    DeviceBuffer, LockedBuffer or UnifiedBuffer
        With the array's shape. Where the array is read-only, so is the buffer.

    Raises
    ------
    TypeError
        It has no ``__dlpack__``.
    BufferError
        The array is not C-contiguous, is in ordinary memory or on a device that is none of CUDA's,
        or has a dtype that NumPy does not support.

    Driver functions: cuPointerGetAttribute, cuMemGetAddressRange; the exporter's own.
    """
    return _import_dlpack(array, stream, True)


cdef object _import_dlpack(object array, object stream, bint noted):
    """See `from_dlpack`. With `noted`, the import counts as a write on the stream."""
    cdef Context context
    cdef Stream found
    cdef Region region
    device, ordinal = _dlpack_device(array)
    if device == DL_CPU:
        raise BufferError(f"{_name(array)} is in ordinary memory, which asynchronous work cannot"
                          f" use; {COPY_IT}")
    if device not in KINDS:
        raise BufferError(f"{_name(array)} is on a device that is none of CUDA's (DLPack's type"
                          f" {device})")
    context = _context_near(stream) if device == DL_CUDA_HOST else context_of(Device(ordinal))
    found = _stream_of_import(stream, context)
    options = {} if device == DL_CUDA_HOST else {"stream": protocol_handle(found)}
    taken = take_tensor(_call_dlpack(array, options))
    region = _buffer_of(taken, KINDS[device], context,
                        found if options and noted else None, array)
    if options and not noted:
        follow_returns(region, found)
    return region


cdef tuple _dlpack_device(object array):
    try:
        asked = type(array).__dlpack_device__
    except AttributeError:
        raise TypeError(f"{_name(array)} has no __dlpack__; from_cuda_array takes what has the CUDA"
                        " Array Interface") from None
    device, ordinal = asked(array)
    return operator.index(device), operator.index(ordinal)


cdef object _call_dlpack(object array, dict options):
    """The capsule, of version 1 if the exporter knows it."""
    try:
        return array.__dlpack__(**options, max_version=(1, 1))
    except TypeError:
        return array.__dlpack__(**options)


cdef Context _context_near(object stream):
    """The context for memory that is on no device: that of the stream's device."""
    cdef Stream found = stream_for(stream, default_context())
    return default_context() if found is None else context_of(found.context.device)


cdef Stream _stream_of_import(object stream, Context context):
    cdef Stream found = stream_for(stream, context)
    if found is None:
        found = Stream.legacy(device=context.device)
    if found.context is not context:
        raise ValueError(f"the array is on {context.device!r}, and {found!r} belongs to"
                         f" {found.context!r}; use a stream of its primary context")
    return found


cdef object _buffer_of(Tensor taken, int kind, Context context, Stream stream, object array):
    """The buffer over a tensor; it keeps the tensor, which keeps the array."""
    cdef Region region
    cdef dl_tensor *tensor = taken.tensor
    dtype = dtype_of(tensor.dtype)
    shape = shape_of_tensor(tensor)
    if not is_contiguous(tensor):
        raise BufferError(f"{_name(array)} of shape {shape} is not C-contiguous; make it so there"
                          " first, with contiguous() or copy()")
    count = 1
    for size in shape:
        count *= size
    address = <size_t>tensor.data + tensor.byte_offset if count else 0
    region = CLASSES[kind].from_address(address, count, dtype, owner=taken, device=context.device)
    region.sizes = shape
    region.read_only = taken.readonly
    if stream is not None and count:
        note_write(region, stream, IMPORT, OWN_UNCHECKED)
    return region


cdef str _name(object array):
    return f"an object of type {type(array).__name__}"


# ---- the CUDA Array Interface ----

def from_cuda_array(array, stream=None):
    """Make a buffer over another library's array, without a copy, by the CUDA Array Interface.

    As `from_dlpack`. The interface names the stream that the array may be in use on, and the
    buffer's stream waits for that one; where it names none, nothing is waited for.

    Parameters
    ----------
    array : object with ``__cuda_array_interface__``
        C-contiguous, without a mask.
    stream : Stream, optional
        As for `from_dlpack`.

    Raises
    ------
    TypeError, BufferError
        It has no such interface, or one that breaks the protocol. It is masked or not contiguous.
    ValueError
        The address is none of the driver's.

    Driver functions: cuPointerGetAttribute, cuMemGetAddressRange, cuEventRecord, cuStreamWaitEvent.
    """
    return _import_interface(array, stream, True)


cdef object _import_interface(object array, object stream, bint noted):
    """See `from_cuda_array`, and `_import_dlpack`."""
    cdef Region region
    cdef Stream found
    cdef int ordinal = 0
    try:
        interface = array.__cuda_array_interface__
    except AttributeError:
        raise TypeError(f"{_name(array)} has no __cuda_array_interface__; from_dlpack takes what"
                        " has __dlpack__") from None
    shape, dtype, address, read_only, theirs = _checked_interface(array, interface)
    count = 1
    for size in shape:
        count *= size
    kind = DEVICE
    context = None
    if count:
        kind = kind_at(default_context(), address, &ordinal)
        if kind not in CLASSES:
            raise ValueError(f"{_name(array)} says that its memory is at {address:#x}, and that is"
                             " none of the driver's")
        context = context_of(Device(ordinal))
    if kind == LOCKED or not count:
        context = _context_near(stream)
    found = _stream_of_import(stream, context)
    if theirs is not None:
        their_stream = Stream.legacy(device=context.device) if theirs == 1 \
            else Stream.per_thread(device=context.device) if theirs == 2 \
            else Stream.from_handle(theirs)
        if their_stream is not found:
            found.wait(their_stream)
    region = CLASSES[kind].from_address(
        address if count else 0, count, dtype, owner=array, device=context.device)
    region.sizes = shape
    region.read_only = read_only
    if count and theirs is not None and noted:
        note_write(region, found, IMPORT, OWN_UNCHECKED)
    elif theirs is not None:
        follow_returns(region, found)
    return region


cdef tuple _checked_interface(object array, object interface):
    """``(shape, dtype, address, readonly, stream)``; BufferError for what breaks the protocol."""
    try:
        shape = []
        for size in interface["shape"]:
            shape.append(operator.index(size))
        shape = tuple(shape)
        dtype = np.dtype(interface["typestr"])
        if dtype.kind == "V" and interface.get("descr"):
            dtype = np.dtype(interface["descr"])
        address, read_only = interface["data"]
        address = operator.index(address)
        strides, mask = interface.get("strides"), interface.get("mask")
        theirs = interface.get("stream")
        if theirs is not None:
            theirs = operator.index(theirs)
    except (TypeError, KeyError, ValueError) as error:
        raise BufferError(f"the __cuda_array_interface__ of {_name(array)} breaks the protocol:"
                          f" {type(error).__name__}: {error}") from None
    if min(shape, default=0) < 0 or theirs == 0 or address < 0:
        raise BufferError(f"the __cuda_array_interface__ of {_name(array)} breaks the protocol:"
                          f" shape {shape}, address {address}, stream {theirs}")
    if mask is not None:
        raise BufferError(f"{_name(array)} has a mask, which would be lost")
    if strides is not None and 0 not in shape:
        step = dtype.itemsize
        for size, stride in zip(reversed(shape), reversed(tuple(strides)), strict=True):
            if size != 1 and stride != step:
                raise BufferError(f"{_name(array)} of shape {shape} is not C-contiguous; make it so"
                                  " there first, with a copy")
            step *= size
    return shape, dtype, address, bool(read_only), theirs


# ---- as arguments of kernels ----

cdef tuple NO_ARRAYS = (np.generic, np.ndarray, ctypes.c_int.__mro__[2], Buffer)


cdef bint is_foreign_array(object value) except -1:
    """Return whether the value is an array of another library, by DLPack or the array interface.

    Arrays of NumPy are not: the device cannot see their memory.
    """
    cdef object kind = type(value)
    return not isinstance(value, NO_ARRAYS) and (
        hasattr(kind, "__dlpack__") or hasattr(kind, "__cuda_array_interface__"))


cdef Region import_argument(object array, Stream stream):
    """The buffer over a foreign array, for a launch on a stream, and for nothing else."""
    if hasattr(type(array), "__dlpack__"):
        return _import_dlpack(array, stream, False)
    return _import_interface(array, stream, False)
