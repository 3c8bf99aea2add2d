"""Guard: pages that the host cannot use while operations use them.

The pages, their protection and the signal handler are plain C (`include/cudadrv/pages.h`,
`page_fault.h`), because the engine tells them without the GIL when operations are complete. This
module begins and ends guards, and names memory and operations, which needs the GIL. `_guarding` has
what programs call.

Without a guard nothing here runs: a guard takes all operations off the fast path
(`cudadrv_table.slowly`), and lets the engine call `page_learned`.

State that outlives a call: the pages (a separate lock: pages.h); what could not be guarded (the GIL
guards it).
"""

import os

from libc.stdint cimport uint32_t, uint64_t, uint8_t, uintptr_t

from cudadrv._driver cimport (
    CUDADRV_GUARDS, CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTALLOC_PORTABLE,
)
from cudadrv._engine cimport OWN_SHARED, engine, own_access, own_conflict, own_listen
from cudadrv._errors cimport report_text
from cudadrv._names cimport doing, host_wait, work_text
from cudadrv._site cimport describe_line

cdef extern from "cudadrv/page_fault.h" nogil:
    int page_error
    int page_output
    int (*page_line)(char *text, int size)
    uint64_t page_size()
    bint page_add(
        uintptr_t address, uint64_t nbytes, own_memory *state, const own_domain *domain,
        const char *name, bint managed)
    void page_forget(uintptr_t address)
    void page_forget_all()
    void page_note_dropped(uintptr_t address)
    bint page_guards(const own_memory *state)
    void page_name_user(
        const own_memory *state, uint32_t slot, uint64_t seq, uint8_t mode, const char *text)
    void page_name_excluder(uint32_t slot, uint64_t seq, const char *text)
    void page_change(const own_memory *state)
    void page_learned() noexcept
    void page_begin_lift(page_lift *lift)
    void page_end_lift(const page_lift *lift)
    bint page_is_ordinary(uintptr_t start, uint64_t nbytes)
    void page_watch_forks()
    void page_take_signal()
    void page_give_signal()
    void page_prepare_thread()
    void page_note_driver()


cdef enum:
    MOST_UNGUARDED = 100

locked_flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP

# Descriptions of buffers that cannot be guarded, and why, in the order in which they were found.
cdef dict _unguarded = {}


# ---- memory ----

cdef size_t whole_pages(size_t nbytes) noexcept nogil:
    return (nbytes + page_size() - 1) // page_size() * page_size()


cdef int guard_memory(
    size_t address, size_t nbytes, own_memory *state, const own_domain *domain, str name,
    bint registered, bint same_tables
) except -1:
    """Let the pages of live page-locked memory follow its state.

    `nbytes` is the number of bytes from the address on that belong to this memory alone. With
    `registered`, the program has mapped the memory. With `same_tables`, the device uses the
    processor's page tables.
    """
    cdef bytes text = name.encode(errors="replace")
    cdef str reason = _why_unguarded(address, nbytes, registered)
    if same_tables:
        reason = "the device uses the processor's page tables, and so their protection, too"
    if reason is not None:
        if len(_unguarded) < MOST_UNGUARDED:
            _unguarded.setdefault(f"{name}: {reason}")
        return 0
    if not page_add(address, nbytes, state, domain, text, False):
        raise MemoryError()
    page_take_signal()
    page_change(state)
    return 0


cdef int watch_managed(
    size_t address, size_t nbytes, own_memory *state, const own_domain *domain, str name
) except -1:
    """Let messages name managed memory that the driver protects while work excludes the host."""
    cdef bytes text = name.encode(errors="replace")
    if not page_add(address, whole_pages(nbytes), state, domain, text, True):
        raise MemoryError()
    page_take_signal()
    return 0


cdef str _why_unguarded(size_t address, size_t nbytes, bint registered):
    if cudadrv_table.is_mapped_twice is not NULL and not cudadrv_table.is_mapped_twice(address):
        return "it is registered memory, which the software driver itself uses" if registered \
            else "it was made before the guard, and the software driver itself uses it"
    if whole_pages(address) + page_size() > address + nbytes:
        return "it has no page of its own"
    if registered and not page_is_ordinary(address, nbytes):
        return "its memory is mapped read-only"
    return None


cdef void leave_memory(size_t address, bint closed) noexcept:
    """Call this when a buffer is `closed`, or when its object is gone."""
    if closed:
        page_forget(address)
    else:
        page_note_dropped(address)


cdef void forget_pages(size_t address) noexcept nogil:
    """Call this before page-locked memory is freed, or gets another state."""
    page_forget(address)


# ---- operations ----

cdef void guard_operation(const own_request *request) noexcept:
    """Protect the pages that an operation uses. The driver has the operation now."""
    cdef const own_access *access
    cdef uint32_t i
    for i in range(request.count):
        access = &request.accesses[i]
        if access.mode == OWN_SHARED or not page_guards(access.memory):
            continue
        try:
            _name_user(request, access)
        except Exception as error:  # such as no memory: messages then do not name it
            report_text(f"cudadrv: page guards: an operation has no name: {error!r}")
        page_take_signal()
        page_change(access.memory)
    if request.stream.domain.host_excluded:
        try:
            _name_excluder(request)
        except Exception as error:
            report_text(f"cudadrv: page guards: an operation has no name: {error!r}")
    if page_error:
        _tell_failure()


cdef int _name_excluder(const own_request *request) except -1:
    cdef own_conflict conflict
    cdef bytes text
    conflict.epoch.operation, conflict.epoch.site = request.operation, request.site
    conflict.number, conflict.kind = request.stream.number, request.stream.kind
    conflict.excluded = True
    text = (f"  while {work_text(&conflict)} may be unfinished, and work of that device\n"
            "  excludes the host from all managed memory (concurrent_managed_access is 0).\n"
            f"  Wait first: {host_wait(conflict.number, conflict.kind)}."
            ).encode(errors="replace")
    page_name_excluder(request.issued.slot, request.issued.seq, text)
    return 0


cdef int _name_user(const own_request *request, const own_access *access) except -1:
    cdef own_conflict conflict
    cdef bytes text
    conflict.epoch.operation, conflict.epoch.site = request.operation, request.site
    conflict.epoch.mode = access.mode
    conflict.number, conflict.kind = request.stream.number, request.stream.kind
    conflict.memory, conflict.first, conflict.upto = access.memory, access.start, access.stop
    conflict.excluded = False
    text = (f"  while it {doing(&conflict)} by {work_text(&conflict)},\n"
            "  and that is not known to be complete.\n"
            f"  Wait first: {host_wait(conflict.number, conflict.kind)}."
            ).encode(errors="replace")
    page_name_user(
        access.memory, request.issued.slot, request.issued.seq, access.mode, text)
    return 0


cdef void _tell_failure() noexcept:
    """Warn that mprotect() has failed."""
    global page_error
    error, page_error = page_error, 0
    report_text(f"page guards: mprotect() has failed ({os.strerror(error)}), so a buffer is not"
                " guarded any more. The system limits the number of differently protected pieces of"
                " a process (vm.max_map_count)")


# ---- the host ----

cdef void host_may_use(const own_memory *state) noexcept:
    """Call this when the host has a view that no order of operations permits (`unchecked`)."""
    page_change(state)


cdef void begin_lift(page_lift *lift) noexcept nogil:
    page_begin_lift(lift)


cdef void end_lift(const page_lift *lift) noexcept nogil:
    page_end_lift(lift)


# ---- begin and end ----

def begin():
    """Begin to guard memory. The caller then names the memory that is alive."""
    global locked_flags, page_line
    page_watch_forks()
    page_line = <int (*)(char *, int) noexcept nogil>describe_line
    _unguarded.clear()
    if cudadrv_table.map_twice is not NULL:
        cudadrv_table.map_twice(True)
    locked_flags |= OWN_PAGES
    page_prepare_thread()
    page_note_driver()
    page_take_signal()
    own_listen(engine, engine.hears, page_learned)
    cudadrv_table.slowly |= CUDADRV_GUARDS


def end():
    """End the guard. The host can use all pages again."""
    global locked_flags
    locked_flags &= ~OWN_PAGES
    cudadrv_table.slowly &= ~CUDADRV_GUARDS
    own_listen(engine, engine.hears, NULL)
    page_forget_all()
    page_give_signal()
    if cudadrv_table.map_twice is not NULL:
        cudadrv_table.map_twice(False)


def is_on():
    """Whether memory is being guarded in this process."""
    return bool(guards())


def unguarded():
    """Return which buffers the present guard, or the last one, could not guard, and why."""
    return [*_unguarded]


def write_to(int fd):
    """Let the handler write to this file, instead of standard error."""
    global page_output
    page_output = fd
