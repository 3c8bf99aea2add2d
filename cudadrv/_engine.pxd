"""The ownership engine (include/cudadrv/ownership.h) for Cython, and the process's one instance."""

from libc.stdint cimport uint16_t, uint32_t, uint64_t, uint8_t


cdef extern from "cudadrv/mutex.h" nogil:
    ctypedef struct own_mutex:
        pass
    bint own_mutex_try(own_mutex *mutex)
    bint own_mutex_try_alone(own_mutex *mutex)
    void own_mutex_take(own_mutex *mutex)
    void own_mutex_give(own_mutex *mutex)


cdef extern from "cudadrv/guard.h" nogil:
    ctypedef struct own_guard:
        int users
    bint own_guard_enter(own_guard *guard)
    void own_guard_leave(own_guard *guard)
    bint own_guard_leave_last(own_guard *guard)
    bint own_guard_shut(own_guard *guard, int users)
    void own_guard_reopen(own_guard *guard)
    bint own_guard_is_shut(const own_guard *guard)


cdef extern from "cudadrv/ownership.h" nogil:
    enum:
        OWN_READ
        OWN_WRITE
        OWN_SHARED
        OWN_REACH
        OWN_NON_BLOCKING
        OWN_BLOCKING
        OWN_LEGACY
        OWN_PLAIN
        OWN_DEFAULT
        OWN_PER_THREAD
        OWN_INTERNAL
        OWN_ELSEWHERE
        OWN_ENDED
        OWN_OPEN
        OWN_CLOSED
        OWN_RETIRED
        OWN_STAYS
        OWN_USES
        OWN_MOVES
        OWN_ATTACHES
        OWN_DISCARDS
        OWN_SHARES
        OWN_CLOSES
        OWN_LEAVES
        OWN_STRICT
        OWN_WAIT
        OWN_UNCHECKED
        OWN_OK
        OWN_BORROWED
        OWN_EXPORTED
        OWN_MUST_WAIT
        OWN_MEMORY_CLOSED
        OWN_STREAM_CLOSED
        OWN_NO_MEMORY
        OWN_DISCARDED
        OWN_ATTACHED
        OWN_HELD
        OWN_CUT
        OWN_UNUSUAL
        OWN_BY_ROWS
        OWN_HAS_DISCARDS
        OWN_IS_ATTACHED
        OWN_MAY_READ
        OWN_MAY_ALL

    uint64_t OWN_NO_STREAM

    ctypedef struct own_clock:
        uint64_t references
        uint32_t size
        uint64_t *seq
    ctypedef struct own_snapshot:
        own_clock *clock
        uint64_t seq
        uint32_t slot
    ctypedef struct own_epoch:
        uint64_t seq
        uint32_t slot
        uint32_t site
        uint16_t operation
        uint8_t mode
    ctypedef struct own_discard:
        uint64_t start
        uint64_t stop
        uint32_t site
    ctypedef struct own_attachment:
        uint64_t stream
        uint32_t site
    ctypedef struct own_memory:
        uint64_t nbytes
        uint32_t count
        uint8_t closed
        uint8_t limited
        uint16_t unusual        # `closed` and `limited` at once
        uint8_t managed
        uint32_t traced
        uint32_t batch
        void *exports
    ctypedef struct own_stream
    ctypedef struct own_export:
        own_memory *memory
        own_stream *borrower
        uint64_t start
        uint64_t stop
        uint32_t site
    ctypedef struct own_domain:
        uint8_t host_excluded
    ctypedef struct own_stream:
        own_mutex *issue
        own_domain *domain
        uint64_t seq
        uint64_t settled
        uint64_t number
        uint64_t traced
        uint32_t slot
        uint8_t order
        uint32_t loans
        uint8_t state
        uint8_t kind
    ctypedef struct own_event:
        own_mutex issue
        own_snapshot snapshot
        uint64_t recorded
    ctypedef struct own_runs:
        own_event last
    ctypedef struct own_engine:
        uint32_t size
        void (*hears)(uint32_t slot, uint64_t seq) noexcept nogil
        void (*learned)() noexcept nogil
    ctypedef struct own_operation:
        uint64_t seq
        uint32_t site
        uint16_t operation
    ctypedef struct own_box:
        uint64_t width
        uint64_t pitch
        uint64_t rows
        uint64_t slice
        uint64_t slices
    ctypedef struct own_bytes:
        uint64_t start
        uint64_t stop
        const own_box *box
    uint64_t own_box_bytes(const own_box *box)
    bint own_meet(own_bytes one, own_bytes other)
    ctypedef struct own_access:
        own_memory *memory
        uint64_t start
        uint64_t stop
        uint8_t mode
        uint8_t policy
        uint8_t effect
        uint8_t boxed
        uint8_t number
        own_box box
        uint8_t *gone
    ctypedef struct own_conflict:
        uint32_t access
        own_epoch epoch
        uint64_t start
        uint64_t stop
        uint32_t site
        uint64_t number
        uint8_t order
        uint8_t kind
        uint8_t loan
        uint8_t excluded
        const own_memory *memory
        uint64_t first "from"
        uint64_t upto
    ctypedef struct own_hold:
        own_memory *memory
        uint64_t start
        uint64_t stop
        uint64_t graph
        uint32_t site
        uint16_t operation
    ctypedef struct own_request:
        own_stream *stream
        own_access *accesses
        uint32_t count
        uint32_t site
        uint16_t operation
        own_export *loan
        uint8_t returns
        uint8_t passive
        own_attachment attachment
        own_snapshot issued
        own_conflict conflict
    ctypedef struct own_borrow:
        own_epoch epoch
        uint64_t start
        uint64_t stop
        uint64_t number
        uint8_t kind
    ctypedef struct own_suspect:
        own_operation operation
        uint64_t number
        uint64_t earlier
        uint8_t kind
    ctypedef struct own_books:
        uint32_t domains
        uint32_t streams
        uint32_t views

    bint own_hold_open(own_engine *engine, own_hold *hold)
    void own_hold_close(own_engine *engine, own_hold *hold)
    void own_memory_end(own_memory *memory)
    bint own_held(
        own_engine *engine, const own_memory *memory, uint64_t start, uint64_t stop,
        own_conflict *conflict)
    bint own_next_held(
        own_engine *engine, const own_memory *memory, uint64_t start, uint64_t stop,
        uint64_t after, own_conflict *conflict)
    void own_engine_end(own_engine *engine, own_domain *domain)
    bint own_is_joined(own_engine *engine, const own_stream *stream, const own_stream *other)
    bint own_are_apart(const own_access *joined, uint32_t count)
    bint own_join_accesses(
        const own_access *accesses, uint32_t count, int policy, own_access *result,
        uint32_t *found)

    ctypedef struct own_turn:
        uint64_t start
        uint64_t stop
        own_epoch last

    bint own_turn_begins(
        own_engine *engine, const own_access *access, uint16_t allocation, own_turn *turn)
    void own_turn_end(own_engine *engine, const own_access *access)
    void own_clock_drop(own_clock *clock)
    bint own_clock_join(own_clock *clock, const own_snapshot *news, own_clock **joined)
    bint own_foresee(own_engine *engine, uint32_t slot, own_clock **clock)
    void own_engine_prepare(own_engine *engine)
    void own_listen(
        own_engine *engine, void (*hears)(uint32_t slot, uint64_t seq) noexcept nogil,
        void (*learned)() noexcept nogil)
    void own_count(own_engine *engine, own_books *books)
    void own_lock_both(own_mutex *a, own_mutex *b)
    void own_unlock_both(own_mutex *a, own_mutex *b)
    void own_domain_open(own_engine *engine, own_domain *domain, bint host_excluded)
    void own_domain_lose(own_engine *engine, own_domain *domain)
    bint own_domain_close(own_engine *engine, own_domain *domain)
    own_stream *own_stream_open(own_engine *engine, own_domain *domain, int order)
    uint32_t own_unfinished(own_engine *engine, const own_domain *domain)
    bint own_stream_known(own_engine *engine, const own_stream *stream)
    void own_stream_close(own_engine *engine, own_stream *stream)
    void own_stream_drop(own_engine *engine, own_stream *stream)
    void own_stream_keep(own_engine *engine, own_stream *stream)
    void own_stream_release(own_engine *engine, own_stream *stream)
    own_stream *own_stream_reopen(own_engine *engine, uint32_t slot, uint64_t seq)
    void own_snapshot_take(own_engine *engine, const own_stream *stream, own_snapshot *snapshot)
    bint own_domain_snapshot(
        own_engine *engine, const own_domain *domain, own_snapshot *snapshot)
    void own_snapshot_copy(own_engine *engine, const own_snapshot *source, own_snapshot *target)
    void own_snapshot_drop(own_engine *engine, own_snapshot *snapshot)
    bint own_record(own_engine *engine, own_stream *stream, own_event *event)
    void own_record_as(own_engine *engine, const own_snapshot *as_of, own_event *event)
    bint own_join(own_engine *engine, own_stream *stream, const own_snapshot *news)
    bint own_wait(own_engine *engine, own_stream *stream, const own_snapshot *news)
    void own_join_host(own_engine *engine, const own_snapshot *news)
    bint own_known(own_engine *engine, uint32_t slot, uint64_t seq)
    bint own_snapshot_known(own_engine *engine, const own_snapshot *snapshot)
    bint own_snapshot_has(
        own_engine *engine, const own_snapshot *snapshot, uint32_t slot, uint64_t seq)
    void own_memory_prepare(own_memory *memory, uint64_t nbytes)
    void own_memory_clear(own_memory *memory)
    bint own_memory_reusable(
        own_engine *engine, const own_stream *stream, own_memory *memory)
    void own_memory_forget(own_engine *engine, own_memory *memory, uint16_t allocation)
    void own_memory_renew(own_memory *memory, uint64_t nbytes)
    void own_memory_prepare_used(
        own_memory *memory, uint64_t nbytes, const own_request *write)
    bint own_memory_inherit(
        own_engine *engine, own_memory *memory, const own_memory *other, int mode)
    int own_memory_free(
        own_engine *engine, own_memory *memory, bint close, own_conflict *conflict)
    int own_obstacle(
        own_engine *engine, const own_domain *domain, const own_memory *memory, own_bytes bytes,
        own_conflict *conflict)
    own_bytes own_bytes_of(const own_access *access)
    int own_begin(
        own_engine *engine, own_request *request, own_runs *runs, bint apart, bint alone)
    int own_ask(
        own_engine *engine, own_request *request, const own_runs *runs, own_clock *waited)
    void own_settle(own_engine *engine, own_request *request, own_runs *runs, bint alone)
    void own_catch_up(own_engine *engine)
    void own_undo(own_engine *engine, own_request *request)
    int own_export_open(
        own_engine *engine, const own_access *access, uint32_t site, own_export *view,
        own_conflict *conflict)
    int own_lend_open(
        own_engine *engine, const own_access *access, uint32_t site, own_stream *borrower,
        own_export *view, own_conflict *conflict)
    void own_lend_anyway(
        own_engine *engine, const own_access *access, uint32_t site, own_stream *borrower,
        own_export *view)
    void own_keep_open(
        own_engine *engine, const own_access *access, uint32_t site, own_stream *borrower,
        own_export *view)
    int own_memory_cut(
        own_engine *engine, own_memory *memory, uint64_t end, uint32_t site,
        own_conflict *conflict)
    bint own_is_cut(
        own_engine *engine, const own_memory *memory, uint64_t stop, uint32_t *site)
    void own_memory_extend(own_engine *engine, own_memory *memory, uint64_t end)
    int own_bytes_free(
        own_engine *engine, own_memory *memory, uint64_t start, uint64_t stop,
        own_conflict *conflict)
    int own_bytes_leave(
        own_engine *engine, const own_access *access, bint lost, own_conflict *conflict)
    void own_memory_return(own_engine *engine, own_memory *memory)
    int own_ask_host(
        own_engine *engine, const own_access *access, const own_clock *waited,
        own_conflict *conflict)
    void own_export_close(own_engine *engine, own_export *view)
    uint32_t own_borrows(
        own_engine *engine, own_memory *memory, own_bytes bytes, own_borrow *borrows, uint32_t fit)
    bint own_discarded(
        own_engine *engine, const own_memory *memory, own_bytes bytes, own_discard *found)
    uint64_t own_tag(const own_stream *stream)
    bint own_current(own_engine *engine, uint64_t tag, own_suspect *current)
    uint32_t own_suspects(
        own_engine *engine, const own_domain *domain, own_suspect *suspects, uint32_t fit)


cdef extern from "cudadrv/process.h" nogil:
    own_engine *engine "(&cudadrv_the_engine)"
