/* Streams, their slots, and the host's clock: the data on which the rest of the engine works.
 *
 * Every stream has a slot. The operations of a slot are numbered continuously, even when another
 * stream takes over the slot, so an old epoch can never be mistaken for a new one.
 *
 * Locks: the `issue` lock of a stream is held from the check of an operation until the driver
 * has it. Callers take it. Nobody waits for it while holding the engine's lock, or while holding
 * the GIL if another Python thread could have it. The engine's own lock guards everything else
 * here. It is held for a few instructions, never across a driver call. The fast path does not take
 * it (`alone` in borrow.h), because no other thread can be in the engine then. */

#ifndef CUDADRV_ENGINE_H
#define CUDADRV_ENGINE_H

#include "clock.h"
#include "mutex.h"

enum own_order { OWN_NON_BLOCKING, OWN_BLOCKING, OWN_LEGACY };
enum own_state { OWN_OPEN, OWN_CLOSED, OWN_RETIRED }; /* closed streams may have unfinished work */
enum { OWN_RECENT = 32 }; /* a stream keeps the call sites of this many operations */

/* The kind of a stream. Messages need it to name the stream and to tell the program how it can wait
 * for the stream. */
enum own_kind {
    OWN_PLAIN,
    OWN_DEFAULT,    /* the legacy default stream */
    OWN_PER_THREAD, /* a per-thread default stream: only one thread can use it */
    OWN_INTERNAL,   /* a stream of the library itself; no program can use it */
    OWN_ELSEWHERE,  /* stands for the work of other processes; no program can use it */
    OWN_ENDED       /* closed or retired */
};

typedef struct own_operation {
    uint64_t seq;
    uint32_t site;
    uint16_t operation;
} own_operation;

struct own_stream;
struct own_export;

/* A context. The default streams' rules order the streams of a context among each other. */
typedef struct own_domain {
    struct own_stream *streams; /* list of the streams that are not retired */
    struct own_stream *legacy;
    own_mutex blocking_issue; /* the issue lock of all blocking streams and of the legacy stream */
    /* What retired streams had waited for. A wait for the context also waits for this. */
    own_clock *inherited;
    struct own_domain *next;
    uint8_t host_excluded; /* while work is in flight, the host cannot access managed memory */
    uint8_t lost;          /* the context is lost, so nothing runs in it any more */
} own_domain;

typedef struct own_stream {
    own_mutex own_issue;
    uint32_t slot;
    own_mutex *issue;
    own_domain *domain;
    own_clock *clock; /* everything that the stream has waited for */
    /* Number of the last operation. The first number follows the last one of the slot's former
     * streams. */
    uint64_t seq;
    uint64_t settled; /* number of the last operation that the driver has */
    uint8_t order;
    uint8_t state;
    /* The program has dropped its last reference to this closed stream. The struct is freed when
     * the stream retires. */
    uint8_t orphaned;
    /* No reference is left to the stream, but it stays open until closing it cannot block. */
    uint8_t dropped;
    uint8_t kind;   /* an own_kind; valid while the stream is open */
    uint32_t loans; /* number of loans of memory to this stream */
    uint32_t taken; /* number of these loans whose bytes others may use: see own_keep_open */
    /* The value of `uses` of the legacy stream when the default streams' rules last ordered this
     * stream after the legacy stream. */
    uint64_t legacy_seen;
    uint64_t uses; /* number of records, waits, and operations that are not passive */
    /* The value of `settled` before the first passive operation since the last use. Only valid if
     * `passive` is `uses` + 1. */
    uint64_t before;
    uint64_t passive; /* `uses` + 1 if there were passive operations since the last use */
    uint64_t number;  /* number that names the stream in messages, as in "Stream 3" */
    struct own_stream *next;
    uint64_t traced; /* the last trace that knows the name of the stream */
    own_operation recent[OWN_RECENT];
} own_stream;

typedef struct own_event {
    own_mutex issue;
    own_snapshot snapshot;
    uint64_t recorded; /* how often the event was recorded */
} own_event;

typedef struct own_slot {
    own_stream *stream;
    uint64_t seq; /* number of the last operation of the slot's former streams */
    /* The host's clock: the host knows that the slot's operations up to this number are complete.
     */
    uint64_t done;
} own_slot;

typedef struct own_engine {
    own_mutex lock;
    own_slot *slots;
    uint32_t size;
    uint64_t streams;  /* number of streams ever opened */
    uint32_t requests; /* number of the last request of own_may_need_malloc_; it is even */
    own_domain *domains;
    struct own_export *managed; /* live host views of managed memory */
    struct own_runs *runs;      /* the last operation, if its epochs may be renewed: see runs.h */
    /* Called when the host learns that operations are complete; each may be NULL. `hears` is called
     * with the lock held, for the operations of a slot up to `seq`, and `learned` afterwards,
     * without the lock. own_listen sets them. */
    void (*hears)(uint32_t slot, uint64_t seq);
    void (*learned)(void);
    int listened; /* one of the two is not NULL */
} own_engine;

static inline void own_engine_prepare(own_engine *engine) { memset(engine, 0, sizeof *engine); }

OWN_ONCE void own_catch_up_(own_engine *engine);

static inline void own_listen(own_engine *engine, void (*hears)(uint32_t slot, uint64_t seq),
                              void (*learned)(void)) {
    engine->hears = hears;
    engine->learned = learned;
    engine->listened = hears || learned;
}

/* Takes the lock for a function that uses only clocks and slots. */
static inline void own_lock_clocks(own_engine *engine) { own_mutex_take(&engine->lock); }

static inline void own_lock(own_engine *engine) {
    own_lock_clocks(engine);
    if (__builtin_expect(engine->runs != NULL, 0)) {
        own_catch_up_(engine);
    }
}

static inline void own_unlock(own_engine *engine) { own_mutex_give(&engine->lock); }

/* Takes both locks, in the order of their addresses. They may be the same lock. */
static inline void own_lock_both(own_mutex *a, own_mutex *b) {
    own_mutex *first = a < b ? a : b, *second = a < b ? b : a;
    own_mutex_take(first);
    if (second != first) {
        own_mutex_take(second);
    }
}

static inline void own_unlock_both(own_mutex *a, own_mutex *b) {
    own_mutex_give(a);
    if (b != a) {
        own_mutex_give(b);
    }
}

/* ---- domains and streams ---- */

static inline void own_domain_open(own_engine *engine, own_domain *domain, int host_excluded) {
    memset(domain, 0, sizeof *domain);
    domain->host_excluded = (uint8_t)host_excluded;
    own_lock(engine);
    domain->next = engine->domains;
    engine->domains = domain;
    own_unlock(engine);
}

static inline int own_known_(const own_engine *engine, uint32_t slot, uint64_t seq) {
    return engine->slots[slot].done >= seq;
}

/* Returns whether the host knows that everything in the clock is complete. */
static inline int own_clock_known_(const own_engine *engine, const own_clock *clock) {
    for (uint32_t i = 0; clock && i < clock->size; i++) {
        if (!own_known_(engine, i, clock->seq[i])) {
            return 0;
        }
    }
    return 1;
}

/* Joins the clock of a retiring stream into `inherited` of its domain. All operations of the stream
 * are complete, but the work that it waited for may be unfinished, because a wait is not an
 * operation. If malloc fails, nothing is joined, and a wait for the context then tells the host
 * less. */
static inline void own_bequeath_(const own_engine *engine, const own_stream *stream) {
    const own_snapshot waited = {stream->clock, 0, 0};
    own_clock *joined;
    if (!own_clock_known_(engine, stream->clock) &&
        own_clock_join(stream->domain->inherited, &waited, &joined)) {
        own_clock_drop(stream->domain->inherited);
        stream->domain->inherited = joined;
    }
}

/* Retires a closed stream whose work is known to be complete. Another stream can then take its
 * slot. */
static inline void own_retire_(own_engine *engine, own_stream *stream) {
    own_slot *slot = &engine->slots[stream->slot];
    own_stream **link = &stream->domain->streams;
    while (*link != stream) {
        link = &(*link)->next;
    }
    *link = stream->next;
    slot->seq = stream->seq;
    slot->stream = NULL;
    own_bequeath_(engine, stream);
    own_clock_drop(stream->clock);
    stream->clock = NULL;
    stream->state = OWN_RETIRED;
    if (stream->orphaned) {
        free(stream);
    }
}

static inline void own_retire_finished_(own_engine *engine) {
    for (uint32_t i = 0; i < engine->size; i++) {
        own_stream *stream = engine->slots[i].stream;
        if (stream && stream->state == OWN_CLOSED && engine->slots[i].done >= stream->seq) {
            own_retire_(engine, stream);
        }
    }
}

/* Call this when the context has ended and no reference to its streams is left. Returns 1 if the
 * caller can free the domain. Returns 0 if closed streams of the domain have work that is not known
 * to be complete. */
static inline int own_domain_close(own_engine *engine, own_domain *domain) {
    own_lock(engine);
    own_retire_finished_(engine);
    int finished = domain->streams == NULL;
    if (finished) {
        own_domain **link = &engine->domains;
        while (*link != domain) {
            link = &(*link)->next;
        }
        *link = domain->next;
        own_clock_drop(domain->inherited);
        domain->inherited = NULL;
    }
    own_unlock(engine);
    return finished;
}

static inline int own_free_slot_(own_engine *engine, uint32_t *index) {
    own_retire_finished_(engine);
    for (*index = 0; *index < engine->size; ++*index) {
        if (!engine->slots[*index].stream) {
            return 1;
        }
    }
    uint32_t size = engine->size ? 2 * engine->size : 8;
    own_slot *slots = realloc(engine->slots, size * sizeof *slots);
    if (!slots) {
        return 0;
    }
    memset(slots + engine->size, 0, (size - engine->size) * sizeof *slots);
    engine->slots = slots;
    engine->size = size;
    return 1;
}

/* Opens a stream. Returns NULL if malloc fails. */
static inline own_stream *own_stream_open(own_engine *engine, own_domain *domain, int order) {
    own_stream *stream = calloc(1, sizeof *stream);
    if (!stream) {
        return NULL;
    }
    own_lock(engine);
    if (!own_free_slot_(engine, &stream->slot)) {
        own_unlock(engine);
        free(stream);
        return NULL;
    }
    stream->issue = order == OWN_NON_BLOCKING ? &stream->own_issue : &domain->blocking_issue;
    stream->domain = domain;
    stream->order = (uint8_t)order;
    stream->number = ++engine->streams;
    stream->seq = stream->settled = engine->slots[stream->slot].seq;
    stream->next = domain->streams;
    domain->streams = stream;
    engine->slots[stream->slot].stream = stream;
    if (order == OWN_LEGACY) {
        domain->legacy = stream;
        stream->kind = OWN_DEFAULT;
    }
    own_unlock(engine);
    return stream;
}

/* Returns a number that identifies a stream. Another stream never has this number, even when it
 * takes over the slot. */
static inline uint64_t own_tag(const own_stream *stream) {
    return (uint64_t)stream->slot << 40 | stream->number;
}

static inline uint8_t own_kind_of_(const own_stream *stream) {
    return stream && stream->state == OWN_OPEN && !stream->dropped ? stream->kind : OWN_ENDED;
}

/* If the context of the stream is lost, marks all operations that the driver has as complete,
 * because nothing runs in a lost context any more. */
static inline void own_over_if_lost_(own_engine *engine, const own_stream *stream) {
    own_slot *slot = &engine->slots[stream->slot];
    if (stream->domain->lost && stream->state != OWN_RETIRED && slot->done < stream->settled) {
        slot->done = stream->settled;
        if (engine->hears) {
            engine->hears(stream->slot, stream->settled);
        }
    }
}

/* Marks the context as lost. Operations that other threads are submitting now are marked as
 * complete in own_settle or own_undo. */
static inline void own_domain_lose(own_engine *engine, own_domain *domain) {
    own_lock(engine);
    domain->lost = 1;
    for (const own_stream *stream = domain->streams; stream; stream = stream->next) {
        own_over_if_lost_(engine, stream);
    }
    own_unlock(engine);
    if (engine->learned) {
        engine->learned();
    }
}

/* Returns whether the host knows that all of the stream's work is complete. */
static inline int own_stream_known(own_engine *engine, const own_stream *stream) {
    own_lock(engine);
    int known = stream->state == OWN_RETIRED || own_known_(engine, stream->slot, stream->seq);
    own_unlock(engine);
    return known;
}

/* Returns the number of the domain's streams that are closed or dropped and may have unfinished
 * work. */
static inline uint32_t own_unfinished(own_engine *engine, const own_domain *domain) {
    uint32_t found = 0;
    own_lock(engine);
    for (const own_stream *stream = domain->streams; stream; stream = stream->next) {
        found += (stream->state == OWN_CLOSED || stream->dropped) &&
                 !own_known_(engine, stream->slot, stream->seq);
    }
    own_unlock(engine);
    return found;
}

/* Closes a stream, which then takes no more operations. The engine keeps the unfinished operations
 * of the stream until the host knows that they are complete. */
static inline void own_stream_close(own_engine *engine, own_stream *stream) {
    own_lock(engine);
    if (stream->state != OWN_OPEN) {
        own_unlock(engine);
        return;
    }
    stream->state = OWN_CLOSED;
    if (stream->domain->legacy == stream) {
        stream->domain->legacy = NULL;
    }
    if (own_known_(engine, stream->slot, stream->seq)) {
        own_retire_(engine, stream);
    }
    own_unlock(engine);
}

/* Call this when the last reference to an open stream is gone. The stream is closed later, when
 * closing cannot block. Because this moment depends on timing, the default streams' rules ignore
 * the stream from now on. */
static inline void own_stream_drop(own_engine *engine, own_stream *stream) {
    own_lock(engine);
    stream->dropped = 1;
    own_unlock(engine);
}

/* Call this when a dropped stream that is still open has a reference again. */
static inline void own_stream_keep(own_engine *engine, own_stream *stream) {
    own_lock(engine);
    stream->dropped = 0;
    own_unlock(engine);
}

/* Call this when the last reference to a closed stream is gone. Frees the struct, or leaves this to
 * own_retire_ if work may be unfinished. */
static inline void own_stream_release(own_engine *engine, own_stream *stream) {
    own_lock(engine);
    if (stream->state == OWN_RETIRED) {
        free(stream);
    } else {
        stream->orphaned = 1;
    }
    own_unlock(engine);
}

/* Reopens the closed stream whose last operation was `seq` of the slot. The caller then has the
 * only reference to it. Returns NULL if it is retired, or if there is still a reference to it. */
static inline own_stream *own_stream_reopen(own_engine *engine, uint32_t slot, uint64_t seq) {
    own_lock(engine);
    own_stream *stream = engine->slots[slot].stream;
    if (stream && stream->state == OWN_CLOSED && stream->orphaned && stream->seq == seq) {
        stream->state = OWN_OPEN;
        stream->orphaned = stream->dropped = 0;
    } else {
        stream = NULL;
    }
    own_unlock(engine);
    return stream;
}

#endif
