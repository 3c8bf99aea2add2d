"""Region: some items of an allocation, and how they are borrowed."""

from libc.stdint cimport uint32_t

from cudadrv._device cimport Context, is_usable
from cudadrv._driver cimport CUdeviceptr, likely, unlikely
from cudadrv._engine cimport (
    OWN_BY_ROWS, OWN_READ, OWN_STAYS, OWN_STRICT, own_access, own_box, own_bytes_of, own_meet,
)
from cudadrv._memory cimport Memory, chosen_address
from cudadrv._memory_kinds cimport MemoryKind
from cudadrv._operation cimport Operation, ask, issue
from cudadrv._ordering cimport policies_used, policy_in_force
from cudadrv._pool cimport PoolHandle
from cudadrv._stream cimport Stream


cdef class Items:
    cdef object dtype
    cdef Py_ssize_t itemsize
    cdef long long most     # the largest count whose bytes still fit into a signed 64-bit number


cdef Items items_of(object dtype)
cdef str dtype_name(object dtype)


cdef class Region:
    cdef Memory memory              # shared by the whole and its parts
    cdef size_t start               # offset in the memory, in bytes
    cdef size_t nbytes              # from the first byte to the last one
    cdef Py_ssize_t count
    cdef object dtype
    cdef bint moved                 # whether take() or into_raw() has moved the buffer
    cdef bint host_side             # page-locked memory: the host's side of a copy
    cdef bint portable              # streams of every context can use the memory
    cdef MemoryKind kind            # the kind of memory that the class allocates without a stream
    cdef Py_ssize_t itemsize
    cdef str name
    cdef object policy              # None, or the name of its ordering policy
    cdef bint part                  # made from another buffer, so programs cannot close it
    cdef bint read_only             # memory that cudadrv did not allocate and must not write
    cdef bint no_items              # whether the host may not use single items: `scalar_access`
    cdef tuple sizes                # the shape, or None for (count,)
    cdef own_box *box               # NULL, or which of the bytes: see _box
    cdef tuple steps                # of a box: the strides of the shape, in bytes
    cdef tuple ranges               # of a part by an index: its position in the whole, for messages
    cdef uint32_t moved_at          # the line that moved the buffer
    cdef object __weakref__

    cdef int allocate(
        self, object count, object dtype, Context context, Stream stream, unsigned int flags,
        object name, bint pooled, PoolHandle pool) except -1
    cdef int adopt(
        self, object address, object count, object dtype, Context context, object name,
        object owner, bint ours) except -1
    cdef int stand_for(self, Memory memory, object dtype, str name) except -1
    cdef int usable(self) except -1
    cdef int move_out(self, uint32_t site) except -1
    cdef Region part_of(self, slice key)
    cdef Region indexed(self, object key)
    cdef str describe(self)
    cdef Region part_over(self, size_t start, Py_ssize_t count, object dtype)


# The classes of the last two buffers that `is_other_region` recognized. Two classes are kept,
# because a copy between two kinds of buffers asks for both in turn.
cdef object last_class
cdef object class_before
cdef bint is_other_region(object given) noexcept


cdef Region uncounted(Region region)
cdef int shape_as(Region region, tuple sizes, tuple steps) except -1
cdef int lay_over(Region region, object dtype, tuple sizes, tuple steps) except -1
cdef int copy_layout(Region region, Region like) except -1
cdef int refuse_box(Region region, str what) except -1
cdef Region of_present_size(Region region)


cdef inline bint grows(Region region) noexcept:
    """Whether the size of a buffer can change: it grows with its memory."""
    return region.memory is not None and region.memory.growth is not None and not region.part


cdef inline bint is_region(object given) noexcept:
    """Like isinstance(given, Region), but faster for the last two classes."""
    return type(given) is last_class or type(given) is class_before or is_other_region(given)


cdef inline int check_region(Region region) except -1:
    """Like `usable`, inlined for the fast path."""
    # `unusual` is also set if the memory may have shrunk.
    if unlikely(region.memory is None or region.moved or region.memory.state.unusual
                or not is_usable(region.memory.context)):
        region.usable()
    return 0


cdef inline bint overlap(Region one, Region other) noexcept:
    """Whether two regions have bytes in common. Both must have their memory."""
    cdef own_access a
    cdef own_access b
    if one.memory.state is not other.memory.state:
        return False
    aim_at(one, &a)
    aim_at(other, &b)
    return own_meet(own_bytes_of(&a), own_bytes_of(&b))


cdef inline CUdeviceptr pointer_of(Region region) noexcept:
    """Return the address of a region's first byte; 0 for an empty buffer."""
    if likely(region.memory.address):
        return region.memory.address + region.start
    return chosen_address(region.memory, region.start)


cdef bint is_closed(Region region) noexcept
cdef Py_ssize_t checked_count(object count, Items items, str what=*) except -1
cdef str checked_label(Region region, object name)
cdef int fill_in(
    Region region, Memory memory, Py_ssize_t count, object dtype, Py_ssize_t itemsize,
    str name) except -1
cdef int refuse_writing(Region region) except -1


cdef inline void aim_at(Region region, own_access *access) noexcept:
    """Set the bytes of an access: all bytes of a region."""
    access.memory = region.memory.state
    access.start = region.start
    access.stop = region.start + region.nbytes
    access.boxed = region.box is not NULL
    if unlikely(access.boxed):
        access.box = region.box[0]
        access.number = OWN_BY_ROWS


cdef inline size_t payload_of(Region region) noexcept:
    """Return the bytes of a region's items, without the gaps of a box."""
    return <size_t>region.count * <size_t>region.itemsize


cdef inline int borrow(Region region, own_access *access, int mode) except -1:
    """Fill in the access of an operation that uses the whole region."""
    if unlikely(region.read_only and mode != OWN_READ):
        refuse_writing(region)
    aim_at(region, access)
    access.mode = mode
    access.policy = OWN_STRICT
    if unlikely(policies_used):
        access.policy = policy_in_force(region.policy, region.memory.context.policy)
    access.effect = OWN_STAYS
    access.gone = &region.memory.gone
    return 0


cdef int refuse_regions(
    Operation *operation, int reason, Stream stream, object used, Region other) except -1


cdef inline int queue(
    Operation *operation, Stream stream, object used, Region other=None
) except -1:
    """Issue an operation, or raise the exception that says why it was refused.

    After this, the caller owns the snapshot `request.issued`. `used` is the region of the first
    access, and `other` the region of the second one; or `used` is a list of the regions of all
    accesses.
    """
    reason = issue(operation, stream, NULL, False)
    if unlikely(reason):
        refuse_regions(operation, reason, stream, used, other)
    return 0


cdef inline int check_queue(Operation *operation, Stream stream, Region region) except -1:
    """Raise if `queue` would refuse the operation now. Queues nothing."""
    reason = ask(operation, stream)
    if unlikely(reason):
        refuse_regions(operation, reason, stream, region, None)
    return 0


cdef bint is_ndarray(object given) noexcept
cpdef object plain_array(object array)
