"""Memory: one allocation, and what the engine knows of it."""

from libc.stdint cimport uint32_t, uint8_t

from cudadrv._device cimport Context
from cudadrv._driver cimport CUdeviceptr, CUmemoryPool, CUresult
from cudadrv._engine cimport own_memory
from cudadrv._pool cimport Block, PoolHandle
from cudadrv._memory_kinds cimport MemoryKind
from cudadrv._segment cimport Segment
from cudadrv._stream cimport Stream
from cudadrv._virtual cimport Growth, Span


cdef struct StreamOrdered:
    CUdeviceptr address
    size_t nbytes           # how many bytes to allocate or free
    own_memory *state       # the engine's record of the memory
    bint cached             # the memory comes from a pool or goes to a pool, without a driver call
    own_memory *after       # the state that a block gets when it goes back to its pool, or NULL
    CUmemoryPool pool       # the pool to allocate from; NULL: the current pool of the device


cdef int allocate_on(StreamOrdered *memory, Stream stream, str label) except? -1
cdef int free_on(StreamOrdered *memory, Stream stream, int policy, str label) except? -1


cdef class Memory


cdef class Home:
    cdef object key             # the key by which all homes are stored
    cdef list works             # events behind its uses, or None: see `_is_complete`
    cdef size_t returns_of_works    # the value of `returns` when these events were recorded
    cdef bint remembered        # whether the list of `return_to_owner` keeps the home
    cdef Memory following       # the next home in that list, or None


cdef class Memory:
    cdef Context context        # kept alive: the driver frees memory with its context
    cdef own_memory *state      # the engine's record of the memory; shared with `home`, if any
    cdef Block *block           # the pool's block that contains the memory; NULL if not pooled
    cdef Growth growth          # the span of memory that grows; None for other memory
    cdef CUdeviceptr address    # 0 if empty or closed, and until the address is chosen
    cdef size_t nbytes
    cdef MemoryKind kind
    cdef unsigned int flags     # the flags for cuMemHostAlloc or cuMemHostRegister
    cdef bint unused            # allocated on a stream, and not used yet: see _memory.pyx
    # For memory of another library, the Memory of the whole allocation, whose state it shares: see
    # `_home_of`. None for all other memory.
    cdef Memory home
    cdef Memory left            # the former home; other threads may have pointers to its state
    cdef uint8_t gone           # whether the memory has left its home; the engine sets this
    cdef size_t start           # offset of the memory in `home`; `address` is the address of `home`
    # Set only if this Memory is a home that represents a whole allocation of another library. None
    # for all other Memory, and for homes that are buffers of the program.
    cdef Home whole
    cdef size_t members         # how many Memory objects share the state of this home
    cdef size_t returns         # how often bytes of this home were given back to their owner
    cdef Stream stream          # the stream that stream-ordered memory was allocated on, or None
    cdef Stream attached        # the stream that managed memory is attached to, or None
    cdef PoolHandle pool        # the DriverPool that the memory comes from, or None
    cdef object owner           # keeps memory alive that cudadrv did not allocate, or None
    cdef object migrations      # None, or how often its blocks have migrated: see _migrations.pyx
    cdef bint advised           # whether advice decides where managed memory is
    cdef str label              # class and name of the first buffer over the memory
    cdef Py_ssize_t loans       # how many loans of the memory, and blocks of `back`, have not ended
    cdef Py_ssize_t regions     # how many buffers over the memory exist, parts included
    cdef uint32_t site          # the line that made the first buffer over the memory
    cdef uint32_t closed_at     # the line that closed the buffer, or 0
    cdef void *newer            # the next newer Memory in the list of all live Memory, or NULL
    cdef void *older            # the next older Memory in that list, or NULL

    cdef int close(self, Stream stream, int policy) except -1
    cdef int give_away(self) except -1


cdef inline Span *span_of(Memory memory) noexcept:
    """Return the span of memory that grows; NULL for other or closed memory."""
    return NULL if memory.growth is None else memory.growth.span


# The type of functions by which `obtain` allocates. They return the driver's status.
ctypedef CUresult (*allocate_function)(Memory memory, size_t size) except *


cdef size_t obtain(Memory memory, size_t size, allocate_function allocate) except? 0
cdef void leave_cache(Memory memory) noexcept
cdef own_memory *new_state(size_t nbytes) except NULL
cdef void list_memory(Memory memory) noexcept
cdef void show_memory(Memory memory) noexcept
cdef void unlist_memory(Memory memory) noexcept
cdef Memory owner_of(CUdeviceptr address, size_t nbytes)
cdef Memory live_memory_at(CUdeviceptr address, size_t nbytes, bint borrowed)
cdef Memory live_memory_around(CUdeviceptr address, size_t nbytes)
cdef str described_at(CUdeviceptr address)
cdef str described_closed(CUdeviceptr address)
cdef Memory code_memory(Context context, str label)
cdef Memory variable_memory(
    Context context, CUdeviceptr address, size_t nbytes, Memory code, str label)
cdef int close_module(Memory code, list variables) except -1


cdef CUdeviceptr chosen_address(Memory memory, size_t start) noexcept
cdef int use_on_host(Memory memory) except -1
cdef Memory map_segment(Context context, Segment segment, str label)
cdef Memory allocate_memory(
    MemoryKind kind, Context context, size_t nbytes, unsigned int flags, Stream stream, str label,
    bint pooled)
cdef Memory allocate_from(
    PoolHandle pool, Context context, size_t nbytes, Stream stream, str label)


cdef dict homes
cdef own_memory *closed_state(Memory memory) except NULL
cdef int leave_home(Memory memory, own_memory *closed) except -1
cdef void stay_home(Memory memory) noexcept
