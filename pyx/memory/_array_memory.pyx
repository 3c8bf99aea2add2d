"""The memory of arrays: memory whose layout only the driver knows, made for textures and surfaces.

To the engine, an array is the bytes that its texels would have in C order: one level after the
other, in each level one layer after the other. So the parts of arrays are borrowed as those of
buffers are.
"""

import numpy as np

cimport cython

from cudadrv._box cimport Part, part_at, ranges_within, steps_of, told, whole_ranges
from cudadrv._device cimport Context
from cudadrv._driver cimport (
    CUDA_ARRAY3D_CUBEMAP, CUDA_ARRAY3D_LAYERED, CUDA_ARRAY3D_SURFACE_LDST,
    CUDA_ARRAY3D_TEXTURE_GATHER, CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS, CU_AD_FORMAT_FLOAT,
    CU_AD_FORMAT_HALF, CU_AD_FORMAT_SIGNED_INT16, CU_AD_FORMAT_SIGNED_INT32,
    CU_AD_FORMAT_SIGNED_INT8, CU_AD_FORMAT_UNSIGNED_INT16, CU_AD_FORMAT_UNSIGNED_INT32,
    CU_AD_FORMAT_UNSIGNED_INT8, CUarray, CUarray_format, CUmipmappedArray, CUresult,
    cudadrv_table, has_answered, in_cuArray3DCreate, in_cuMipmappedArrayCreate,
    in_cuMipmappedArrayDestroy, in_cuMipmappedArrayGetLevel, last_failure,
)
from cudadrv._memory cimport Memory, list_memory, new_state, obtain
from cudadrv._memory_kinds cimport ARRAY, MIPMAPS
from cudadrv._region cimport checked_label, dtype_name, fill_in, shape_as
from cudadrv._release cimport drain_for_more
from cudadrv._site cimport here

from cudadrv._errors import CudaError, integer

# ---- what an array is made of ----

cdef dict FORMATS = {
    "u1": <int>CU_AD_FORMAT_UNSIGNED_INT8, "u2": <int>CU_AD_FORMAT_UNSIGNED_INT16,
    "u4": <int>CU_AD_FORMAT_UNSIGNED_INT32, "i1": <int>CU_AD_FORMAT_SIGNED_INT8,
    "i2": <int>CU_AD_FORMAT_SIGNED_INT16, "i4": <int>CU_AD_FORMAT_SIGNED_INT32,
    "f2": <int>CU_AD_FORMAT_HALF, "f4": <int>CU_AD_FORMAT_FLOAT,
}


cdef CUarray_format format_of(object dtype) except *:
    """Return the driver's format of a channel. Raises TypeError for other dtypes."""
    found = FORMATS.get(dtype.str[1:]) if dtype.isnative else None
    if found is None:
        raise TypeError(f"texels cannot have channels of dtype {dtype}, only of 8-, 16- and 32-bit"
                        " integers and of 16- and 32-bit floats, in the byte order of this machine."
                        " Kernels can put wider values together: view them as 2 channels of uint32")
    return <CUarray_format><int>found


cdef int checked_channels(object channels) except -1:
    number = integer(channels, "channels")
    if number not in (1, 2, 4):
        raise ValueError(f"channels is {number}, and a texel has 1, 2 or 4"
                         + ("; use 4, and leave one unused" if number == 3 else ""))
    return number


@cython.final
cdef class Layout:
    """What an array is made of: its extents, format and levels."""

    cdef bint flag(self, unsigned int flag) noexcept:
        return self.raw.Flags & flag != 0

    cdef tuple sizes_of(self, int level):
        """Return the shape of a level, in texels."""
        cdef list sizes = []
        if self.raw.Depth:
            depth = self.raw.Depth if self.layered else self.raw.Depth >> level
            sizes.append(max(depth, <size_t>1))
        if self.raw.Height:
            sizes.append(max(self.raw.Height >> level, <size_t>1))
        sizes.append(max(self.raw.Width >> level, <size_t>1))
        return tuple(sizes)


cdef Layout new_layout(
    object shape, object dtype, object channels, bint layered, bint cubemap, object mipmaps,
    bint surface, bint gather
):
    """Check the arguments of `Array`. Raises TypeError or ValueError."""
    cdef Layout layout = Layout.__new__(Layout)
    cdef tuple sizes = _checked_sizes(shape, layered, cubemap)
    layout.dtype = np.dtype(dtype)
    layout.raw.Format = format_of(layout.dtype)
    layout.channels = layout.raw.NumChannels = checked_channels(channels)
    layout.texel = layout.dtype.itemsize * layout.channels
    layout.layered = layered or cubemap
    layout.raw.Width = sizes[len(sizes) - 1]
    layout.raw.Height = sizes[len(sizes) - 2] if len(sizes) - layout.layered > 1 else 0
    layout.raw.Depth = sizes[0] if len(sizes) == 3 or layout.layered else 0
    layout.raw.Flags = (CUDA_ARRAY3D_LAYERED if layered else 0) \
        | (CUDA_ARRAY3D_CUBEMAP if cubemap else 0) \
        | (CUDA_ARRAY3D_SURFACE_LDST if surface else 0) \
        | (CUDA_ARRAY3D_TEXTURE_GATHER if gather else 0)
    if gather and (layout.layered or len(sizes) != 2):
        raise ValueError(f"gather=True is for arrays with two dimensions and no layers, and the"
                         f" shape is {sizes}")
    layout.levels = _checked_levels(layout, sizes, mipmaps)
    _find_offsets(layout)
    return layout


cdef tuple _checked_sizes(object shape, bint layered, bint cubemap):
    cdef list sizes = []
    for size in shape if isinstance(shape, (tuple, list)) else (shape,):
        size = integer(size, "a size")
        if size < 1:
            raise ValueError(f"shape is {shape}, and an array has at least 1 texel in each"
                             " direction")
        sizes.append(size)
    if cubemap:
        if len(sizes) != 3 or sizes[1] != sizes[2] or sizes[0] % 6 or not (
                layered or sizes[0] == 6):
            raise ValueError(f"shape is {tuple(sizes)}, and a cubemap has the shape (6, n, n): six"
                             " square faces. With layered=True, (6 * cubes, n, n)")
    elif layered and len(sizes) not in (2, 3):
        raise ValueError(f"shape is {tuple(sizes)}, and with layered=True it is (layers, width) or"
                         " (layers, height, width)")
    elif not 1 <= len(sizes) <= 3:
        raise ValueError(f"shape is {tuple(sizes)}, and an array has from 1 to 3 dimensions:"
                         " (width,), (height, width) or (depth, height, width)")
    return tuple(sizes)


cdef int _checked_levels(Layout layout, tuple sizes, object mipmaps) except -1:
    levels = integer(mipmaps, "mipmaps")
    largest = max(sizes[1:] if layout.layered else sizes)
    most = int(largest).bit_length()
    if not 1 <= levels <= most:
        raise ValueError(f"mipmaps is {levels}, and an array of shape {sizes} has from 1 to {most}"
                         " levels, each half as large as the one before")
    return min(levels, MOST_LEVELS)     # the driver refuses extents that have more


cdef int _find_offsets(Layout layout) except -1:
    cdef int level
    nbytes = 0
    for level in range(layout.levels):
        layout.offsets[level] = nbytes
        texels = layout.texel
        for size in layout.sizes_of(level):
            texels = texels * size
        nbytes += texels
        if nbytes >= 1 << 63:
            raise ValueError(f"no memory holds an array of shape {layout.sizes_of(0)}")
    layout.offsets[layout.levels] = nbytes
    return 0


# ---- what the device takes ----

# The attributes of a device that limit the extents of an array, from width to depth. Of several
# rows, the array has to be within one.
cdef dict LIMITS = {
    "of one dimension": [(21,)],
    "of two dimensions": [(22, 23)],
    "of three dimensions": [(24, 25, 26), (47, 48, 49)],
    "of layers with one dimension": [(42, None, 43)],
    "of layers with two dimensions": [(27, 28, 29)],
    "that is a cubemap": [(52, 52, None)],
    "of cubemaps": [(53, 53, 54)],
    "of one dimension with mipmaps": [(77,)],
    "of two dimensions with mipmaps": [(73, 74)],
    "for gathers": [(45, 46)],
}
cdef dict SURFACE_LIMITS = {
    "of one dimension": [(55,)],
    "of two dimensions": [(56, 57)],
    "of three dimensions": [(58, 59, 60)],
    "of layers with one dimension": [(61, None, 62)],
    "of layers with two dimensions": [(63, 64, 65)],
    "that is a cubemap": [(66, 66, None)],
    "of cubemaps": [(67, 67, 68)],
}


cdef str _kind_of(Layout layout):
    if layout.flag(CUDA_ARRAY3D_CUBEMAP):
        return "of cubemaps" if layout.flag(CUDA_ARRAY3D_LAYERED) else "that is a cubemap"
    dimensions = "two" if layout.raw.Height else "one"
    if layout.layered:
        return f"of layers with {dimensions} dimension{'s' if layout.raw.Height else ''}"
    if layout.raw.Depth:
        return "of three dimensions"
    return f"of {dimensions} dimension{'s' if layout.raw.Height else ''}"


cdef int _check_limits(Layout layout, Context context) except -1:
    cdef str kind = _kind_of(layout)
    _check_extents(layout, context, kind, LIMITS[kind])
    if layout.levels > 1 and f"{kind} with mipmaps" in LIMITS:
        _check_extents(layout, context, f"{kind} with mipmaps", LIMITS[f"{kind} with mipmaps"])
    if layout.flag(CUDA_ARRAY3D_TEXTURE_GATHER):
        _check_extents(layout, context, "for gathers", LIMITS["for gathers"])
    if layout.flag(CUDA_ARRAY3D_SURFACE_LDST):
        _check_extents(layout, context, f"{kind} for surfaces", SURFACE_LIMITS[kind])
    return 0


cdef int _check_extents(Layout layout, Context context, str kind, list rows) except -1:
    """Raise ValueError if the extents exceed all rows of limits."""
    cdef list reasons = []
    extents = layout.raw.Width, layout.raw.Height, layout.raw.Depth
    for row in rows:
        reason = None
        for word, extent, number in zip(("width", "height", "depth"), extents, row):
            most = None if number is None else context.device.attribute_value(number)
            if most is not None and extent > <size_t>most and reason is None:
                if word == "depth" and layout.layered:
                    word = "number of layers"
                reason = f"the {word} is {extent}, and {context.device!r} takes at most {most}"
        if reason is None:
            return 0
        reasons.append(reason)
    raise ValueError(f"an array {kind} cannot have the shape {layout.sizes_of(0)}: {reasons[0]}")


# ---- allocating ----

cdef CUresult _create_call(Memory memory, size_t size) except *:
    cdef Layout layout = memory.owner
    cdef CUarray array = NULL
    cdef CUmipmappedArray mipmaps = NULL
    cdef CUresult status
    cdef const char *failed
    cdef int level
    with nogil:
        if layout.levels > 1:
            status = in_cuMipmappedArrayCreate(
                memory.context.raw, &mipmaps, &layout.raw, layout.levels)
        else:
            status = in_cuArray3DCreate(memory.context.raw, &array, &layout.raw)
        # Asked for now, because another thread may close the array later.
        if status == CUDA_SUCCESS and layout.levels > 1:
            for level in range(layout.levels):
                if status == CUDA_SUCCESS:
                    status = in_cuMipmappedArrayGetLevel(
                        memory.context.raw, &layout.arrays[level], mipmaps, level)
            if status != CUDA_SUCCESS:
                failed = last_failure()
                in_cuMipmappedArrayDestroy(memory.context.raw, mipmaps)
                cudadrv_table.note_failure(failed)
                return status
    if status == CUDA_SUCCESS:
        memory.address = <size_t>mipmaps if layout.levels > 1 else <size_t>array
    elif has_answered(status, CUDA_ERROR_INVALID_VALUE):
        raise CudaError(
            <int>status, last_failure().decode(),
            f"{memory.context.device!r} has no array {_kind_of(layout)} of shape"
            f" {layout.sizes_of(0)} with {layout.levels} levels and {layout.channels} channels of"
            f" {layout.dtype}")
    return status


cdef Texels allocate_array(Layout layout, Context context, object name):
    """Make an array. Returns its texels: all levels of it if there are several."""
    cdef Memory memory = Memory.__new__(Memory)
    cdef Texels texels = Texels.__new__(Texels)
    context.usable()
    _check_limits(layout, context)
    texels.layout = layout
    texels.kind = memory.kind = MIPMAPS if layout.levels > 1 else ARRAY
    label = checked_label(texels, name)
    memory.context = context
    memory.nbytes = layout.offsets[layout.levels]
    memory.label = label
    memory.site = here()
    memory.state = new_state(memory.nbytes)
    memory.owner = layout
    drain_for_more()
    obtain(memory, memory.nbytes, _create_call)
    list_memory(memory)
    if layout.levels == 1:
        texels.raw = <CUarray><size_t>memory.address
    _cover_level(texels, memory, name, 0)
    if layout.levels > 1:
        texels.level = -1
        texels.nbytes = memory.nbytes
    return texels


cdef int _cover_level(Texels texels, Memory memory, object name, int level) except -1:
    """Let new texels be those of a level."""
    cdef Layout layout = texels.layout
    cdef tuple sizes = layout.sizes_of(level)
    texel = layout.dtype if layout.channels == 1 else np.dtype((layout.dtype, (layout.channels,)))
    fill_in(texels, memory, (layout.offsets[level + 1] - layout.offsets[level]) // layout.texel,
            texel, layout.texel, name)
    texels.level, texels.start = level, layout.offsets[level]
    shape_as(texels, sizes, steps_of(sizes, layout.texel))
    texels.axes = (2, 0) if len(sizes) == 2 and layout.layered else (2, 1, 0)[3 - len(sizes):]
    texels.extents[0] = texels.extents[1] = texels.extents[2] = 1
    for axis, size in zip(texels.axes, sizes):
        texels.extents[<int>axis] = size
    return 0


@cython.final
cdef class Texels(Region):
    """A part of an array: some texels of a level, or all levels. Internal to `Array`."""

    cdef Texels at_level(self, int level):
        """Return the texels of a level of a mipmapped array, for the texels of all levels."""
        cdef Texels part = Texels.__new__(Texels)
        part.layout, part.raw = self.layout, self.layout.arrays[level]
        part.kind, part.policy = self.kind, self.policy
        part.part = True
        _cover_level(part, self.memory, self.name, level)
        return part

    cdef Region indexed(self, object key):
        """Return the part that an index names, with the meaning of NumPy."""
        cdef Texels part
        cdef Part found
        cdef Py_ssize_t count = 1
        cdef list axes = []
        self.usable()
        found = part_at(self.shape, self.strides, key)
        for size in found.sizes:
            count *= size
        part = self.part_over(self.start + found.offset, count, self.dtype)
        shape_as(part, found.sizes, found.steps)
        part.layout, part.raw, part.kind = self.layout, self.raw, self.kind
        part.level = self.level
        part.origin, part.extents = self.origin, self.extents
        for axis, each in zip(self.axes, found.ranges):
            if isinstance(each, tuple):
                axes.append(axis)
            else:
                each = each, each + 1
            part.origin[<int>axis] += each[0]
            part.extents[<int>axis] = each[1] - each[0]
        part.axes = tuple(axes)
        part.ranges = found.ranges if self.ranges is None \
            else ranges_within(self.ranges, found.ranges)
        return part

    cdef tuple item_shape(self):
        """Return the shape of NumPy arrays of these texels: the channels are its last size."""
        cdef Layout layout = self.layout
        return self.shape if layout.channels == 1 else self.shape + (layout.channels,)

    cdef str describe(self):
        """Return the text in messages: ``Array 'volume'.level(1)[0:8, 0:8] (4 x float32)``."""
        cdef Layout layout = self.layout
        name = f" {self.name!r}" if self.name is not None else ""
        level = f".level({self.level})" if layout.levels > 1 and self.level >= 0 else ""
        ranges = whole_ranges(self.shape) if self.ranges is None else self.ranges
        channels = f"{layout.channels} x " if layout.channels > 1 else ""
        return f"Array{name}{level}{told(ranges)} ({channels}{dtype_name(layout.dtype)})"
