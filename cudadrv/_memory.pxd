"""Memory: one allocation, and what the engine knows of it."""

from libc.stdint cimport uint32_t

from cudadrv._device cimport Context
from cudadrv._driver cimport CUdeviceptr
from cudadrv._engine cimport own_memory
from cudadrv._pool cimport Block
from cudadrv._release cimport MemoryKind
from cudadrv._stream cimport Stream


cdef struct StreamOrdered:
    CUdeviceptr address
    size_t nbytes           # to be allocated or freed
    own_memory *state       # the engine's record of the memory
    bint cached             # taken from a cache or given to one, without a driver call
    own_memory *after       # NULL, or the state of the block that goes back to its cache


cdef int allocate_on(StreamOrdered *memory, Stream stream, str label) except? -1
cdef int free_on(StreamOrdered *memory, Stream stream, int policy, str label) except? -1


cdef class Memory:
    cdef Context context        # kept alive: the driver frees memory with its context
    cdef own_memory *state      # the engine's record of the memory; exists until that is freed
    cdef Block *block           # the pool's block that contains the memory; NULL if not pooled
    cdef CUdeviceptr address    # 0 for an empty buffer
    cdef size_t nbytes
    cdef MemoryKind kind
    cdef Memory home            # whose state this foreign memory shares, or None: see _home_of
    cdef size_t start           # offset of the memory in its home; `address` is that of the home
    cdef bint is_home           # whether this stands for a whole allocation of another library
    cdef Stream stream          # the stream that stream-ordered memory was allocated on, or None
    cdef object owner           # keeps foreign memory alive
    cdef str label              # class and name of the buffer that was made first
    cdef Py_ssize_t regions     # live buffers over the memory: the whole and its parts
    cdef uint32_t site          # the line that made the buffer
    cdef uint32_t closed_at     # the line that closed the buffer, or 0
    cdef void *newer            # its newer neighbour in the list of live memory, or NULL
    cdef void *older            # its older neighbour in that list, or NULL

    cdef int close(self, Stream stream, int policy) except -1
    cdef int give_away(self) except -1


cdef void leave_cache(Memory memory) noexcept
cdef own_memory *new_state(size_t nbytes) except NULL
cdef void list_memory(Memory memory) noexcept
cdef void show_memory(Memory memory) noexcept
cdef void unlist_memory(Memory memory) noexcept
cdef Memory owner_of(CUdeviceptr address, size_t nbytes)
cdef str label_at(CUdeviceptr address)
cdef Memory code_memory(Context context, str label)
cdef Memory variable_memory(
    Context context, CUdeviceptr address, size_t nbytes, Memory code, str label)
cdef int close_module(Memory code, list variables) except -1


cdef Memory allocate_memory(
    MemoryKind kind, Context context, size_t nbytes, unsigned int flags, Stream stream, str label,
    bint pooled)
cdef Memory adopt_memory(
    MemoryKind kind, Context context, CUdeviceptr address, size_t nbytes, object owner, str label)


cdef int leave_home(Memory memory) except -1
cdef int kind_at(Context context, CUdeviceptr address, int *device) except -2
cdef int check_external(
    Context context, MemoryKind kind, CUdeviceptr address, str label) except -1
