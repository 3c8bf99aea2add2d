"""Foreign: memory that cudadrv did not allocate, and the homes whose state it shares.

State that outlives a call: which homes have to be kept because bytes were given back (the GIL
guards them).
"""

from cudadrv._device cimport Context
from cudadrv._driver cimport (
    CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_FOUND, CUDA_SUCCESS, CU_MEMORYTYPE_HOST,
    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_IS_MANAGED,
    CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CUdeviceptr, CUresult, has_answered,
    in_cuMemGetAddressRange, in_cuPointerGetAttribute,
)
from cudadrv._engine cimport own_memory
from cudadrv._memory cimport (
    Home, Memory, homes, leave_home, list_memory, live_memory_around, live_memory_at, new_state,
    owner_of,
)
from cudadrv._memory_kinds cimport DEVICE, FOREIGN, LOCKED, UNIFIED, MemoryKind
from cudadrv._pool cimport is_cached
from cudadrv._release cimport (
    forget_homes_with, is_complete, is_to_be_freed, is_unused, users_of,
)
from cudadrv._site cimport here, place


# ---- adopting memory ----

cdef Memory adopt_memory(
    MemoryKind kind, Context context, CUdeviceptr address, size_t nbytes, object owner, str label
):
    """Make the Memory of bytes that cudadrv did not allocate.

    Raises ValueError if cudadrv is to free the bytes although another live Memory owns or borrows
    some of them, or although a dead Memory owned some that are not freed yet.
    """
    cdef Memory memory = Memory.__new__(Memory)
    cdef Memory other
    memory.context = context
    memory.kind = kind
    memory.nbytes = nbytes
    memory.label = label
    memory.site = here()
    memory.home = _home_of(context, address, nbytes) if kind.borrowed and nbytes else None
    if memory.home is not None:
        return _in_home(memory, address, owner)
    memory.state = new_state(nbytes)
    memory.state.managed = kind.managed
    # No other thread runs between this check and the addition, so an address has one owner.
    other = None if kind.borrowed else owner_of(address, nbytes)
    if other is not None:
        raise ValueError(f"{address:#x} lies in a live {other.label}, made at"
                         f" {place(other.site)}, which owns and frees it. Take it from there"
                         " with into_raw() first, or borrow it with from_address()")
    other = None if kind.borrowed else live_memory_at(address, nbytes, True)
    if other is not None:  # the bytes would have two states
        raise ValueError(f"{address:#x} lies in a live {other.label}, made at"
                         f" {place(other.site)}, which only borrows it. Close that buffer first")
    if not kind.borrowed and (is_to_be_freed(address, nbytes) or is_cached(address, nbytes)):
        raise ValueError(f"{address:#x} lies in memory of a buffer that has died, and will be freed"
                         " or used again. To keep it, take it with into_raw() in time")
    memory.address = address
    memory.owner = owner
    list_memory(memory)
    return memory


cdef Memory adopt_opened(
    Context context, CUdeviceptr first, size_t size, CUdeviceptr address, size_t nbytes,
    object owner, str label
):
    """Make the Memory of a part of an allocation that another process has shared.

    The Memory gets a new home without uses, because the ticket has ordered all earlier uses of
    these bytes. Uses that this process recorded for an earlier ticket must not count again: whether
    the driver maps this ticket's memory to the same address depends on timing.
    """
    cdef Memory memory = Memory.__new__(Memory)
    memory.context, memory.kind, memory.nbytes = context, FOREIGN, nbytes
    memory.label, memory.site = label, here()
    memory.home = Memory.__new__(Memory)
    _make_home(memory.home, context, first, size)
    return _in_home(memory, address, owner)


cdef Memory _in_home(Memory memory, CUdeviceptr address, object owner):
    """Finish a Memory that has a home."""
    memory.home.members += 1
    memory.state = memory.home.state
    memory.start = address - memory.home.address
    memory.address = memory.home.address
    memory.owner = owner
    list_memory(memory)
    return memory


# ---- the state that foreign memory shares ----
#
# Arrays of another library may overlap each other, and may lie in a buffer of cudadrv. So all their
# uses are recorded in one state: the state of their home, which is the driver's allocation that
# contains them.

cdef Memory _home_of(Context context, CUdeviceptr address, size_t nbytes):
    """Return the home of these bytes, perhaps a new one.

    Returns None if the driver does not know the allocation, and no live memory contains the bytes.
    """
    cdef CUdeviceptr first = 0
    cdef size_t size = 0
    cdef CUresult status
    with nogil:
        status = in_cuMemGetAddressRange(context.raw, &first, &size, address)
    if not _is_unknown(status):
        context.check(status)
    if status == CUDA_SUCCESS and address + nbytes > first + size:
        _refuse_end(context, address, nbytes)
    if status != CUDA_SUCCESS:
        return _known_home(address, nbytes, address, nbytes)
    if not first <= address or address + nbytes > first + size:
        first, size = address, nbytes
    return _home_at(context, first, size, address, nbytes)


cdef Memory _home_at(
    Context context, CUdeviceptr first, size_t size, CUdeviceptr address, size_t nbytes
):
    """Return the home of bytes in an allocation, perhaps a new one."""
    cdef Memory made = Memory.__new__(Memory)   # first: this may run a finalizer that makes a home
    cdef Home whole = Home.__new__(Home)
    cdef Memory home = _known_home(first, size, address, nbytes)
    if home is not None:
        return home
    # No other thread runs here, so none can make a second home for the allocation.
    _make_home(made, context, first, size)
    whole.key = first
    made.whole = whole
    homes[whole.key] = <size_t><void *>made
    return made


cdef int _make_home(Memory made, Context context, CUdeviceptr first, size_t size) except -1:
    made.context, made.kind, made.address, made.nbytes = context, FOREIGN, first, size
    made.label = "memory of another library"
    made.state = new_state(size)
    return 0


cdef Memory _known_home(
    CUdeviceptr first, size_t size, CUdeviceptr address, size_t nbytes
):
    """Return the home of this allocation, else the home of live memory around these bytes, or that
    memory itself if it has no home. Returns None if neither a home nor such memory exists.

    Lets no other thread in.
    """
    cdef Memory live
    cdef Memory home = None
    if first in homes:
        home = <Memory><void *><size_t>homes[first]
        if home.nbytes != size:
            home = None
        elif home.members:
            return home
    # No buffer uses the home. Its owner may have freed the allocation since then, and the driver
    # may have given the same addresses to a buffer of cudadrv.
    live = live_memory_around(address, nbytes)
    if live is None:
        return home
    return live if live.home is None else live.home


cdef int _refuse_end(Context context, CUdeviceptr address, size_t nbytes) except -1:
    """Raise ValueError if the driver does not know the last byte.

    If the driver knows the last byte, the bytes are assumed to lie in several allocations, which
    are mapped next to each other.
    """
    cdef int device = 0
    cdef CUdeviceptr last = address + nbytes - 1
    if kind_at(context, last, &device) is NULL:
        raise ValueError(f"memory of {nbytes} bytes at {address:#x} ends at {last:#x}, which is"
                         " none of the driver's memory")
    return 0


# ---- what was given back ----
#
# The owner of an array that was given back works on the stream of `give_back` again. A later import
# of the same bytes has to be ordered after that stream, so the home must not be forgotten before
# the host knows that the stream's work up to `give_back` is complete. It does not matter whether
# the driver has completed that work: what an import orders must not depend on timing.

cdef enum:
    FEW_HOMES = 2       # a call looks at this many homes
    MORE_HOMES = 4      # with MANY_HOMES a call looks at this many: each home needs two looks
    MANY_HOMES = 1024   # with more homes, the driver is asked whether their work is complete

cdef Memory _first_home = None  # a list of the homes that are kept, linked by `following`
cdef Memory _last_home = None
cdef size_t _kept_homes = 0     # the length of that list


cdef int return_to_owner(Memory memory, own_memory *closed) except -1:
    """Close foreign memory after its bytes were given back by the operation GIVE_BACK.

    `closed` is as for `leave_home`.
    """
    cdef Memory home = memory.home
    cdef Home whole = home.whole    # None if the home is a buffer of the program
    if whole is not None and not whole.remembered:
        forget_homes_with(_forget_complete)
        _forget_complete()
        whole.remembered = True
        _keep_home(home)
    home.returns += 1
    return leave_home(memory, closed)


cdef void _keep_home(Memory home) noexcept:
    """Append a home to the list. Needs no memory, so it cannot fail."""
    global _first_home, _last_home, _kept_homes
    if _last_home is None:
        _first_home = home
    else:
        _last_home.whole.following = home
    _last_home = home
    _kept_homes += 1


cdef Memory _take_home():
    """Remove the first home from the list and return it, or return None."""
    global _first_home, _last_home, _kept_homes
    cdef Memory home = _first_home
    if home is not None:
        _first_home, home.whole.following = home.whole.following, None
        if _first_home is None:
            _last_home = None
        _kept_homes -= 1
    return home


cdef int _forget_complete() except -1:
    """Forget homes whose uses are known to be complete. Looks at a few homes only."""
    cdef Memory home
    cdef size_t few = min(<size_t>(FEW_HOMES if _kept_homes < MANY_HOMES else MORE_HOMES),
                          _kept_homes)
    while few:
        few -= 1
        home = _take_home()
        if home is None:
            break
        if _may_be_unfinished(home):
            _keep_home(home)
        else:
            home.whole.remembered, home.returns, home.whole.works = False, 0, None
    return 0


cdef bint _may_be_unfinished(Memory home) noexcept:
    if home.context.lost or is_unused(home.state):
        return False
    if _kept_homes < MANY_HOMES or home.members:
        return True
    try:    # many homes are left if a program imports new allocations, and never waits
        return not _is_complete(home)
    except Exception:   # the driver has failed; a call that can say so will find this, too
        return True


cdef bint _is_complete(Memory home) except -1:
    """Whether the driver has completed all uses of a home up to its last return.

    The streams may always have other work. So the first call records events, and a later call asks
    whether these are complete. Other threads may use the home meanwhile.
    """
    cdef Home whole = home.whole
    cdef size_t returns = home.returns
    if whole.works is None or whole.returns_of_works != returns:
        works = users_of(home.state)
        if home.returns == returns and None not in works:
            whole.works, whole.returns_of_works = works, returns
        return False
    for work in whole.works:
        if not is_complete(work):
            return False
    return not home.members and home.returns == returns


# ---- memory by address ----

cdef int check_external(
    Context context, MemoryKind kind, CUdeviceptr address, str label
) except -1:
    """Raise ValueError if the driver does not know the address as memory of this kind and device.
    """
    cdef int device = context.device.ordinal
    if address == 0:
        return 0
    found = kind_at(context, address, &device)
    if found is not kind:
        phrase = "none of the driver's" if found is NULL else <str>found.phrase
        raise ValueError(f"{address:#x} is not {<str>kind.phrase} memory, which a {label} needs: it"
                         f" is {phrase} memory")
    if not kind.host_access and device != context.device.ordinal:
        raise ValueError(f"{address:#x} is memory of device {device}, not of {context.device!r};"
                         " say which one with device=")
    return 0


cdef bint _is_unknown(CUresult status) noexcept:
    """Whether a function has answered that the driver does not know an address."""
    return has_answered(status, CUDA_ERROR_INVALID_VALUE) \
        or has_answered(status, CUDA_ERROR_NOT_FOUND)


cdef MemoryKind kind_at(Context context, CUdeviceptr address, int *device) except? NULL:
    """Return DEVICE, LOCKED or UNIFIED, or NULL for memory that the driver does not know."""
    cdef unsigned int memory_type = 0
    cdef int managed = 0
    cdef CUresult status
    context.usable()
    with nogil:
        status = in_cuPointerGetAttribute(
            context.raw, &memory_type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address)
        if status == CUDA_SUCCESS:
            status = in_cuPointerGetAttribute(
                context.raw, &managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address)
        if status == CUDA_SUCCESS:
            status = in_cuPointerGetAttribute(
                context.raw, device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address)
    if _is_unknown(status):
        return NULL
    context.check(status)
    if managed & 1:
        return UNIFIED
    return LOCKED if memory_type == CU_MEMORYTYPE_HOST else DEVICE
