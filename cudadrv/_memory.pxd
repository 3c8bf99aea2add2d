"""Memory: one allocation, and what the engine knows of it."""

from libc.stdint cimport uint32_t

from cudadrv._cache cimport Block
from cudadrv._context cimport Context
from cudadrv._driver cimport CUdeviceptr
from cudadrv._ownership cimport own_memory
from cudadrv._release cimport MemoryKind
from cudadrv._stream cimport Stream


cdef class Memory:
    cdef Context context        # the memory dies with it
    cdef own_memory *state      # outlives the object while the memory waits to be freed
    cdef Block *block           # where it comes from, and goes to; NULL if it is not pooled
    cdef CUdeviceptr address    # 0 for an empty buffer
    cdef size_t nbytes
    cdef MemoryKind kind
    cdef Stream stream          # of stream-ordered memory: the one it was allocated on
    cdef object owner           # keeps foreign memory alive
    cdef str label              # class and name of the buffer that it was made for
    cdef Py_ssize_t regions     # buffers that can reach it: the whole and its parts
    cdef uint32_t site          # where it was made, and
    cdef uint32_t closed_at     # where it was closed
    cdef void *newer            # neighbours in the list of live memory: see live_memory
    cdef void *older

    cdef int close(self, Stream stream, int policy) except -1
    cdef int give_away(self) except -1


cdef own_memory *new_state(size_t nbytes) except NULL
cdef void list_memory(Memory memory) noexcept
cdef void show_memory(Memory memory) noexcept
cdef Memory owner_of(CUdeviceptr address, size_t nbytes)
cdef str label_at(CUdeviceptr address)
cdef Memory code_memory(Context context, str label)
cdef Memory variable_memory(
    Context context, CUdeviceptr address, size_t nbytes, Memory code, str label)
cdef int close_module(Memory code, list variables) except -1
