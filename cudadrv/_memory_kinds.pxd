"""The kinds of memory: a table with one row a kind."""

from cpython.ref cimport PyObject

from cudadrv._driver cimport CUcontext, CUdeviceptr, CUresult, CUstream


cdef enum:
    POOLS = 3   # how many pools a context has: of device, page-locked and managed memory


# Everything in which one kind of memory differs from another. Fields that a row does not set are
# false or NULL.
cdef struct KindRow:
    # ---- what it is called: each text is a str constant, or NULL ----
    PyObject *name          # in lists of live buffers
    PyObject *word          # in arguments of programs: "device", "locked" or "unified"
    PyObject *phrase        # in refusals of addresses: "page-locked host"
    PyObject *buffer        # the class of buffers
    PyObject *in_nodes      # in refusals of copy nodes; equal for kinds that drivers treat alike

    # ---- where it is, and whose it is ----
    bint host_access        # the host can use it
    bint page_locked        # the host's side of copies
    bint managed            # pages move between the host and devices
    bint several_devices    # devices that its context does not belong to may use it
    bint borrowed           # somebody else frees it
    bint opaque             # the address is the handle of a driver object, and has no bytes
    int pool                # which pool of a context keeps it; below POOLS

    # ---- how it is made ----
    const KindRow *on_stream    # the kind that is allocated on a stream in its place
    bint ordered            # allocated and freed on a stream; else freed when its device is idle
    # Makes memory of `nbytes` bytes, and sets `*address`. For `mappable` memory, `*address` is that
    # of a Segment already, and is only registered. The flags are for cuMemHostAlloc or
    # cuMemHostRegister.
    CUresult (*make)(
        CUcontext context, CUdeviceptr *address, size_t nbytes,
        unsigned int flags) noexcept nogil

    # ---- how it ends ----
    # Frees it. May block, unless `never_blocks` is set. The stream is for `ordered` memory. NULL:
    # nothing is freed.
    CUresult (*free)(CUcontext context, CUdeviceptr address, CUstream stream) noexcept nogil
    bint never_blocks
    bint later              # `close` leaves it to the queue, because nobody waits for its memory
    # In the queue of dead memory, some kinds have a pointer to a struct in place of the address.
    # `drop` frees the struct, and `first_byte` returns the address of the memory's first byte.
    void (*drop)(CUdeviceptr address) noexcept nogil
    CUdeviceptr (*first_byte)(CUdeviceptr address) noexcept nogil
    PyObject *not_given     # why `into_raw` refuses it; NULL: it does not

    # ---- how others use it ----
    int dlpack              # DLPack's type of the device
    bint mappable           # other processes can map it: its owner is a Segment
    bint shared             # other processes may have mapped it: its owner is a `Kept`
    PyObject *not_shared    # why `share` refuses it; NULL: it does not


ctypedef const KindRow *MemoryKind


cdef MemoryKind DEVICE
cdef MemoryKind STREAM_ORDERED
cdef MemoryKind LOCKED
cdef MemoryKind UNIFIED
cdef MemoryKind GROWING     # memory that grows; queued by the address of its Span
cdef MemoryKind FOREIGN     # memory of other libraries and processes
cdef MemoryKind SHARED      # device memory that other processes may have mapped
cdef MemoryKind REGISTERED  # page-locked memory that other processes can map
cdef MemoryKind IN_PLACE    # memory of the program that was page-locked where it is
cdef MemoryKind OPENED      # device memory of another process
cdef MemoryKind ARRAY       # an array, as textures read it; its address is the CUarray
cdef MemoryKind MIPMAPS     # a mipmapped array; its address is the CUmipmappedArray
# Not memory, but freeing it may block, too, or has to be done later:
cdef MemoryKind CODE        # a loaded module; its address is the CUmodule
cdef MemoryKind EXECUTABLE  # an executable graph with conditions; its address is the CUgraphExec
cdef MemoryKind GRAPH       # a graph; its address is the CUgraph
cdef MemoryKind EVENT       # an event; its address is the CUevent
cdef MemoryKind TEXTURE     # a texture object; its address is the CUtexObject
cdef MemoryKind SURFACE     # a surface object; its address is the CUsurfObject


cdef MemoryKind kind_called(str word) except? NULL
cdef MemoryKind kind_of_dlpack(object device_type) except? NULL
