"""Shape: how many blocks of how many threads, and what the device allows."""

import operator

cimport cython
from cpython.long cimport PyLong_AsLongLong, PyLong_AsLongLongAndOverflow, PyLong_CheckExact

from cudadrv._device cimport Device
from cudadrv._driver cimport (
    CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH,
    CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y,
    CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X,
    CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
)
from cudadrv._likely cimport likely, unlikely

cdef dict _known = {}   # Limits by ordinal


@cython.final
cdef class Limits:
    """What a device allows: internal to kernels."""


cdef Limits limits_of(Device device):
    """Asked once for each device."""
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
    """Check what is asked for against the device; what the kernel allows is left to the caller."""
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
        for i in range(3):
            if shape.grid[i] % shape.cluster[i]:
                raise ValueError(f"grid is {dimensions(shape.grid)}, which cannot be cut into"
                                 f" clusters of {dimensions(shape.cluster)} blocks")
    return 0


cdef int _fill_dimensions(
    unsigned int *sizes, unsigned int *most, Device device, str name, object given
) except -1:
    """One to three numbers; those left out are 1."""
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


cdef unsigned long long threads_of(Shape *shape) noexcept:
    """Threads of a block."""
    return <unsigned long long>shape.block[0] * shape.block[1] * shape.block[2]


cdef str dimensions(const unsigned int *sizes):
    return f"({sizes[0]}, {sizes[1]}, {sizes[2]})"
