/* Records each decision of the engine in the order in which the engine makes them.
 *
 * A build with `-include tests/ownership/recorded.h` replaces the functions of the engine by the
 * functions at the end of this file, which call them and note the call and its answer. A decision
 * gets its number while the thread has the engine's lock, before it gives the lock back. replay.py
 * makes the same calls on the oracle in the order of these numbers. */

/* CFLAGS are also for sources that do not use the engine. */
#if !defined(CUDADRV_RECORDED_H) && !defined(__cplusplus) && __has_include("cudadrv/ownership.h")
#define CUDADRV_RECORDED_H

#include "scheduled.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* One entry of the record: a call, or one access of a call. The accesses of a call come before the
 * call, and have the same turn. Objects are recorded by address. replay.py has the same fields. */
typedef struct recorded {
    uint64_t turn;
    uint64_t stream, domain; /* the domain is that of the stream, if there is a stream */
    uint64_t memory, view;
    uint64_t start, stop;
    uint64_t clock, seq;                        /* a snapshot */
    uint64_t width, pitch, rows, slice, slices; /* the box of an access; 0 if it has none */
    uint32_t slot;
    uint32_t site, blamed; /* call sites of the call, and of the conflict */
    uint8_t call, answer;
    uint8_t mode, policy, effect;
    uint8_t order; /* own_order of the stream */
    uint8_t flags;
    uint8_t thread;
} recorded;

enum recorded_call {
    RECORDED_ACCESS,
    RECORDED_OPEN_STREAM,
    RECORDED_CLOSE_STREAM,
    RECORDED_OPEN_MEMORY,
    RECORDED_OPEN_WRITTEN,
    RECORDED_FORGET,
    RECORDED_BEGIN,
    RECORDED_SETTLE,
    RECORDED_UNDO,
    RECORDED_KEPT,
    RECORDED_RECORD,
    RECORDED_SNAPSHOT,
    RECORDED_DOMAIN_SNAPSHOT,
    RECORDED_WAIT,
    RECORDED_JOIN,
    RECORDED_JOIN_HOST,
    RECORDED_EXPORT,
    RECORDED_LEND,
    RECORDED_CLOSE_EXPORT,
    RECORDED_CLOSE_MEMORY,
    RECORDED_MEMORY_FREE,
    RECORDED_BYTES_FREE,
    RECORDED_BORROWED,
    RECORDED_DISCARDED,
    RECORDED_KNOWN,
    RECORDED_STREAM_KNOWN,
    RECORDED_SNAPSHOT_KNOWN,
    RECORDED_OTHER /* a call that replay.py does not know */
};

enum recorded_flag {
    RECORDED_PASSIVE = 1,
    RECORDED_RETURNS = 2,
    RECORDED_MANAGED = 4,
    RECORDED_EXCLUDED = 8 /* work of the domain excludes the host */
};

typedef struct recorded_book {
    recorded *all;    /* NULL: nothing is recorded */
    uint64_t fit;     /* capacity */
    uint64_t count;   /* atomic */
    uint64_t turn;    /* atomic: number of the last decision */
    uint32_t threads; /* atomic */
} recorded_book;

SCHEDULED_SHARED recorded_book recorded_log;
SCHEDULED_SHARED _Thread_local uint64_t recorded_turn; /* number of this thread's last decision */
SCHEDULED_SHARED _Thread_local uint8_t recorded_by;    /* number of this thread in the record */

/* Begins a record that has room for so many calls and accesses, while no thread is in the engine.
 * All work so far must be known to be complete, and there must be no views. */
SCHEDULED_SHARED void recorded_begin_log(uint64_t fit) {
    free(recorded_log.all);
    recorded_log = (recorded_book){.all = calloc(fit, sizeof(recorded)), .fit = fit};
    if (!recorded_log.all) {
        abort();
    }
}

/* Gives the next decision a number. */
static inline void recorded_number(void) {
    recorded_turn = __atomic_add_fetch(&recorded_log.turn, 1, __ATOMIC_SEQ_CST);
}

/* Returns room for a call with so many accesses. */
static inline recorded *recorded_new(uint32_t accesses) {
    uint64_t at = __atomic_fetch_add(&recorded_log.count, accesses + 1, __ATOMIC_RELAXED);
    if (at + accesses >= recorded_log.fit) {
        fprintf(stderr, "recorded.h: there is no room for more than %llu calls\n",
                (unsigned long long)recorded_log.fit);
        abort();
    }
    if (!recorded_by) {
        recorded_by = (uint8_t)__atomic_add_fetch(&recorded_log.threads, 1, __ATOMIC_RELAXED);
    }
    return &recorded_log.all[at];
}

/* Writes the record to a file and ends it, while no thread is in the engine. */
SCHEDULED_SHARED void recorded_write(const char *path) {
    FILE *file = fopen(path, "wb");
    size_t count = (size_t)recorded_log.count;
    if (!file || fwrite(recorded_log.all, sizeof(recorded), count, file) != count || fclose(file)) {
        perror(path);
        abort();
    }
    free(recorded_log.all);
    recorded_log.all = NULL;
}

static void recorded_note_kept(void);
struct own_request;
/* The request that this thread undoes, or NULL. */
SCHEDULED_SHARED _Thread_local const struct own_request *recorded_ends;

/* Called while a thread has a mutex, before it gives it back. */
static inline void recorded_before_give(void) {
    if (recorded_log.all) {
        recorded_number();
        if (recorded_ends) {
            recorded_note_kept();
        }
    }
}

#define OWN_BEFORE_TAKE(mutex) scheduled_before_take(&(mutex)->state)
#define OWN_BEFORE_GIVE(mutex) recorded_before_give()
#define OWN_COPIES
#include "cudadrv/ownership.h"

SCHEDULED_SHARED _Thread_local own_id recorded_ended; /* the operation of `recorded_ends` */

#define RECORDED_AT(thing) ((uint64_t)(uintptr_t)(thing))

static inline void recorded_put(recorded one) {
    if (recorded_log.all) {
        recorded *place = recorded_new(0);
        one.turn = recorded_turn;
        one.thread = recorded_by;
        *place = one;
    }
}

/* Fills in bytes of memory. */
static inline recorded recorded_bytes(own_bytes bytes, recorded one) {
    one.start = bytes.start;
    one.stop = bytes.stop;
    if (bytes.box) {
        one.width = bytes.box->width;
        one.pitch = bytes.box->pitch;
        one.rows = bytes.box->rows;
        one.slice = bytes.box->slice;
        one.slices = bytes.box->slices;
    }
    return one;
}

static inline recorded recorded_access(const own_access *access) {
    recorded one = {.turn = recorded_turn,
                    .call = RECORDED_ACCESS,
                    .memory = RECORDED_AT(access->memory),
                    .mode = access->mode,
                    .policy = access->policy,
                    .effect = access->effect,
                    .flags = access->memory->managed ? RECORDED_MANAGED : 0,
                    .thread = recorded_by};
    return recorded_bytes(own_bytes_of(access), one);
}

/* Returns the call site that a refusal blames, or 0. */
static inline uint32_t recorded_blamed(int answer, const own_conflict *conflict) {
    switch (answer) {
    case OWN_EXPORTED:
    case OWN_DISCARDED:
    case OWN_ATTACHED:
        return conflict->site;
    case OWN_BORROWED:
    case OWN_MUST_WAIT:
        return conflict->epoch.site;
    default:
        return 0;
    }
}

/* Notes the bytes that stay borrowed by the operation that this thread undoes. */
static void recorded_note_kept(void) {
    for (uint32_t i = 0; i < recorded_ends->count; i++) {
        const own_access *access = &recorded_ends->accesses[i];
        own_memory *memory = access->memory;
        for (uint32_t r = 0; r < memory->count; r++) {
            const own_epoch *epochs = own_epochs(&memory->ranges[r]);
            for (uint32_t k = 0; k < memory->ranges[r].count; k++) {
                if (epochs[k].slot == recorded_ended.slot && epochs[k].seq == recorded_ended.seq) {
                    const own_bytes kept = own_bytes_at_(memory, r, &epochs[k]);
                    recorded_put(recorded_bytes(kept, (recorded){.call = RECORDED_KEPT,
                                                                 .memory = RECORDED_AT(memory),
                                                                 .mode = epochs[k].mode}));
                }
            }
        }
    }
}

static inline recorded recorded_snapshot(int call, const own_snapshot *snapshot) {
    return (recorded){.call = (uint8_t)call,
                      .clock = RECORDED_AT(snapshot->clock),
                      .seq = snapshot->seq,
                      .slot = snapshot->slot};
}

static inline uint8_t recorded_domain_flags(const own_domain *domain) {
    return domain->host_excluded ? RECORDED_EXCLUDED : 0;
}

/* Fills in the stream of a call. */
static inline recorded recorded_on(const own_stream *stream, recorded one) {
    one.stream = RECORDED_AT(stream);
    one.domain = RECORDED_AT(stream->domain);
    one.order = stream->order;
    one.flags |= recorded_domain_flags(stream->domain);
    return one;
}

static inline void recorded_put_on(int call, const own_stream *stream, int answer) {
    recorded_put(recorded_on(stream, (recorded){.call = (uint8_t)call, .answer = (uint8_t)answer}));
}

/* Notes a call with a stream and a snapshot. */
static inline void recorded_put_snapshot(int call, const own_stream *stream,
                                         const own_snapshot *snapshot) {
    recorded_put(recorded_on(stream, recorded_snapshot(call, snapshot)));
}

static inline uint8_t recorded_flags(const own_request *request) {
    return (uint8_t)((request->passive ? RECORDED_PASSIVE : 0) |
                     (request->returns ? RECORDED_RETURNS : 0));
}

/* Notes a call with one access. `borrower` is NULL, or the stream of a loan. */
static inline void recorded_put_access(int call, const own_access *access, uint32_t site,
                                       const own_stream *borrower, const own_export *view,
                                       int answer, const own_conflict *conflict) {
    recorded one = recorded_access(access);
    one = borrower ? recorded_on(borrower, one) : one;
    one.call = (uint8_t)call;
    one.view = RECORDED_AT(view);
    one.site = site;
    one.answer = (uint8_t)answer;
    one.blamed = recorded_blamed(answer, conflict);
    recorded_put(one);
}

/* Notes a call about some bytes. */
static inline void recorded_put_bytes(int call, const own_memory *memory, uint64_t start,
                                      uint64_t stop, int answer, uint32_t blamed) {
    recorded_put((recorded){.call = (uint8_t)call,
                            .memory = RECORDED_AT(memory),
                            .start = start,
                            .stop = stop,
                            .answer = (uint8_t)answer,
                            .blamed = blamed});
}

/* Notes a call that takes no lock. */
static inline void recorded_put_unlocked(recorded one) {
    if (recorded_log.all) {
        recorded_number();
        recorded_put(one);
    }
}

/* ---- the functions of the engine, recorded ---- */

static inline own_stream *recorded_own_stream_open(own_engine *engine, own_domain *domain,
                                                   int order) {
    own_stream *stream = own_stream_open(engine, domain, order);
    if (stream) {
        recorded one = recorded_on(stream, (recorded){.call = RECORDED_OPEN_STREAM});
        one.start = own_tag(stream);
        recorded_put(one);
    }
    return stream;
}

static inline void recorded_own_stream_close(own_engine *engine, own_stream *stream) {
    own_stream_close(engine, stream);
    recorded_put_on(RECORDED_CLOSE_STREAM, stream, 0);
}

static inline int recorded_own_stream_known(own_engine *engine, const own_stream *stream) {
    int known = own_stream_known(engine, stream);
    recorded_put_on(RECORDED_STREAM_KNOWN, stream, known);
    return known;
}

static inline void recorded_own_memory_prepare(own_memory *memory, uint64_t nbytes) {
    own_memory_prepare(memory, nbytes);
    recorded_put_unlocked(
        (recorded){.call = RECORDED_OPEN_MEMORY, .memory = RECORDED_AT(memory), .stop = nbytes});
}

static inline void recorded_own_memory_prepare_used(own_memory *memory, uint64_t nbytes,
                                                    const own_request *write) {
    own_memory_prepare_used(memory, nbytes, write);
    recorded one =
        recorded_on(write->stream, recorded_snapshot(RECORDED_OPEN_WRITTEN, &write->issued));
    one.memory = RECORDED_AT(memory);
    one.stop = nbytes;
    one.site = write->site;
    recorded_put_unlocked(one);
}

static inline void recorded_own_memory_forget(own_engine *engine, own_memory *memory,
                                              uint16_t allocation) {
    own_memory_forget(engine, memory, allocation);
    recorded_put_bytes(RECORDED_FORGET, memory, 0, memory->nbytes,
                       memory->count == 1 && memory->ranges[0].count == 0, 0);
}

static inline void recorded_own_memory_renew(own_memory *memory, uint64_t nbytes) {
    own_memory_clear(memory);
    recorded_own_memory_prepare(memory, nbytes);
}

/* Notes that the program makes a call that replay.py does not know, on the given line. */
static inline void recorded_other(uint32_t line) {
    recorded_put_unlocked((recorded){.call = RECORDED_OTHER, .site = line});
}

/* replay.py does not know the fast path of a program's only thread (`alone`), or `own_runs`. */
static inline int recorded_own_begin(uint32_t line, own_engine *engine, own_request *request,
                                     own_runs *runs, int apart, int alone) {
    int answer = own_begin(engine, request, runs, apart, alone);
    if (runs || alone) {
        recorded_other(line);
    } else if (recorded_log.all) {
        recorded *place = recorded_new(request->count);
        for (uint32_t i = 0; i < request->count; i++) {
            *place++ = recorded_access(&request->accesses[i]);
        }
        recorded one =
            recorded_on(request->stream, recorded_snapshot(RECORDED_BEGIN, &request->issued));
        one.turn = recorded_turn;
        one.thread = recorded_by;
        one.view = RECORDED_AT(request->loan);
        one.start = request->attachment.stream;
        one.site = request->site;
        one.blamed = recorded_blamed(answer, &request->conflict);
        one.answer = (uint8_t)answer;
        one.flags |= recorded_flags(request);
        *place = one;
    }
    return answer;
}

static inline void recorded_own_settle(own_engine *engine, own_request *request, own_runs *runs,
                                       int alone) {
    own_settle(engine, request, runs, alone);
    recorded one =
        recorded_on(request->stream, recorded_snapshot(RECORDED_SETTLE, &request->issued));
    one.flags |= recorded_flags(request);
    recorded_put(one);
}

static inline void recorded_own_undo(own_engine *engine, own_request *request) {
    recorded_ended = (own_id){request->issued.seq, request->issued.slot};
    recorded_ends = request;
    own_undo(engine, request);
    recorded_ends = NULL;
    recorded_put_on(RECORDED_UNDO, request->stream, request->stream->seq == recorded_ended.seq);
}

static inline int recorded_own_record(own_engine *engine, own_stream *stream, own_event *event) {
    int ok = own_record(engine, stream, event);
    if (ok) {
        recorded_put_snapshot(RECORDED_RECORD, stream, &event->snapshot);
    }
    return ok;
}

static inline void recorded_own_snapshot_take(own_engine *engine, const own_stream *stream,
                                              own_snapshot *snapshot) {
    own_snapshot_take(engine, stream, snapshot);
    recorded_put_snapshot(RECORDED_SNAPSHOT, stream, snapshot);
}

static inline int recorded_own_domain_snapshot(own_engine *engine, const own_domain *domain,
                                               own_snapshot *snapshot) {
    int ok = own_domain_snapshot(engine, domain, snapshot);
    if (ok) {
        recorded one = recorded_snapshot(RECORDED_DOMAIN_SNAPSHOT, snapshot);
        one.domain = RECORDED_AT(domain);
        one.flags = recorded_domain_flags(domain);
        recorded_put(one);
    }
    return ok;
}

static inline int recorded_own_wait(own_engine *engine, own_stream *stream,
                                    const own_snapshot *news) {
    int ok = own_wait(engine, stream, news);
    if (ok) {
        recorded_put_snapshot(RECORDED_WAIT, stream, news);
    }
    return ok;
}

static inline int recorded_own_join(own_engine *engine, own_stream *stream,
                                    const own_snapshot *news) {
    int ok = own_join(engine, stream, news);
    if (ok) {
        recorded_put_snapshot(RECORDED_JOIN, stream, news);
    }
    return ok;
}

static inline void recorded_own_join_host(own_engine *engine, const own_snapshot *news) {
    own_join_host(engine, news);
    recorded_put(recorded_snapshot(RECORDED_JOIN_HOST, news));
}

static inline int recorded_own_known(own_engine *engine, uint32_t slot, uint64_t seq) {
    int known = own_known(engine, slot, seq);
    recorded_put(
        (recorded){.call = RECORDED_KNOWN, .slot = slot, .seq = seq, .answer = (uint8_t)known});
    return known;
}

static inline int recorded_own_snapshot_known(own_engine *engine, const own_snapshot *snapshot) {
    int known = own_snapshot_known(engine, snapshot);
    recorded one = recorded_snapshot(RECORDED_SNAPSHOT_KNOWN, snapshot);
    one.answer = (uint8_t)known;
    recorded_put(one);
    return known;
}

static inline int recorded_own_export_open(own_engine *engine, const own_access *access,
                                           uint32_t site, own_export *view,
                                           own_conflict *conflict) {
    int answer = own_export_open(engine, access, site, view, conflict);
    recorded_put_access(RECORDED_EXPORT, access, site, NULL, view, answer, conflict);
    return answer;
}

static inline int recorded_own_lend_open(own_engine *engine, const own_access *access,
                                         uint32_t site, own_stream *borrower, own_export *view,
                                         own_conflict *conflict) {
    int answer = own_lend_open(engine, access, site, borrower, view, conflict);
    recorded_put_access(RECORDED_LEND, access, site, borrower, view, answer, conflict);
    return answer;
}

static inline void recorded_own_export_close(own_engine *engine, own_export *view) {
    own_export_close(engine, view);
    recorded_put((recorded){.call = RECORDED_CLOSE_EXPORT, .view = RECORDED_AT(view)});
}

static inline int recorded_own_memory_free(own_engine *engine, own_memory *memory, int close,
                                           own_conflict *conflict) {
    int answer = own_memory_free(engine, memory, close, conflict);
    recorded_put_bytes(close ? RECORDED_CLOSE_MEMORY : RECORDED_MEMORY_FREE, memory, 0,
                       memory->nbytes, answer, 0);
    return answer;
}

static inline int recorded_own_bytes_free(own_engine *engine, own_memory *memory, uint64_t start,
                                          uint64_t stop, own_conflict *conflict) {
    int answer = own_bytes_free(engine, memory, start, stop, conflict);
    recorded_put_bytes(RECORDED_BYTES_FREE, memory, start, stop, answer, 0);
    return answer;
}

static inline uint32_t recorded_own_borrows(own_engine *engine, own_memory *memory, own_bytes bytes,
                                            own_borrow *borrows, uint32_t fit) {
    uint32_t found = own_borrows(engine, memory, bytes, borrows, fit);
    recorded_put_bytes(RECORDED_BORROWED, memory, bytes.start, bytes.stop, found > 0, 0);
    return found;
}

static inline int recorded_own_discarded(own_engine *engine, const own_memory *memory,
                                         own_bytes bytes, own_discard *found) {
    int any = own_discarded(engine, memory, bytes, found);
    recorded_put_bytes(RECORDED_DISCARDED, memory, bytes.start, bytes.stop, any,
                       any ? found->site : 0);
    return any;
}

#define own_stream_open(...) recorded_own_stream_open(__VA_ARGS__)
#define own_stream_close(...) recorded_own_stream_close(__VA_ARGS__)
#define own_stream_known(...) recorded_own_stream_known(__VA_ARGS__)
#define own_memory_prepare(...) recorded_own_memory_prepare(__VA_ARGS__)
#define own_begin(...) recorded_own_begin(__LINE__, __VA_ARGS__)
#define own_settle(...) recorded_own_settle(__VA_ARGS__)
#define own_undo(...) recorded_own_undo(__VA_ARGS__)
#define own_record(...) recorded_own_record(__VA_ARGS__)
#define own_snapshot_take(...) recorded_own_snapshot_take(__VA_ARGS__)
#define own_domain_snapshot(...) recorded_own_domain_snapshot(__VA_ARGS__)
#define own_wait(...) recorded_own_wait(__VA_ARGS__)
#define own_join_host(...) recorded_own_join_host(__VA_ARGS__)
#define own_snapshot_known(...) recorded_own_snapshot_known(__VA_ARGS__)
#define own_export_open(...) recorded_own_export_open(__VA_ARGS__)
#define own_lend_open(...) recorded_own_lend_open(__VA_ARGS__)
#define own_export_close(...) recorded_own_export_close(__VA_ARGS__)
#define own_memory_free(...) recorded_own_memory_free(__VA_ARGS__)
#define own_bytes_free(...) recorded_own_bytes_free(__VA_ARGS__)
#define own_borrows(...) recorded_own_borrows(__VA_ARGS__)
#define own_discarded(...) recorded_own_discarded(__VA_ARGS__)
#define own_memory_renew(...) recorded_own_memory_renew(__VA_ARGS__)
#define own_join(...) recorded_own_join(__VA_ARGS__)
#define own_known(...) recorded_own_known(__VA_ARGS__)
#define own_memory_prepare_used(...) recorded_own_memory_prepare_used(__VA_ARGS__)
#define own_memory_forget(...) recorded_own_memory_forget(__VA_ARGS__)
#define own_memory_inherit(...) (recorded_other(__LINE__), own_memory_inherit(__VA_ARGS__))
#define own_memory_cut(...) (recorded_other(__LINE__), own_memory_cut(__VA_ARGS__))
#define own_memory_extend(...) (recorded_other(__LINE__), own_memory_extend(__VA_ARGS__))
#define own_bytes_leave(...) (recorded_other(__LINE__), own_bytes_leave(__VA_ARGS__))
#define own_lend_anyway(...) (recorded_other(__LINE__), own_lend_anyway(__VA_ARGS__))
#define own_keep_open(...) (recorded_other(__LINE__), own_keep_open(__VA_ARGS__))
#define own_hold_open(...) (recorded_other(__LINE__), own_hold_open(__VA_ARGS__))
#define own_stream_reopen(...) (recorded_other(__LINE__), own_stream_reopen(__VA_ARGS__))
#define own_domain_lose(...) (recorded_other(__LINE__), own_domain_lose(__VA_ARGS__))

#endif
