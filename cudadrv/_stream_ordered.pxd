"""Stream-ordered memory: allocating and freeing it are writes on a stream."""

from cudadrv._driver cimport CUdeviceptr
from cudadrv._ownership cimport own_memory
from cudadrv._stream cimport Stream


cdef struct StreamOrdered:
    CUdeviceptr address
    size_t nbytes           # of the driver's allocation
    own_memory *state
    bint cached             # it comes from a cache, or goes to one: the driver is not asked, and
    own_memory *after       # becomes the state of what goes there


cdef int allocate_on(StreamOrdered *memory, Stream stream, str label) except? -1
cdef int free_on(StreamOrdered *memory, Stream stream, int policy, str label) except? -1
