/* Records of a trace: what cudadrv does, noted where it happens.
 *
 * Each thread writes its records into its own ring, without a lock. trace_file.h moves them to the
 * file. Everything here is used only while `slowly` of cudadrv_table has CUDADRV_TRACES.
 *
 * Times are ticks of the processor's counter, because reading a clock of the system takes as long
 * as the rest of a record. */

#ifndef CUDADRV_TRACE_H
#define CUDADRV_TRACE_H

#include <stdint.h>
#include <time.h>
#ifdef __x86_64__
#include <x86intrin.h>
#endif

#include "process.h"

enum trace_kind {
    TRACE_OPERATION, /* one of cudadrv's operations; its borrows follow */
    TRACE_BORROW,
    TRACE_CALL,  /* a call of the driver */
    TRACE_KNOWN, /* the host knows that the work of a slot is complete */
    TRACE_RUN,   /* an operation has run, says the software driver */
    TRACE_MEMORY /* how many bytes live buffers, and the blocks of pools, have */
};

enum { TRACE_RECORDS = 1 << 15, TRACE_WAKES = TRACE_RECORDS / 2 };

typedef struct trace_record {
    uint64_t begin, end;    /* of a borrow, `end` is not a time: see trace_moved_ */
    uint64_t first, second; /* depend on the kind: see the functions that write them */
    uint64_t seq;
    uint64_t number;
    uint32_t site;
    uint32_t slot;
    int32_t status;
    uint16_t name; /* number of an operation, or of a driver function */
    uint8_t kind;
    uint8_t mode;
} trace_record;

/* Written by one thread, at `head`, and read by whoever holds the lock of the file, at `tail`. */
typedef struct trace_ring {
    uint64_t head;
    uint64_t tail;
    uint64_t room;    /* what the thread last knew: it may write up to here */
    uint64_t wait;    /* number of the thread's calls that wait, for `trace_again_` */
    int captured;     /* the thread's current operation became a node of a graph */
    uint64_t moved;   /* bytes that the thread's next operation copies: see trace_moves */
    uint32_t site;    /* the line of the thread's current record, wait or query */
    uint32_t thread;  /* number of the thread in the system */
    uint64_t session; /* the last trace that knows the thread */
    uint64_t track;   /* its track there */
    int used;         /* the thread lives */
    struct trace_ring *next;
    trace_record records[TRACE_RECORDS];
} trace_ring;

/* Functions of Cython modules that are called only while a trace is written. The module
 * cudadrv._trace fills in its own when it is imported, which the first trace does. A call through a
 * pointer is never inlined, so functions that call these need no more registers. */
typedef struct trace_hooks {
    void (*name_request)(const own_request *request, const own_stream *stream, size_t raw);
    void (*note_line)(const own_stream *stream, size_t raw);
    /* `label` is a str. `kept` is how many bytes all pools keep. */
    void (*begin_memory)(own_memory *state, void *label, size_t nbytes, uint32_t site, size_t kept);
    void (*end_memory)(own_memory *state, size_t nbytes, size_t kept);
    /* cudadrv._memory sets these. They call the two functions above for a Memory. */
    void (*memory_begins)(void *memory);
    void (*memory_ends)(void *memory);
} trace_hooks;

extern CUDADRV_HIDDEN trace_hooks trace_calls;

extern CUDADRV_HIDDEN __thread trace_ring *trace_mine;
CUDADRV_HIDDEN trace_ring *trace_new_ring(void);
CUDADRV_HIDDEN int trace_make_room(trace_ring *ring);
CUDADRV_HIDDEN void trace_wake(void);

static inline uint64_t trace_nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static inline uint64_t trace_ticks(void) {
#if defined(__x86_64__)
    return __rdtsc();
#elif defined(__aarch64__)
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
    return trace_nanoseconds();
#endif
}

/* Returns the ring of the thread, or NULL if there is no memory for one. */
static inline trace_ring *trace_ring_of_thread(void) {
    return __builtin_expect(trace_mine != NULL, 1) ? trace_mine : trace_new_ring();
}

/* Returns a record to fill in, or NULL if no trace is written. trace_put ends it. */
static inline trace_record *trace_take(trace_ring *ring) {
    if (__builtin_expect(ring->head == ring->room, 0) && !trace_make_room(ring)) {
        return NULL;
    }
    return &ring->records[ring->head % TRACE_RECORDS];
}

static inline void trace_put(trace_ring *ring) {
    const uint64_t head = ring->head + 1;
    __atomic_store_n(&ring->head, head, __ATOMIC_RELEASE);
    if (__builtin_expect(head % TRACE_WAKES == 0, 0)) {
        trace_wake();
    }
}

/* Notes that the thread's current operation became a node of a graph: nothing was queued. */
static inline void trace_captured(void) {
    trace_ring *ring = trace_ring_of_thread();
    if (ring) {
        ring->captured = 1;
    }
}

/* Returns how many bytes a copy moves by one of its accesses, or 0 if that is as many as the access
 * has from its start to its stop and writes. If nothing that is written has a number in the trace,
 * such as an array of NumPy, what is read says how many bytes were moved. */
static inline uint64_t trace_moved_(const own_request *request, const own_access *access) {
    int counts = access->mode == OWN_WRITE;
    if (access->mode == OWN_READ) {
        counts = 1;
        for (uint32_t i = 0; i < request->count; i++) {
            const own_access *other = &request->accesses[i];
            counts &= other->mode == OWN_READ || !other->memory->traced;
        }
    } else if (!access->boxed) {
        return 0;
    }
    const uint64_t nbytes = access->boxed
                                ? access->box.width * access->box.rows * access->box.slices
                                : access->stop - access->start;
    return counts ? nbytes : 0;
}

/* Notes an operation that was issued, refused or captured, with its borrows. `reason` is what
 * `issue` returns: 0 if it is queued or captured. */
static __attribute__((noinline, cold, unused)) void trace_operation(const own_request *request,
                                                                    uint64_t begin, int reason) {
    trace_ring *ring = trace_ring_of_thread();
    trace_record *record = ring ? trace_take(ring) : NULL;
    if (!record) {
        return;
    }
    const int captured = ring->captured, queued = reason == 0 && !captured;
    const uint64_t moved = ring->moved;
    ring->moved = 0;
    ring->captured = 0;
    const uint64_t seq = queued ? request->issued.seq : 0;
    /* The driver call is usually the thread's last record, and has just ended. */
    const trace_record *last = &ring->records[(ring->head - 1) % TRACE_RECORDS];
    const int just_now = last->kind == TRACE_CALL && last->begin > begin;
    *record = (trace_record){begin,
                             just_now ? last->end : trace_ticks(),
                             0,
                             0,
                             seq,
                             request->stream->number,
                             request->site,
                             request->stream->slot,
                             reason,
                             request->operation,
                             TRACE_OPERATION,
                             (uint8_t)captured};
    trace_put(ring);
    for (uint32_t i = 0; queued && i < request->count; i++) {
        const own_access *access = &request->accesses[i];
        if (access->memory->traced && (record = trace_take(ring))) {
            *record = (trace_record){begin,
                                     moved ? moved : trace_moved_(request, access),
                                     access->start,
                                     access->stop,
                                     seq,
                                     access->memory->traced,
                                     request->site,
                                     request->stream->slot,
                                     0,
                                     request->operation,
                                     TRACE_BORROW,
                                     access->mode};
            trace_put(ring);
        }
    }
}

static inline void trace_known(uint32_t slot, uint64_t seq) {
    trace_ring *ring = trace_ring_of_thread();
    trace_record *record = ring ? trace_take(ring) : NULL;
    if (record) {
        record->begin = trace_ticks();
        record->kind = TRACE_KNOWN;
        record->slot = slot;
        record->seq = seq;
        trace_put(ring);
    }
}

static inline void trace_memory(uint64_t live, uint64_t kept) {
    trace_ring *ring = trace_ring_of_thread();
    trace_record *record = ring ? trace_take(ring) : NULL;
    if (record) {
        record->begin = trace_ticks();
        record->kind = TRACE_MEMORY;
        record->first = live;
        record->second = kept;
        trace_put(ring);
    }
}

/* Notes how many bytes the thread's next operation copies, if that is not what it borrows: a chunk
 * of a copy through stages borrows all of the buffer. */
static inline void trace_moves(uint64_t nbytes) {
    trace_ring *ring = trace_ring_of_thread();
    if (ring) {
        ring->moved = nbytes;
    }
}

/* Notes the line of a call that records an event or waits. The trace shows this line with the
 * driver calls that follow in this thread. */
static inline void trace_line(uint32_t site) {
    trace_ring *ring = trace_ring_of_thread();
    if (ring) {
        ring->site = site;
        ring->wait++;
    }
}

#endif
