# cython: nonecheck=True
"""Array: memory whose layout only the driver knows, made for textures and surfaces."""

import numpy as np

cimport cython

from cudadrv._array_copy cimport copy_texels_and_wait, copy_texels_async
from cudadrv._array_memory cimport Texels, allocate_array, new_layout
from cudadrv._array_staging cimport copy_ordinary, copy_ordinary_async, source_of, target_of
from cudadrv._buffer cimport borrows_of, explain_region, state_of
from cudadrv._copy cimport blocking_stream, nothing_to_do
from cudadrv._device cimport attend, context_of
from cudadrv._driver cimport CUDA_ARRAY3D_CUBEMAP, CUDA_ARRAY3D_LAYERED, CUDA_ARRAY3D_SURFACE_LDST
from cudadrv._errors cimport close_at_end, refuse_uninitialized
from cudadrv._names cimport ARRAY_FROM_ASYNC, ARRAY_TO_ASYNC, COPY_FROM, COPY_TO
from cudadrv._ordering cimport policy_in_force, policy_name
from cudadrv._peers cimport refuse_other_context
from cudadrv._region cimport Region, is_region, plain_array
from cudadrv._release cimport drain
from cudadrv._stream cimport known_stream, refuse_no_stream, stream_for
from cudadrv._errors import integer


@cython.final
cdef class Array:
    """Array(shape, dtype='f4', *, channels=1, layered=False, cubemap=False, mipmaps=1, \
surface=False, gather=False, device=None, name=None)\n--\n
    Memory of a device in a layout of the driver, which kernels read through a `Texture`, and write
    through a `Surface`.

    An array has texels, and a texel has 1, 2 or 4 channels. The contents are copied from and to
    buffers, arrays of the host and other arrays. Kernels cannot use its address. The contents of a
    new array are not defined.

    Indices count texels, and mean what they mean in NumPy: ``array[2]`` of a layered array is a
    layer, ``image[10:20, 5:9]`` a part of an image. Each part borrows only its own texels.

    Parameters
    ----------
    shape : int or tuple of int
        ``(width,)``, ``(height, width)`` or ``(depth, height, width)``, in texels. With
        ``layered``, the first of two or three sizes is the number of layers. With ``cubemap``, the
        shape is ``(6, n, n)``; with both, ``(6 * cubes, n, n)``.
    dtype : dtype-like, optional
        The channels: an integer of 8, 16 or 32 bits, or a float of 16 or 32 bits.
    channels : int, optional
        1, 2 or 4. With more than one, NumPy arrays with the contents have a last dimension for
        them: ``array.shape + (channels,)``.
    layered, cubemap : bool, optional
        Whether textures read it as layers, or as the faces of cubes.
    mipmaps : int, optional
        The number of levels, each half as large as the one before. ``max(shape).bit_length()``
        levels end with a single texel. Copies and surfaces use one level: ``array.level(1)``.
    surface : bool, optional
        Whether kernels may write it through a `Surface`.
    gather : bool, optional
        Whether kernels may read four texels at once (tld4).
    device : Device, optional
        Default: the current context.
    name : str, optional
        Shown in messages.

    Raises
    ------
    TypeError, ValueError
        There are no such arrays, or the device takes fewer texels.
    CudaOutOfMemoryError
        The device has no memory for it.

    Driver functions: cuArray3DCreate; with mipmaps cuMipmappedArrayCreate and
    cuMipmappedArrayGetLevel.
    """

    def __init__(
        self, shape, dtype="f4", *, channels=1, bint layered=False, bint cubemap=False, mipmaps=1,
        bint surface=False, bint gather=False, device=None, name=None
    ):
        layout = new_layout(shape, dtype, channels, layered, cubemap, mipmaps, surface, gather)
        if self.texels is not None:
            raise TypeError(f"{self.texels.describe()} is initialized already")
        self.texels = allocate_array(layout, context_of(device), name)

    @classmethod
    def from_array(cls, array, *, channels=1, stream=None, **options):
        """Make an array with a copy of the items of a NumPy array. Blocks until it is copied.

        ``array`` is anything that ``numpy.asarray`` takes. With 2 or 4 ``channels``, its last
        dimension has that size. ``stream`` is passed to `copy_from`, and the other options to the
        class. Raises what these raise.
        """
        cdef Array made
        stream = known_stream(stream)
        found = plain_array(array)
        shape = found.shape
        if integer(channels, "channels") > 1:
            if found.ndim < 2 or found.shape[-1] != channels:
                raise ValueError(f"the array has shape {found.shape}; with channels={channels}, its"
                                 f" last size is {channels}")
            shape = found.shape[:-1]
        made = cls(shape, found.dtype, channels=channels, **options)
        target = made.level(0) if made.mipmaps > 1 else made
        target.copy_from(found, stream=stream)
        return made

    # ---- what it is ----

    @property
    def shape(self):
        """The number of texels along each dimension; of a mipmapped array that of its level 0."""
        return _texels_of(self).shape

    @property
    def dtype(self):
        """The `numpy.dtype` of a channel."""
        return _texels_of(self).layout.dtype

    @property
    def channels(self):
        """The number of channels of a texel: 1, 2 or 4."""
        return _texels_of(self).layout.channels

    @property
    def mipmaps(self):
        """The number of levels: 1 for a single level of a mipmapped array."""
        return self.texels.layout.levels if _texels_of(self).level < 0 else 1

    @property
    def layered(self):
        """Whether it was made with ``layered=True``."""
        return _texels_of(self).layout.flag(CUDA_ARRAY3D_LAYERED)

    @property
    def cubemap(self):
        """Whether it was made with ``cubemap=True``."""
        return _texels_of(self).layout.flag(CUDA_ARRAY3D_CUBEMAP)

    @property
    def surface(self):
        """Whether it was made with ``surface=True``."""
        return _texels_of(self).layout.flag(CUDA_ARRAY3D_SURFACE_LDST)

    @property
    def nbytes(self):
        """Bytes of all texels, in all levels. The driver may need more memory."""
        if _texels_of(self).level < 0:
            return self.texels.nbytes
        return self.texels.count * self.texels.itemsize

    @property
    def name(self):
        """The array's name in messages, or None."""
        return _texels_of(self).name

    @property
    def handle(self):
        """The CUarray, or the CUmipmappedArray with all levels, as an int, for other libraries.

        cudadrv does not see what they do with it. A part has the handle of the whole level.
        """
        _texels_of(self).usable()
        if self.texels.level < 0:
            return self.texels.memory.address
        return <size_t>self.texels.raw

    @property
    def context(self):
        """The context that the memory belongs to."""
        return _texels_of(self).memory.context

    @property
    def device(self):
        """The device of the array's context."""
        return _texels_of(self).memory.context.device

    @property
    def closed(self):
        """Whether the array was closed."""
        return _texels_of(self).memory.state.closed

    @property
    def ordering(self):
        """The array's own policy, or None: see `cudadrv.ordering`. Parts made later inherit it.

        Setting it raises ValueError unless the value is a policy or None.
        """
        return _texels_of(self).policy

    @ordering.setter
    def ordering(self, value):
        _texels_of(self).policy = policy_name(value)

    # ---- parts ----

    def __len__(self):
        if _texels_of(self).level < 0:
            _refuse_levels(self.texels, "len")
        return len(self.texels)

    def __getitem__(self, key):
        """__getitem__($self, key, /)\n--\n
        ``array[a:b]``: a part, which shares the memory and borrows only its own texels.

        Indices mean what they mean in NumPy. Raises ValueError for a step other than 1 and for a
        mipmapped array, IndexError for an index out of range, and TypeError for other keys."""
        _texels_of(self).usable()
        if self.texels.level < 0:
            _refuse_levels(self.texels, "an index")
        return array_over(self.texels.indexed(key))

    def level(self, index):
        """Return a level of a mipmapped array: an array that shares its memory.

        Levels are numbered from 0, the largest. Raises IndexError if there is no such level.
        """
        _texels_of(self).usable()
        number = integer(index, "index")
        levels = self.mipmaps
        if not -levels <= number < levels:
            raise IndexError(f"{self.texels.describe()} has {levels}"
                             f" level{'s' if levels > 1 else ''}, and no level {number}")
        if self.texels.level >= 0:
            return self
        return array_over(self.texels.at_level(number % levels))

    # ---- copies ----

    def copy_from(self, source not None, *, stream=None):
        """Copy into this array. Blocks until the copy is complete.

        The copy runs on the given stream, else on the current stream, else on an internal one, as
        that of `Buffer.copy_from`.

        Parameters
        ----------
        source : Array, Buffer, or object with the buffer protocol
            Of the same dtype, and of this array's shape; with several channels, these are its last
            dimension. With a single dimension it may have the items in C order. The rows of a box
            may have gaps between them.
        stream : Stream, optional

        Raises
        ------
        TypeError, ValueError
            The dtype, shape or device of the source does not fit; the parts overlap; the array has
            several levels.
        BufferBorrowedError, BufferExportedError, BufferClosedError
            See docs/errors.md.
        CudaError
            A driver call failed.

        Driver functions: cuMemcpy3DAsync, or cuMemcpy3DPeerAsync between contexts; cuEventRecord
        and cuEventQuery; cuMemHostAlloc.
        """
        cdef Region region
        stream = known_stream(stream)
        _one_level(self)
        region = copied_region(source)
        if region is not None:
            copy_texels_and_wait(COPY_FROM, self.texels, region, stream, self, source)
            return
        array = source_of(source, self.texels)
        found = stream_for(stream, self.texels.memory.context)
        if array.size:
            copy_ordinary(COPY_FROM, self.texels, array, blocking_stream(found, self.texels))
        elif found is not None:
            found.usable()

    def copy_to(self, target not None, *, stream=None):
        """Copy this array's texels to a target. Blocks until the copy is complete.

        This is `copy_from` in the other direction. A target of NumPy must be writable.
        """
        cdef Region region
        stream = known_stream(stream)
        _one_level(self)
        region = copied_region(target)
        if region is not None:
            copy_texels_and_wait(COPY_TO, region, self.texels, stream, target, self)
            return
        array = target_of(target, self.texels)
        found = stream_for(stream, self.texels.memory.context)
        if array.size:
            packed = np.ascontiguousarray(array)
            copy_ordinary(COPY_TO, self.texels, packed, blocking_stream(found, self.texels))
            if packed is not array:
                array[...] = packed
        elif found is not None:
            found.usable()

    def copy_from_async(self, source not None, stream=None):
        """Queue a copy into this array. Does not wait for it. Returns a Token.

        Parameters and errors are those of `copy_from`. The items of a NumPy array are copied to
        page-locked memory within the call, so the NumPy array may change after it. Without
        ``stream``, the copy is queued on the current stream; if there is none, TypeError is raised.

        Driver functions: cuMemcpy3DAsync, or cuMemcpy3DPeerAsync between contexts.
        """
        cdef Region region
        stream = known_stream(stream)
        _one_level(self)
        region = copied_region(source)
        if region is not None:
            return copy_texels_async(ARRAY_FROM_ASYNC, self.texels, region, stream, self, source,
                                     "copy_from_async")
        array = source_of(source, self.texels)
        found = stream_for(stream, self.texels.memory.context)
        if found is None:
            refuse_no_stream("copy_from_async")
        if array.size == 0:
            refuse_other_context(self.texels, found)
            return nothing_to_do(ARRAY_FROM_ASYNC, found, None, self)
        return copy_ordinary_async(self.texels, array, found, self)

    def copy_to_async(self, target not None, stream=None):
        """Queue a copy of this array's texels into a buffer or another array. Does not wait for it.

        This is `copy_from_async` in the other direction. An array of NumPy as target raises
        TypeError: copy to a LockedBuffer, or use the blocking `copy_to`.
        """
        cdef Region region
        stream = known_stream(stream)
        _one_level(self)
        region = copied_region(target)
        if region is None:
            raise TypeError(
                f"copy_to_async cannot write to {type(target).__name__}: nothing would keep that"
                " memory as it is until the copy is complete. Copy to a LockedBuffer, or use the"
                " blocking copy_to")
        return copy_texels_async(ARRAY_TO_ASYNC, region, self.texels, stream, target, self,
                                 "copy_to_async")

    def to_numpy(self):
        """Return a NumPy array with a copy of the texels. Blocks: see `copy_to`."""
        _one_level(self)
        array = np.empty(self.texels.item_shape(), self.texels.layout.dtype)
        self.copy_to(array)
        return array

    # ---- who uses it ----

    @property
    def borrowed(self):
        """Whether any GPU work that uses the array is not known to be complete. Never polls."""
        return bool(self.borrows)

    @property
    def borrows(self):
        """The GPU uses of the array that are not known to be complete: a tuple of `Borrow`.

        Bytes are counted as in a C-contiguous array of the texels, one level after the other.
        """
        attend()
        return borrows_of(_texels_of(self))

    def explain(self):
        """Return a text that says who uses the array, and what would release it."""
        attend()
        return explain_region(_texels_of(self))

    # ---- lifetime ----

    def close(self):
        """Close the array: its memory is freed. Closing twice does nothing.

        Waits until the device is idle, because freeing may block: signals such as Ctrl-C interrupt
        this wait, and then the array stays open. Textures and surfaces over a closed array cannot
        be used any more.

        Raises
        ------
        BufferBorrowedError
            The array is in use. It stays open.
        ValueError
            The array is a part or a level of another array.

        Driver functions: cuArrayDestroy or cuMipmappedArrayDestroy.
        """
        cdef Texels texels = _texels_of(self)
        if texels.memory.state.closed:
            return
        _refuse_part(self)
        texels.memory.close(None, policy_in_force(texels.policy, texels.memory.context.policy))
        drain(False)

    def __enter__(self):
        """``with array:`` closes it at the end of the block."""
        _texels_of(self).usable()
        _refuse_part(self)
        return self

    def __exit__(self, kind, exception, traceback):
        """Close the array.

        If closing fails while an exception propagates, a note is added to that exception.
        """
        close_at_end(self, exception, "array")

    def __repr__(self):
        cdef Texels texels = _texels_of(self)
        name = f" {texels.name!r}" if texels.name is not None else ""
        if texels.memory.state.closed:
            return f"<Array{name} closed>"
        shape = " x ".join(map(str, texels.shape)) or "1 texel"
        levels = f", {texels.layout.levels} levels" if texels.level < 0 else ""
        return f"<Array{name} {shape} of {texels.layout.channels} x {texels.layout.dtype}{levels}" \
               f"{state_of(texels)}>"


cdef Array array_over(Texels texels):
    """Return an Array for texels."""
    cdef Array array = Array.__new__(Array)
    array.texels = texels
    return array


cdef Texels _texels_of(Array array):
    """Return the texels of an array. Raises TypeError if its ``__init__`` never ran."""
    if array.texels is None:
        refuse_uninitialized(array)
    return array.texels


cdef int _refuse_levels(Texels texels, str what) except -1:
    raise ValueError(f"{texels.describe()} has {texels.layout.levels} levels, and {what} is for one"
                     " of them: array.level(0)")


cdef int _one_level(Array array) except -1:
    """Raise unless the array is open and a single level."""
    _texels_of(array).usable()
    if array.texels.level < 0:
        _refuse_levels(array.texels, "a copy")
    return 0


cdef Region copied_region(object given):
    """Return the region of an array or a buffer that is copied; None for other objects."""
    if type(given) is Array:
        _one_level(given)
        return (<Array>given).texels
    return given if is_region(given) else None


cdef int _refuse_part(Array array) except -1:
    if array.texels.part:
        raise ValueError(f"{array.texels.describe()} is a part; only the whole can be closed")
    return 0
