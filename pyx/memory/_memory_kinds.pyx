"""Memory kinds: a table with one row a kind, which has everything in which kinds differ.

Other modules ask the row: `memory.kind.ordered`, `memory.kind.free(...)`. They do not compare a
memory's kind with a particular kind, so a new kind is a row here, and a file for what no other kind
does. `tests/architecture/test_kinds.py` counts the comparisons that are left.
"""

from cpython.ref cimport PyObject

from cudadrv._driver cimport (
    CU_MEMHOSTREGISTER_DEVICEMAP, CU_MEMHOSTREGISTER_PORTABLE, CU_MEM_ATTACH_GLOBAL, CUarray,
    CUcontext, CUdeviceptr, CUevent, CUgraph, CUgraphExec, CUmipmappedArray, CUmodule, CUresult,
    CUstream, cudadrv_table, in_cuArrayDestroy, in_cuEventDestroy, in_cuGraphDestroy,
    in_cuGraphExecDestroy, in_cuIpcCloseMemHandle, in_cuMemAlloc, in_cuMemAllocManaged,
    in_cuMemFree, in_cuMemFreeAsync, in_cuMemFreeHost, in_cuMemHostAlloc, in_cuMemHostRegister,
    in_cuMemHostUnregister, in_cuMipmappedArrayDestroy, in_cuModuleUnload, in_cuSurfObjectDestroy,
    in_cuTexObjectDestroy, unlikely,
)
from cudadrv._guard cimport OWN_PAGES, forget_pages, guards, whole_pages
from cudadrv._virtual cimport Span, drop_span, free_span


# ---- how memory is made ----

cdef CUresult _make_device(
    CUcontext context, CUdeviceptr *address, size_t nbytes, unsigned int flags
) noexcept nogil:
    return in_cuMemAlloc(context, address, nbytes)


cdef CUresult _make_locked(
    CUcontext context, CUdeviceptr *address, size_t nbytes, unsigned int flags
) noexcept nogil:
    # The software driver gives each allocation pages of its own.
    if unlikely(flags & OWN_PAGES) and cudadrv_table.map_twice is NULL:
        nbytes = whole_pages(nbytes)
    return in_cuMemHostAlloc(context, <void **>address, nbytes, flags & ~OWN_PAGES)


cdef CUresult _make_managed(
    CUcontext context, CUdeviceptr *address, size_t nbytes, unsigned int flags
) noexcept nogil:
    return in_cuMemAllocManaged(context, address, nbytes, CU_MEM_ATTACH_GLOBAL)


cdef CUresult _make_registered(
    CUcontext context, CUdeviceptr *address, size_t nbytes, unsigned int flags
) noexcept nogil:
    return in_cuMemHostRegister(context, <void *>address[0], nbytes,
                                CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | flags)


# ---- how memory is freed ----

cdef CUresult _free_device(
    CUcontext context, CUdeviceptr address, CUstream stream
) noexcept nogil:
    if unlikely(guards()):
        forget_pages(address)   # of managed memory
    return in_cuMemFree(context, address)


cdef CUresult _free_ordered(
    CUcontext context, CUdeviceptr address, CUstream stream
) noexcept nogil:
    return in_cuMemFreeAsync(context, address, stream)


cdef CUresult _free_locked(
    CUcontext context, CUdeviceptr address, CUstream stream
) noexcept nogil:
    if unlikely(guards()):
        forget_pages(address)
    return in_cuMemFreeHost(context, <void *>address)


cdef CUresult _free_growing(
    CUcontext context, CUdeviceptr address, CUstream stream
) noexcept nogil:
    return free_span(<Span *>address, True)


cdef void _drop_growing(CUdeviceptr address) noexcept nogil:
    drop_span(<Span *>address)


cdef CUdeviceptr _first_byte_of_growing(CUdeviceptr address) noexcept nogil:
    return (<Span *>address).address


cdef CUresult _unregister(CUcontext context, CUdeviceptr address, CUstream stream) noexcept nogil:
    if unlikely(guards()):
        forget_pages(address)
    return in_cuMemHostUnregister(context, <void *>address)


cdef CUresult _close_opened(
    CUcontext context, CUdeviceptr address, CUstream stream
) noexcept nogil:
    return in_cuIpcCloseMemHandle(context, address)


cdef CUresult _unload(CUcontext context, CUdeviceptr address, CUstream stream) noexcept nogil:
    return in_cuModuleUnload(context, <CUmodule><size_t>address)


cdef CUresult _destroy_executable(
    CUcontext context, CUdeviceptr address, CUstream stream
) noexcept nogil:
    return in_cuGraphExecDestroy(context, <CUgraphExec><size_t>address)


cdef CUresult _destroy_graph(
    CUcontext context, CUdeviceptr address, CUstream stream
) noexcept nogil:
    return in_cuGraphDestroy(context, <CUgraph><size_t>address)


cdef CUresult _destroy_event(
    CUcontext context, CUdeviceptr address, CUstream stream
) noexcept nogil:
    return in_cuEventDestroy(context, <CUevent><size_t>address)


cdef CUresult _destroy_array(
    CUcontext context, CUdeviceptr address, CUstream stream
) noexcept nogil:
    return in_cuArrayDestroy(context, <CUarray><size_t>address)


cdef CUresult _destroy_mipmaps(
    CUcontext context, CUdeviceptr address, CUstream stream
) noexcept nogil:
    return in_cuMipmappedArrayDestroy(context, <CUmipmappedArray><size_t>address)


cdef CUresult _destroy_texture(
    CUcontext context, CUdeviceptr address, CUstream stream
) noexcept nogil:
    return in_cuTexObjectDestroy(context, address)


cdef CUresult _destroy_surface(
    CUcontext context, CUdeviceptr address, CUstream stream
) noexcept nogil:
    return in_cuSurfObjectDestroy(context, address)


# ---- the table ----
#
# Fields that a row does not set are false or NULL.

cdef enum:
    DEVICE_POOL     # the numbers of the pools
    LOCKED_POOL
    UNIFIED_POOL

cdef enum:
    kDLCUDA = 2     # of DLPack's DLDeviceType
    kDLCUDAHost = 3
    kDLCUDAManaged = 13

cdef KindRow device, ordered, locked, unified, growing, foreign, shared, registered, in_place
cdef KindRow opened, array, mipmaps, code, executable, graph, event, texture, surface

DEVICE = &device
device.name = device.word = device.phrase = <PyObject *>"device"
device.buffer = <PyObject *>"DeviceBuffer"
device.in_nodes = <PyObject *>"device or managed"
device.pool = DEVICE_POOL
device.on_stream = &ordered
device.make = _make_device
device.free = _free_device
device.dlpack = kDLCUDA

STREAM_ORDERED = &ordered
ordered.name = ordered.in_nodes = <PyObject *>"stream-ordered"
ordered.pool = DEVICE_POOL
ordered.ordered = True
ordered.free = _free_ordered
ordered.not_shared = <PyObject *>(
    "is stream-ordered memory, for which the driver has no handles. Allocate it without stream=,"
    " outside of `with stream:` blocks and without a DriverPool")

LOCKED = &locked
locked.name = locked.in_nodes = <PyObject *>"page-locked"
locked.word = <PyObject *>"locked"
locked.phrase = <PyObject *>"page-locked host"
locked.buffer = <PyObject *>"LockedBuffer"
locked.host_access = locked.page_locked = True
locked.pool = LOCKED_POOL
locked.on_stream = &locked
locked.make = _make_locked
locked.free = _free_locked
locked.dlpack = kDLCUDAHost
locked.not_shared = <PyObject *>(
    "is page-locked memory that only this process can map. Make it with LockedBuffer(...,"
    " shareable=True)")

REGISTERED = &registered
registered.name = <PyObject *>"registered"
registered.buffer = <PyObject *>"LockedBuffer"
registered.in_nodes = <PyObject *>"page-locked"
registered.host_access = registered.page_locked = True
registered.on_stream = &registered
registered.make = _make_registered
registered.free = _unregister
registered.mappable = True

IN_PLACE = &in_place
in_place.name = <PyObject *>"registered"
in_place.buffer = <PyObject *>"LockedBuffer"
in_place.in_nodes = <PyObject *>"page-locked"
in_place.host_access = in_place.page_locked = True
in_place.on_stream = &in_place
in_place.make = _make_registered
in_place.free = _unregister
in_place.not_given = <PyObject *>(
    "is page-locked in the memory of its owner (from_memory), so it has no memory to give away")
in_place.not_shared = <PyObject *>(
    "is page-locked in the memory of its owner (from_memory), which only this process can map. Copy"
    " it to LockedBuffer(..., shareable=True), and share that")

UNIFIED = &unified
unified.name = unified.phrase = <PyObject *>"managed"
unified.word = <PyObject *>"unified"
unified.buffer = <PyObject *>"UnifiedBuffer"
unified.in_nodes = <PyObject *>"device or managed"
unified.host_access = unified.managed = True
unified.pool = UNIFIED_POOL
unified.on_stream = &unified
unified.make = _make_managed
unified.free = _free_device
unified.dlpack = kDLCUDAManaged
unified.not_shared = <PyObject *>(
    "is managed memory, which the driver shares with no other process. Copy it to a DeviceBuffer,"
    " or to a LockedBuffer(..., shareable=True), and share that")

GROWING = &growing
growing.name = <PyObject *>"growing"
growing.in_nodes = <PyObject *>"device or managed"
growing.several_devices = True
growing.free = _free_growing
growing.drop = _drop_growing
growing.first_byte = _first_byte_of_growing
growing.not_given = <PyObject *>(
    "has memory that grows, which it cannot give away: only cudadrv knows how to unmap it")
growing.not_shared = <PyObject *>(
    "is memory that grows, for which cudadrv has no handles. Copy it to a DeviceBuffer without"
    " capacity=, and share that")

FOREIGN = &foreign
foreign.name = foreign.in_nodes = <PyObject *>"foreign"
foreign.borrowed = foreign.never_blocks = True
foreign.not_given = <PyObject *>(
    "only borrows its memory (from_address), so it cannot give it away; its owner can")
foreign.not_shared = <PyObject *>(
    "is memory of another library or process, which only its owner can share. Copy it to a"
    " DeviceBuffer of your own")

SHARED = &shared
shared.name = <PyObject *>"device"
shared.in_nodes = <PyObject *>"device or managed"
shared.free = _free_device
shared.shared = True

OPENED = &opened
opened.name = <PyObject *>"device"
opened.free = _close_opened

ARRAY = &array
array.name = <PyObject *>"array"
array.buffer = <PyObject *>"Array"
array.opaque = True
array.free = _destroy_array

MIPMAPS = &mipmaps
mipmaps.name = <PyObject *>"array"
mipmaps.buffer = <PyObject *>"Array"
mipmaps.opaque = True
mipmaps.free = _destroy_mipmaps

CODE = &code
code.name = <PyObject *>"code"
code.opaque = True
code.free = _unload

EXECUTABLE = &executable
executable.name = <PyObject *>"executable"
executable.opaque = True
executable.free = _destroy_executable

GRAPH = &graph
graph.name = <PyObject *>"graph"
graph.opaque = graph.never_blocks = True
graph.free = _destroy_graph

EVENT = &event
event.name = <PyObject *>"event"
event.opaque = event.never_blocks = True
event.free = _destroy_event

TEXTURE = &texture
texture.name = <PyObject *>"texture"
texture.buffer = <PyObject *>"Texture"
texture.opaque = texture.later = True
texture.free = _destroy_texture

SURFACE = &surface
surface.name = <PyObject *>"surface"
surface.buffer = <PyObject *>"Surface"
surface.opaque = surface.later = True
surface.free = _destroy_surface


# ---- looking kinds up ----

cdef MemoryKind[POOLS] named    # the kinds of which programs make buffers, by their pools
named[DEVICE_POOL], named[LOCKED_POOL], named[UNIFIED_POOL] = DEVICE, LOCKED, UNIFIED


cdef MemoryKind kind_called(str word) except? NULL:
    """Return the kind that programs call by this word, or NULL."""
    cdef int i
    for i in range(POOLS):
        if <str>named[i].word == word:
            return named[i]
    return NULL


cdef MemoryKind kind_of_dlpack(object device_type) except? NULL:
    """Return the kind that DLPack describes by this type of device, or NULL."""
    cdef int i
    for i in range(POOLS):
        if named[i].dlpack == device_type:
            return named[i]
    return NULL
