# cython: nonecheck=True
"""Texture and Surface: objects of the driver by which kernels read and write arrays."""

import numpy as np

cimport cython
from libc.string cimport memset

from cudadrv._array_memory cimport Layout, Texels, checked_channels, format_of
from cudadrv._arrays cimport Array
from cudadrv._device cimport Context, Device
from cudadrv._driver cimport (
    CUDA_ARRAY3D_CUBEMAP, CUDA_ARRAY3D_SURFACE_LDST, CUDA_ERROR_INVALID_VALUE, CUDA_RESOURCE_DESC,
    CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT,
    CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, CU_TRSF_NORMALIZED_COORDINATES,
    CU_TRSF_READ_AS_INTEGER, CU_TRSF_SEAMLESS_CUBEMAP, CU_TRSF_SRGB, CU_TR_ADDRESS_MODE_BORDER,
    CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_MIRROR, CU_TR_ADDRESS_MODE_WRAP,
    CU_TR_FILTER_MODE_LINEAR, CU_TR_FILTER_MODE_POINT, CUaddress_mode, CUarray, CUarray_format,
    CUdeviceptr, CUfilter_mode, CUmipmappedArray, CUresult, CUsurfObject, CUtexObject,
    has_answered, in_cuDeviceGetTexture1DLinearMaxWidth, in_cuSurfObjectCreate,
    in_cuTexObjectCreate, last_failure,
)
from cudadrv._engine cimport (
    OWN_READ, OWN_STRICT, OWN_WRITE, engine, own_export, own_export_close,
)
from cudadrv._errors cimport close_at_end, refuse_uninitialized
from cudadrv._managed cimport keep_open
from cudadrv._memory cimport Memory, new_state, use_on_host
from cudadrv._memory_kinds cimport SURFACE, TEXTURE, MemoryKind
from cudadrv._region cimport (
    Region, check_region, checked_label, copy_layout, fill_in, is_region, of_present_size,
    pointer_of, refuse_box,
)
from cudadrv._release cimport drain, drain_for_more
from cudadrv._site cimport here

from cudadrv._errors import CudaError, integer

cdef extern from *:
    """
    /* Written in C, because the members of CUDA_RESOURCE_DESC have types without names. */
    static inline void resource_of_array(CUDA_RESOURCE_DESC *resource, CUarray array) {
        resource->resType = CU_RESOURCE_TYPE_ARRAY;
        resource->res.array.hArray = array;
    }
    static inline void resource_of_mipmaps(CUDA_RESOURCE_DESC *resource, CUmipmappedArray array) {
        resource->resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
        resource->res.mipmap.hMipmappedArray = array;
    }
    static inline void resource_of_row(CUDA_RESOURCE_DESC *resource, CUdeviceptr address,
                                       CUarray_format format, int channels, size_t nbytes) {
        resource->resType = CU_RESOURCE_TYPE_LINEAR;
        resource->res.linear.devPtr = address;
        resource->res.linear.format = format;
        resource->res.linear.numChannels = (unsigned)channels;
        resource->res.linear.sizeInBytes = nbytes;
    }
    static inline void resource_of_rows(CUDA_RESOURCE_DESC *resource, CUdeviceptr address,
                                        CUarray_format format, int channels, size_t width,
                                        size_t height, size_t pitch) {
        resource->resType = CU_RESOURCE_TYPE_PITCH2D;
        resource->res.pitch2D.devPtr = address;
        resource->res.pitch2D.format = format;
        resource->res.pitch2D.numChannels = (unsigned)channels;
        resource->res.pitch2D.width = width;
        resource->res.pitch2D.height = height;
        resource->res.pitch2D.pitchInBytes = pitch;
    }
    static inline void view_layers(CUDA_RESOURCE_VIEW_DESC *view, int format, size_t width,
                                   size_t height, size_t depth, unsigned levels, size_t first,
                                   size_t count) {
        view->format = (CUresourceViewFormat)format;
        view->width = width;
        view->height = height;
        view->depth = depth;
        view->lastMipmapLevel = levels - 1;
        view->firstLayer = (unsigned)first;
        view->lastLayer = (unsigned)(first + count - 1);
    }
    """
    void resource_of_array(CUDA_RESOURCE_DESC *resource, CUarray array) noexcept
    void resource_of_mipmaps(CUDA_RESOURCE_DESC *resource, CUmipmappedArray array) noexcept
    void resource_of_row(
        CUDA_RESOURCE_DESC *resource, CUdeviceptr address, CUarray_format format, int channels,
        size_t nbytes) noexcept
    void resource_of_rows(
        CUDA_RESOURCE_DESC *resource, CUdeviceptr address, CUarray_format format, int channels,
        size_t width, size_t height, size_t pitch) noexcept
    void view_layers(
        CUDA_RESOURCE_VIEW_DESC *view, int format, size_t width, size_t height, size_t depth,
        unsigned levels, size_t first, size_t count) noexcept
    enum:
        CU_RES_VIEW_FORMAT_UINT_1X8
        CU_RES_VIEW_FORMAT_SINT_1X8
        CU_RES_VIEW_FORMAT_UINT_1X16
        CU_RES_VIEW_FORMAT_SINT_1X16
        CU_RES_VIEW_FORMAT_UINT_1X32
        CU_RES_VIEW_FORMAT_SINT_1X32
        CU_RES_VIEW_FORMAT_FLOAT_1X16
        CU_RES_VIEW_FORMAT_FLOAT_1X32
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH


# ---- objects of the driver ----

@cython.final
cdef class ObjectRegion(Region):
    """Stands for a texture or surface object of the driver. Internal to cudadrv."""

    cdef str text

    cdef str describe(self):
        return self.text


cdef Region _object_region(MemoryKind kind, Context context, object name, Region used):
    """Return the region of an object of the driver that the caller makes next.

    The caller sets the address of the memory to the object, which then ends with the memory.
    """
    cdef ObjectRegion region = ObjectRegion.__new__(ObjectRegion)
    cdef Memory memory = Memory.__new__(Memory)
    memory.context, memory.kind, memory.site = context, kind, here()
    memory.nbytes = 1
    memory.state = new_state(1)
    region.kind = kind
    memory.label = checked_label(region, name)
    region.text = f"{memory.label} over {used.describe()}"
    fill_in(region, memory, 1, _BYTE, 1, name)
    return region


cdef object _BYTE = np.dtype("u1")


cdef class Handle:
    """Handle(**kwargs)\n--\n
    What `Texture` and `Surface` have in common."""

    # Not *args: Cython 3.3.0 would leave out a function that the derived classes call.
    def __init__(self, **kwargs):
        raise TypeError("use Texture or Surface")

    @property
    def source(self):
        """The array or buffer that kernels use through it."""
        self._open()
        return self.source

    @property
    def handle(self):
        """The object of the driver as an int, for other libraries. cudadrv does not see its uses.
        """
        self.usable()
        return self.object.memory.address

    @property
    def name(self):
        """The name in messages, or None."""
        self._open()
        return self.object.name

    @property
    def context(self):
        """The context in which kernels can use it."""
        self._open()
        return self.object.memory.context

    @property
    def device(self):
        """The device of the context."""
        self._open()
        return self.object.memory.context.device

    @property
    def closed(self):
        """Whether it was closed. If its array or buffer is closed, launches are refused, too."""
        self._open()
        return self.object.memory.state.closed

    def close(self):
        """Close it, but not its array or buffer. Closing twice does nothing. Does not block.

        Raises BufferBorrowedError while a kernel that got it is not known to be complete, or while
        a graph has such a launch.

        Driver functions: cuTexObjectDestroy or cuSurfObjectDestroy, once the device is idle.
        """
        self._open()
        if not self.object.memory.state.closed:
            self.object.memory.close(None, OWN_STRICT)
            drain(False)

    def __enter__(self):
        """``with texture:`` closes it at the end of the block."""
        self.usable()
        return self

    def __exit__(self, kind, exception, traceback):
        """Close it.

        If closing fails while an exception propagates, a note is added to that exception.
        """
        close_at_end(self, exception, type(self).__name__.lower())

    def __repr__(self):
        self._open()
        closed = " closed" if self.object.memory.state.closed else f" over {self.source!r}"
        name = f" {self.object.name!r}" if self.object.name is not None else ""
        return f"<{type(self).__name__}{name}{closed}>"

    def _open(self):
        if self.object is None:
            refuse_uninitialized(self)

    cdef int usable(self) except -1:
        """Raise if it is closed, or its array or buffer."""
        self._open()
        check_region(self.object)
        check_region(self.region)
        return 0


# ---- textures ----

cdef dict ADDRESSES = {
    "wrap": <int>CU_TR_ADDRESS_MODE_WRAP, "clamp": <int>CU_TR_ADDRESS_MODE_CLAMP,
    "mirror": <int>CU_TR_ADDRESS_MODE_MIRROR, "border": <int>CU_TR_ADDRESS_MODE_BORDER,
}
cdef dict FILTERS = {
    "point": <int>CU_TR_FILTER_MODE_POINT, "linear": <int>CU_TR_FILTER_MODE_LINEAR,
}
# The formats of resource views for one channel; those for 2 and 4 channels follow.
cdef dict VIEWS = {
    "u1": <int>CU_RES_VIEW_FORMAT_UINT_1X8, "i1": <int>CU_RES_VIEW_FORMAT_SINT_1X8,
    "u2": <int>CU_RES_VIEW_FORMAT_UINT_1X16, "i2": <int>CU_RES_VIEW_FORMAT_SINT_1X16,
    "u4": <int>CU_RES_VIEW_FORMAT_UINT_1X32, "i4": <int>CU_RES_VIEW_FORMAT_SINT_1X32,
    "f2": <int>CU_RES_VIEW_FORMAT_FLOAT_1X16, "f4": <int>CU_RES_VIEW_FORMAT_FLOAT_1X32,
}


@cython.final
cdef class Texture(Handle):
    """Texture(source, *, address='clamp', filter='point', normalized=False, as_float=False, \
srgb=False, border=(0, 0, 0, 0), channels=1, mipmap_filter='point', levels=None, bias=0.0, \
anisotropy=1, seamless=False, name=None)\n--\n
    An array or a buffer, and how kernels read it: an argument of a launch.

    A launch gets its 64-bit handle, and borrows the memory for reading. The memory stays alive as
    long as the texture. Does not block.

    Parameters
    ----------
    source : Array or Buffer
        An array with all its levels, a level, or some layers of a layered array, which count from
        0 in the kernel. A buffer with one dimension is read by the numbers of its texels
        (tex1Dfetch). A buffer with two, also a box, is read as an image, whose rows may have gaps
        between them.
    address : str, or a tuple with one for each dimension, optional
        What is read outside: ``"clamp"`` the nearest texel; ``"border"`` the border;
        ``"wrap"`` and ``"mirror"``, which need ``normalized``, repeat the contents.
    filter : "point" or "linear", optional
        Whether a kernel gets the nearest texel, or interpolates between the nearest ones.
    normalized : bool, optional
        Whether coordinates go from 0 to 1, and not to the number of texels.
    as_float : bool, optional
        Whether integers of 8 and 16 bits are read as floats from 0 to 1, or -1 to 1 if signed.
    srgb : bool, optional
        Whether unsigned 8-bit integers that are read as floats are converted from sRGB.
    border : tuple of up to 4 numbers, optional
        The channels outside, for ``address="border"``.
    channels : int, optional
        The channels of a texel of a buffer: 1, 2 or 4. With more than one, they are the last
        dimension of the buffer. An array has its own.
    mipmap_filter : "point" or "linear", optional
        The same as ``filter``, between two levels of a mipmapped array, which needs ``normalized``.
    levels : tuple of two numbers, optional
        The first and the last level that are read. Default: all.
    bias : float, optional
        What is added to the level.
    anisotropy : int, optional
        The greatest ratio of anisotropic filtering, from 1 to 16.
    seamless : bool, optional
        Whether faces of a cubemap are interpolated across their edges.
    name : str, optional
        Shown in messages.

    Raises
    ------
    TypeError, ValueError
        The source cannot be read in this way: its dtype, its shape, its alignment, or the limits of
        the device.
    BufferClosedError
        The source is closed.
    CudaError
        A driver call failed.

    Driver functions: cuTexObjectCreate; cuDeviceGetTexture1DLinearMaxWidth for one dimension.
    """

    def __init__(
        self, source, *, address="clamp", filter="point", bint normalized=False,
        bint as_float=False, bint srgb=False, border=(0, 0, 0, 0), channels=1,
        mipmap_filter="point", levels=None, bias=0.0, anisotropy=1, bint seamless=False, name=None
    ):
        cdef CUDA_RESOURCE_DESC resource
        cdef CUDA_RESOURCE_VIEW_DESC view
        cdef CUDA_TEXTURE_DESC reading
        cdef CUtexObject handle = 0
        cdef Region region = _readable(source)
        cdef Context context = region.memory.context
        cdef own_export open
        cdef bint viewed = False
        cdef CUresult status
        if self.object is not None:
            raise TypeError(f"{self.object.describe()} is initialized already")
        memset(&resource, 0, sizeof(resource))
        memset(&reading, 0, sizeof(reading))
        memset(&view, 0, sizeof(view))
        _fill_reading(&reading, address, filter, normalized, srgb, border, mipmap_filter, bias,
                      anisotropy, seamless)
        if isinstance(region, Texels):
            if integer(channels, "channels") not in (1, (<Texels>region).layout.channels):
                raise ValueError(f"channels is {channels}, and {region.describe()} has its own")
            dtype = (<Texels>region).layout.dtype
            viewed = _fill_array(&resource, &view, region)
            _check_array(region, &reading, levels)
        else:
            dtype = region.dtype
            _fill_buffer(&resource, &reading, region, channels)
        _check_values(&reading, dtype, as_float, region)
        made = _object_region(TEXTURE, context, name, region)
        drain_for_more()
        keep_open(region, &open)    # no other thread may close the memory during the call
        with nogil:
            status = in_cuTexObjectCreate(
                context.raw, &handle, &resource, &reading, &view if viewed else NULL)
        own_export_close(engine, &open)
        _check_made(context, status, region)
        made.memory.address = handle
        self.region, self.source, self.mode, self.object = region, source, OWN_READ, made


cdef int _check_made(Context context, CUresult status, Region region) except -1:
    if has_answered(status, CUDA_ERROR_INVALID_VALUE):
        raise CudaError(<int>status, last_failure().decode(),
                        f"{context.device!r} does not use {region.describe()} in this way")
    context.check(status)
    return 0


cdef Region _readable(object source):
    """Return the region of what a texture reads, which never grows."""
    cdef Region region
    if type(source) is Array:
        region = (<Array>source).texels
        if region is None:
            refuse_uninitialized(source)
        check_region(region)
        return region
    if not is_region(source):
        raise TypeError(f"a texture reads an Array or a buffer, not {type(source).__name__}; copy"
                        " an array of the host to one: cudadrv.Array.from_array(array)")
    check_region(<Region>source)
    region = of_present_size(<Region>source)
    if region is source:    # a part of its own, so that the buffer cannot be given away
        region = region.part_over(region.start, region.count, region.dtype)
        copy_layout(region, <Region>source)
    if region.memory.unused:
        use_on_host(region.memory)
    return region


cdef int _fill_reading(
    CUDA_TEXTURE_DESC *reading, object address, object filter, bint normalized, bint srgb,
    object border, object mipmap_filter, object bias, object anisotropy, bint seamless
) except -1:
    """Fill in how a texture is read. Raises TypeError or ValueError for values that do not exist.
    """
    modes = (address,) * 3 if isinstance(address, str) else tuple(address)
    if not 1 <= len(modes) <= 3:
        raise ValueError(f"address is {address!r}, and has one mode, or one for each dimension")
    for i in range(3):
        mode = modes[min(i, len(modes) - 1)]
        reading.addressMode[<int>i] = <CUaddress_mode><int>_one_of(ADDRESSES, mode, "address")
        if mode in ("wrap", "mirror") and not normalized:
            raise ValueError(f"address is {mode!r}, which the device knows for normalized"
                             " coordinates only: pass normalized=True")
    reading.filterMode = <CUfilter_mode><int>_one_of(FILTERS, filter, "filter")
    reading.mipmapFilterMode = \
        <CUfilter_mode><int>_one_of(FILTERS, mipmap_filter, "mipmap_filter")
    reading.flags = (CU_TRSF_NORMALIZED_COORDINATES if normalized else 0) \
        | (CU_TRSF_SRGB if srgb else 0) | (CU_TRSF_SEAMLESS_CUBEMAP if seamless else 0)
    colors = tuple(border)
    if len(colors) > 4:
        raise ValueError(f"border is {border!r}, and a texel has at most 4 channels")
    for i, color in enumerate(colors):
        reading.borderColor[<int>i] = color
    reading.mipmapLevelBias = bias
    number = integer(anisotropy, "anisotropy")
    if not 1 <= number <= 16:
        raise ValueError(f"anisotropy is {number}, and must be from 1 to 16")
    reading.maxAnisotropy = number if number > 1 else 0
    return 0


cdef object _one_of(dict names, object given, str what):
    if not isinstance(given, str) or given not in names:
        raise ValueError(f"{what} is {given!r}, and must be one of"
                         f" {', '.join(map(repr, names))}")
    return names[given]


cdef int _check_values(
    CUDA_TEXTURE_DESC *reading, object dtype, bint as_float, Region region
) except -1:
    """Check how the values of texels are read."""
    cdef bint integers = dtype.kind != "f"
    if as_float and integers and dtype.itemsize > 2:
        raise ValueError(f"{region.describe()} has integers of 32 bits, and the device reads those"
                         " of 8 and 16 bits as floats")
    if reading.flags & CU_TRSF_SRGB and not (as_float and dtype == np.dtype("u1")):
        raise ValueError("srgb is for unsigned 8-bit integers that are read as floats"
                         " (as_float=True)")
    if integers and not as_float:
        reading.flags |= CU_TRSF_READ_AS_INTEGER
        if reading.filterMode == CU_TR_FILTER_MODE_LINEAR \
                or reading.mipmapFilterMode == CU_TR_FILTER_MODE_LINEAR:
            raise ValueError(f"{region.describe()} has integers, and the device interpolates floats"
                             " only: pass as_float=True, or make the texture over floats")
    return 0


# ---- textures over arrays ----

cdef bint _fill_array(
    CUDA_RESOURCE_DESC *resource, CUDA_RESOURCE_VIEW_DESC *view, Texels texels
) except -1:
    """Describe what a texture reads of an array. Returns whether that is a view: some layers."""
    cdef Layout layout = texels.layout
    if texels.level < 0:
        resource_of_mipmaps(resource, <CUmipmappedArray><size_t>texels.memory.address)
        return False
    resource_of_array(resource, texels.raw)
    if _is_whole(texels):
        return False
    if not layout.layered or layout.flag(CUDA_ARRAY3D_CUBEMAP) or not _has_whole_layers(texels):
        raise ValueError(f"{texels.describe()} is a part, and a texture reads a whole level, or"
                         " whole layers of an array with layered=True")
    view_layers(view, <int>VIEWS[layout.dtype.str[1:]] + layout.channels // 2, texels.extents[0],
                texels.extents[1] if layout.raw.Height else 0, layout.raw.Depth, 1,
                texels.origin[2], texels.extents[2])
    return True


cdef bint _is_whole(Texels texels) noexcept:
    """Whether texels are all of their level."""
    return _has_whole_layers(texels) and texels.origin[2] == 0 \
        and texels.extents[2] == _extent(texels, 2)


cdef bint _has_whole_layers(Texels texels) noexcept:
    return texels.origin[0] == 0 and texels.origin[1] == 0 and texels.extents[2] > 0 \
        and texels.extents[0] == _extent(texels, 0) and texels.extents[1] == _extent(texels, 1)


cdef size_t _extent(Texels texels, int axis) noexcept:
    """Return how many texels the level has along an axis."""
    cdef Layout layout = texels.layout
    cdef size_t extent = layout.raw.Width if axis == 0 else layout.raw.Height if axis == 1 \
        else layout.raw.Depth
    if axis < 2 or not layout.layered:
        extent >>= texels.level
    return max(extent, <size_t>1)


cdef int _check_array(Texels texels, CUDA_TEXTURE_DESC *reading, object levels) except -1:
    cdef Layout layout = texels.layout
    cdef int last = layout.levels - 1 if texels.level < 0 else 0
    if last and not reading.flags & CU_TRSF_NORMALIZED_COORDINATES:
        raise ValueError(f"{texels.describe()} has {layout.levels} levels, which the device reads"
                         " by normalized coordinates only: pass normalized=True, or one level:"
                         " array.level(0)")
    if reading.flags & CU_TRSF_SEAMLESS_CUBEMAP and not layout.flag(CUDA_ARRAY3D_CUBEMAP):
        raise ValueError(f"seamless is for cubemaps, and {texels.describe()} is none")
    if levels is None:
        levels = 0, last
    least, most = levels
    if not 0 <= least <= most <= last:
        raise ValueError(f"levels is {levels}, and must be two numbers from 0 to {last}, the"
                         " smaller one first")
    reading.minMipmapLevelClamp, reading.maxMipmapLevelClamp = least, most
    return 0


# ---- textures over buffers ----

cdef int _fill_buffer(
    CUDA_RESOURCE_DESC *resource, CUDA_TEXTURE_DESC *reading, Region region, object channels
) except -1:
    """Describe a texture over a buffer. Raises ValueError if the device cannot read it so."""
    cdef int number = checked_channels(channels)
    cdef tuple shape = region.shape
    cdef tuple strides = region.strides
    cdef CUarray_format format = format_of(region.dtype)
    if number > 1:
        if not shape or shape[len(shape) - 1] != number \
                or strides[len(strides) - 1] != region.itemsize:
            raise ValueError(f"{region.describe()} has shape {shape}; with channels={number}, its"
                             f" last dimension has size {number} and no gaps")
        shape = shape[:-1]
        strides = strides[:-1]
    if region.count == 0:
        raise ValueError(f"{region.describe()} is empty, and a texture has at least one texel")
    if len(shape) not in (1, 2):
        raise ValueError(f"{region.describe()} has {len(shape)} dimensions of texels, and a texture"
                         " over a buffer has 1 or 2; copy it to an Array for more")
    _check_start(region)
    if len(shape) == 1:
        refuse_box(region, "a texture of one dimension")
        _check_fetch(reading, region)
        _check_row(region, format, number, shape[0])
        resource_of_row(resource, pointer_of(region), format, number, region.nbytes)
    else:
        _check_rows(region, number, shape, strides)
        resource_of_rows(resource, pointer_of(region), format, number, shape[1], shape[0],
                         strides[0])
    return 0


cdef int _check_start(Region region) except -1:
    multiple = region.memory.context.device.attribute_value(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT)
    if pointer_of(region) % <CUdeviceptr>multiple:
        raise ValueError(f"{region.describe()} starts at address {pointer_of(region):#x}, and a"
                         f" texture at a multiple of {multiple} bytes (TEXTURE_ALIGNMENT); read the"
                         " whole buffer, or copy this part to a buffer of its own")
    return 0


cdef int _check_fetch(CUDA_TEXTURE_DESC *reading, Region region) except -1:
    if reading.filterMode != CU_TR_FILTER_MODE_POINT \
            or reading.flags & CU_TRSF_NORMALIZED_COORDINATES \
            or reading.addressMode[0] != CU_TR_ADDRESS_MODE_CLAMP:
        raise ValueError(f"{region.describe()} has one dimension, and is read by the numbers of its"
                         " texels, without filter, normalized or address; copy it to an Array for"
                         " these")
    return 0


cdef int _check_row(
    Region region, CUarray_format format, int channels, object width
) except -1:
    cdef Context context = region.memory.context
    cdef size_t most = 0
    cdef CUresult status
    with nogil:
        status = in_cuDeviceGetTexture1DLinearMaxWidth(
            context.raw, &most, format, channels, context.device.raw)
    context.check(status)
    if width > most:
        raise ValueError(f"{region.describe()} has {width} texels, and a texture of"
                         f" {context.device!r} over a buffer with one dimension has at most {most}")
    return 0


cdef int _check_rows(Region region, int channels, tuple shape, tuple strides) except -1:
    cdef Device device = region.memory.context.device
    texel = channels * region.itemsize
    multiple = device.attribute_value(CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT)
    if shape[1] > 1 and strides[1] != texel:
        raise ValueError(f"{region.describe()} has strides {region.strides} (bytes), and the rows"
                         " of a texture have no gaps between their texels")
    if strides[0] % multiple:
        raise ValueError(f"the rows of {region.describe()} are {strides[0]} bytes apart, and those"
                         f" of a texture a multiple of {multiple} (TEXTURE_PITCH_ALIGNMENT):"
                         " allocate it with DeviceBuffer.pitched(shape, dtype)")
    for what, size, attribute in (
            ("texels in a row", shape[1], CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH),
            ("rows", shape[0], CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT),
            ("bytes from a row to the next one", strides[0],
             CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH)):
        most = device.attribute_value(attribute)
        if size > most:
            raise ValueError(f"{region.describe()} has {size} {what}, and a texture of {device!r}"
                             f" over a buffer has at most {most}")
    return 0


# ---- surfaces ----

@cython.final
cdef class Surface(Handle):
    """Surface(array, *, name=None)\n--\n
    An array that kernels write and read without filters: an argument of a launch.

    A launch gets its 64-bit handle, and borrows the array for writing. The array stays alive as
    long as the surface. Does not block.

    Parameters
    ----------
    array : Array
        A whole array that was made with ``surface=True``, or one of its levels.
    name : str, optional
        Shown in messages.

    Raises
    ------
    TypeError, ValueError
        There are no surfaces over such an object.
    BufferClosedError
        The array is closed.
    CudaError
        A driver call failed.

    Driver function: cuSurfObjectCreate.
    """

    def __init__(self, array, *, name=None):
        cdef CUDA_RESOURCE_DESC resource
        cdef CUsurfObject handle = 0
        cdef Texels texels = _writable(array)
        cdef Context context = texels.memory.context
        cdef own_export open
        cdef CUresult status
        if self.object is not None:
            raise TypeError(f"{self.object.describe()} is initialized already")
        memset(&resource, 0, sizeof(resource))
        resource_of_array(&resource, texels.raw)
        made = _object_region(SURFACE, context, name, texels)
        drain_for_more()
        keep_open(texels, &open)    # no other thread may close the array during the call
        with nogil:
            status = in_cuSurfObjectCreate(context.raw, &handle, &resource)
        own_export_close(engine, &open)
        _check_made(context, status, texels)
        made.memory.address = handle
        self.region, self.source, self.mode, self.object = texels, array, OWN_WRITE, made


cdef Texels _writable(object array):
    """Return the texels of an array for a surface. Raises if there are no such surfaces."""
    cdef Texels texels
    if type(array) is not Array:
        raise TypeError(f"a surface is over an Array, not {type(array).__name__}; kernels write a"
                        " buffer by its address")
    texels = _readable(array)
    if not texels.layout.flag(CUDA_ARRAY3D_SURFACE_LDST):
        raise ValueError(f"{texels.describe()} was made without surface=True")
    if texels.level < 0:
        raise ValueError(f"{texels.describe()} has {texels.layout.levels} levels, and a surface one"
                         " of them: array.level(0)")
    if not _is_whole(texels):
        raise ValueError(f"{texels.describe()} is a part, and a surface covers a whole level")
    return texels
