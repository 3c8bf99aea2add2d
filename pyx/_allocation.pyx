"""Allocation: memory for a new buffer, out of a pool or from the driver."""

from libc.stdlib cimport free

from cudadrv._cache cimport Block, Cache, cache_of, is_cached, trim_caches
from cudadrv._context cimport Context, enter_context, leave_context
from cudadrv._driver cimport (
    CU_MEM_ATTACH_GLOBAL, CU_MEMHOSTALLOC_WRITECOMBINED, CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS,
    CUdeviceptr, CUresult, bind_driver, cudadrv_table, cuMemAlloc, cuMemAllocManaged,
    cuMemHostAlloc, last_failure,
)
from cudadrv._memory cimport Memory, list_memory, new_state, owner_of
from cudadrv._ownership cimport OWN_NON_BLOCKING, own_memory, own_memory_clear, own_memory_renew
from cudadrv._release cimport (
    DEVICE, FOREIGN, LOCKED, STREAM_ORDERED, UNIFIED, MemoryKind, drain, drain_for_more,
    is_to_be_freed,
)
from cudadrv._site cimport here, place
from cudadrv._stream cimport Stream
from cudadrv._stream_ordered cimport StreamOrdered, allocate_on

from cudadrv._errors import CudaOutOfMemoryError
from cudadrv._memory import memory_report

bind_driver(&cudadrv_table)


cdef Memory allocate_memory(
    MemoryKind kind, Context context, size_t nbytes, unsigned int flags, Stream stream, str label,
    bint pooled
):
    """Memory that nobody uses: a pool's, else the driver's. Without bytes, neither is asked."""
    cdef Memory memory = Memory.__new__(Memory)
    context.usable()
    memory.context = context
    memory.kind = kind
    memory.nbytes = nbytes
    memory.stream = stream
    memory.label = label
    memory.site = here()
    if stream is not None and stream.order.order != OWN_NON_BLOCKING:
        pooled = False  # see _stream_ordered.pyx
    if nbytes == 0 or not pooled:
        _allocate(memory, flags, nbytes)
    elif not _reuse(memory, flags):
        _allocate_block(memory, flags)
    if nbytes:
        list_memory(memory)
    return memory


cdef inline unsigned int _shelf_of(MemoryKind kind, unsigned int flags) noexcept:
    """What else has to be the same for memory to be reused."""
    return kind == STREAM_ORDERED or flags & CU_MEMHOSTALLOC_WRITECOMBINED != 0


cdef bint _reuse(Memory memory, unsigned int flags) except -1:
    """Get a block whose uses are ordered before those of the memory, if there is one."""
    cdef Cache cache = cache_of(memory.context, memory.kind)
    cdef Block *block = cache.take(
        _shelf_of(memory.kind, flags), memory.nbytes,
        NULL if memory.stream is None else memory.stream.order)
    if block is NULL:
        return False
    if memory.stream is not None:
        _reuse_on(memory, block)
    else:
        own_memory_renew(block.state, memory.nbytes)
        memory.state = block.state
        memory.state.managed = memory.kind == UNIFIED
    memory.address = block.address
    memory.block = block
    return True


cdef int _reuse_on(Memory memory, Block *block) except -1:
    """Tell the engine that the block is a buffer's from here on in the work of its stream."""
    cdef StreamOrdered ordered
    cdef int reason = -1
    try:
        memory.state = new_state(memory.nbytes)
        ordered = StreamOrdered(block.address, memory.nbytes, memory.state, True, NULL)
        reason = allocate_on(&ordered, memory.stream, memory.label)
    finally:
        if reason != 0:  # meanwhile the block was in nobody's reach, and is as it was
            (<Cache>block.cache).put(block, memory.context)
    _drop_state(block.state)
    return 0


cdef int _allocate_block(Memory memory, unsigned int flags) except -1:
    cdef Cache cache = cache_of(memory.context, memory.kind)
    cdef unsigned int shelf = _shelf_of(memory.kind, flags)
    cdef size_t size = _allocate(memory, flags, cache.size_for(shelf, memory.nbytes))
    memory.block = cache.add(memory.kind, shelf, memory.address, size)
    return 0


cdef size_t _allocate(Memory memory, unsigned int flags, size_t size) except? 0:
    """Allocate, after giving back what has died: gives the size that the driver was asked for."""
    cdef CUresult status
    drain_for_more()
    memory.state = new_state(memory.nbytes)
    memory.state.managed = memory.kind == UNIFIED
    if size == 0:
        return 0
    status = _call(memory, flags, size)
    if status == CUDA_ERROR_OUT_OF_MEMORY:
        trim_caches()
        drain(True)
        size = memory.nbytes
        status = _call(memory, flags, size)
    if status == CUDA_ERROR_OUT_OF_MEMORY:
        raise CudaOutOfMemoryError(
            <int>status, last_failure().decode(),
            f"{size} bytes were asked for {memory.label}. {memory_report()}")
    memory.context.check(status)
    return size


cdef void _drop_state(own_memory *state) noexcept:
    own_memory_clear(state)
    free(state)


cdef CUresult _call(Memory memory, unsigned int flags, size_t size) except *:
    cdef CUresult status
    cdef StreamOrdered ordered
    cdef bint pushed = False
    if memory.kind == STREAM_ORDERED:
        ordered = StreamOrdered(0, size, memory.state, False, NULL)
        status = <CUresult>allocate_on(&ordered, memory.stream, memory.label)
        memory.address = ordered.address
        return status
    with nogil:
        status = enter_context(memory.context.raw, &pushed)
        if status == CUDA_SUCCESS:
            if memory.kind == DEVICE:
                status = cuMemAlloc(&memory.address, size)
            elif memory.kind == LOCKED:
                status = cuMemHostAlloc(<void **>&memory.address, size, flags)
            else:
                status = cuMemAllocManaged(&memory.address, size, CU_MEM_ATTACH_GLOBAL)
            leave_context(pushed)
    return status


cdef Memory adopt_memory(
    MemoryKind kind, Context context, CUdeviceptr address, size_t nbytes, object owner, str label
):
    """Memory that somebody else allocated; to free it as well, nobody else may have it here."""
    cdef Memory memory = Memory.__new__(Memory)
    cdef Memory other
    memory.context = context
    memory.kind = kind
    memory.nbytes = nbytes
    memory.label = label
    memory.site = here()
    memory.state = new_state(nbytes)
    memory.state.managed = kind == UNIFIED
    # From here on nobody else gets in: there is one owner for an address.
    other = None if kind == FOREIGN else owner_of(address, nbytes)
    if other is not None:
        raise ValueError(f"{address:#x} lies in a live {other.label}, made at"
                         f" {place(other.site)}, which owns and frees it. Take it from there"
                         " with into_raw() first, or borrow it with from_address()")
    if kind != FOREIGN and (is_to_be_freed(address, nbytes) or is_cached(address, nbytes)):
        raise ValueError(f"{address:#x} lies in memory of a buffer that has died, and will be freed"
                         " or used again. To keep it, take it with into_raw() in time")
    memory.address = address
    memory.owner = owner
    list_memory(memory)
    return memory
