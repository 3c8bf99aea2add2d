"""Segment: memory of the system that several processes have mapped.

It is an anonymous file in memory (memfd), which ends with the last process that has it open or
mapped. Other processes open it through the owner's file descriptor, in /proc.
"""

import os

cimport cython
from libc.stdint cimport uint64_t

from cudadrv._errors import OwnershipError

cdef extern from "sys/mman.h" nogil:
    int PROT_READ, PROT_WRITE, MAP_SHARED
    void *MAP_FAILED
    void *mmap(void *address, size_t length, int protection, int flags, int file, long offset)
    int munmap(void *address, size_t length)

cdef extern from *:
    """
    static inline int cudadrv_swap(void *word, uint64_t *expected, uint64_t value) {
        return __atomic_compare_exchange_n((uint64_t *)word, expected, value, 0, __ATOMIC_SEQ_CST,
                                           __ATOMIC_SEQ_CST);
    }
    static inline uint64_t cudadrv_load(void *word) {
        return __atomic_load_n((uint64_t *)word, __ATOMIC_SEQ_CST);
    }
    static inline void cudadrv_store(void *word, uint64_t value) {
        __atomic_store_n((uint64_t *)word, value, __ATOMIC_SEQ_CST);
    }
    """
    bint cudadrv_swap(void *word, uint64_t *expected, uint64_t value) noexcept
    uint64_t cudadrv_load(void *word) noexcept
    void cudadrv_store(void *word, uint64_t value) noexcept


@cython.final
@cython.no_gc_clear
cdef class Segment:
    """Shared memory. Internal to buffers that processes share."""

    def __cinit__(self):
        self.file = -1

    def __dealloc__(self):
        if self.address is not NULL:
            munmap(self.address, self.nbytes)
        close_file(self.file)

    cdef uint64_t load(self, size_t offset) noexcept:
        """Read a word of 64 bits, atomically."""
        return cudadrv_load(<char *>self.address + offset)

    cdef void store(self, size_t offset, uint64_t value) noexcept:
        cudadrv_store(<char *>self.address + offset, value)

    cdef bint swap(self, size_t offset, uint64_t expected, uint64_t value) noexcept:
        """Replace a word, atomically, if it has the expected value. Returns whether it had."""
        return cudadrv_swap(<char *>self.address + offset, &expected, value)


cdef int close_file(int file) except -1:
    """Close a file descriptor; -1 means none."""
    if file >= 0:
        try:
            os.close(file)
        except OSError:     # the program has closed a descriptor that it did not open itself
            pass
    return 0


cdef int _map(Segment segment, size_t nbytes) except -1:
    cdef void *address = mmap(
        NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, segment.file, 0)
    if address == MAP_FAILED:
        raise MemoryError(f"cannot map {nbytes} bytes of shared memory")
    segment.address, segment.nbytes = address, nbytes
    return 0


cdef Segment new_segment(str name, size_t nbytes):
    """Make shared memory, filled with zeros."""
    cdef Segment segment = Segment.__new__(Segment)
    segment.file = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(segment.file, nbytes)
    # If the file shrank, the processes that have mapped it could crash.
    import fcntl
    fcntl.fcntl(segment.file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    _map(segment, nbytes)
    return segment


cdef Segment open_segment(uint64_t pid, int file, str name, size_t nbytes):
    """Map shared memory of another process. Raises OwnershipError if there is none.

    The arguments may be forged, so the file is looked at before it is opened.
    """
    cdef Segment segment = Segment.__new__(Segment)
    path = f"/proc/{pid}/fd/{file}"
    try:
        if not os.readlink(path).startswith(f"/memfd:{name}"):
            raise OwnershipError("the ticket names a file that is no shared memory of cudadrv")
        segment.file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        import fcntl
        sealed = fcntl.fcntl(segment.file, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK
        if not sealed or os.fstat(segment.file).st_size < nbytes:
            raise OwnershipError("the ticket names shared memory of another size")
    except (OSError, OverflowError, ValueError) as error:
        raise OwnershipError(
            f"process {pid}, which made the ticket, has ended, or this process may not open its"
            f" files ({type(error).__name__}: {error})") from None
    _map(segment, nbytes)
    return segment


cdef uint64_t load_word(void *word) noexcept:
    """Read a word of 64 bits, atomically."""
    return cudadrv_load(word)


cdef void store_word(void *word, uint64_t value) noexcept:
    cudadrv_store(word, value)
