/* Streams, their slots, and the host's clock: what the rest of the engine works on.
 *
 * Streams sit in slots. A slot's operations are numbered on and on, also when another stream takes
 * over the slot, so an old epoch can never be mistaken for a new one.
 *
 * Locks: `issue` of a stream is held from the check of an operation until the driver has it, and is
 * taken by the callers: nobody waits for it with the engine's lock, nor with the GIL where another
 * Python thread could have it. The engine's own lock guards everything else here, is held for a few
 * instructions, and never across a driver call. Who knows that nobody else can be in the engine
 * does without it: what ends in _alone. */

#ifndef CUDADRV_ENGINE_H
#define CUDADRV_ENGINE_H

#include "clock.h"
#include "mutex.h"

enum own_order { OWN_NON_BLOCKING, OWN_BLOCKING, OWN_LEGACY };
enum own_state { OWN_OPEN, OWN_CLOSED, OWN_RETIRED }; /* closed: may have unfinished work */
enum { OWN_RECENT = 32 };

/* For people: what a stream is called, and how they can wait for it. */
enum own_kind {
    OWN_PLAIN,
    OWN_DEFAULT,    /* the legacy default stream */
    OWN_PER_THREAD, /* only its own thread can name it */
    OWN_INTERNAL,   /* the library's own: nobody can name it */
    OWN_ENDED       /* closed, or gone */
};

typedef struct own_operation {
    uint64_t seq;
    uint32_t site;
    uint16_t operation;
} own_operation;

struct own_stream;
struct own_export;

/* A context: the streams between which the default stream's rules hold. */
typedef struct own_domain {
    struct own_stream *streams; /* that are not retired */
    struct own_stream *legacy;
    own_mutex blocking_issue; /* the issue lock of the legacy and of all blocking streams */
    own_clock *inherited;     /* what retired streams had waited for: their context still does */
    struct own_domain *next;
    uint8_t host_excluded; /* no host access to managed memory while any work is in flight */
    uint8_t lost;          /* nothing runs in it any more */
} own_domain;

typedef struct own_stream {
    own_mutex own_issue;
    uint32_t slot;
    own_mutex *issue;
    own_domain *domain;
    own_clock *clock; /* what it has waited for */
    uint64_t seq;     /* operations checked in, continuing those of the slot */
    uint64_t settled; /* of these, the ones that the driver has */
    uint8_t order;
    uint8_t state;
    uint8_t orphaned;     /* nobody refers to it: free it when it retires */
    uint8_t dropped;      /* open for the driver only, until its last event can be recorded */
    uint8_t kind;         /* while it is open */
    uint32_t loans;       /* of memory, to whatever others queue on it */
    uint64_t legacy_seen; /* `uses` of the legacy stream that this one is ordered after */
    uint64_t uses;        /* operations, records and waits, but for passive operations */
    uint64_t before;      /* `settled` before the passive operations after the last use, if */
    uint64_t passive;     /* this is `uses` + 1: there are such operations */
    uint64_t number;      /* for people: "Stream 3" */
    struct own_stream *next;
    own_operation recent[OWN_RECENT];
} own_stream;

typedef struct own_event {
    own_mutex issue;
    own_snapshot snapshot;
    uint64_t recorded; /* how often */
} own_event;

typedef struct own_slot {
    own_stream *stream;
    uint64_t seq;  /* the last operation of the streams that had it before */
    uint64_t done; /* the host's clock: known to be complete up to here */
} own_slot;

typedef struct own_engine {
    own_mutex lock;
    own_slot *slots;
    uint32_t size;
    uint64_t streams;  /* ever opened */
    uint64_t requests; /* ever looked at by own_some_twice_ */
    own_domain *domains;
    struct own_export *managed; /* live host views of managed memory */
} own_engine;

static inline void own_engine_prepare(own_engine *engine) { memset(engine, 0, sizeof *engine); }

static inline void own_lock(own_engine *engine) { own_mutex_take(&engine->lock); }
static inline void own_unlock(own_engine *engine) { own_mutex_give(&engine->lock); }

/* Both locks, in the order of their addresses; they may be the same one. */
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

/* Whether the host knows that everything in a clock is complete. */
static inline int own_clock_known_(const own_engine *engine, const own_clock *clock) {
    for (uint32_t i = 0; clock && i < clock->size; i++) {
        if (!own_known_(engine, i, clock->seq[i])) {
            return 0;
        }
    }
    return 1;
}

/* A stream that goes leaves its domain what it has waited for: a wait is not an operation, so it
 * may be unfinished. Without memory, less is known than could be. */
static inline void own_bequeath_(const own_engine *engine, const own_stream *stream) {
    const own_snapshot waited = {stream->clock, 0, 0};
    own_clock *joined;
    if (!own_clock_known_(engine, stream->clock) &&
        own_clock_join(stream->domain->inherited, &waited, &joined)) {
        own_clock_drop(stream->domain->inherited);
        stream->domain->inherited = joined;
    }
}

/* A closed stream whose work is known to be complete gives its slot back. */
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

/* The context has ended, and nobody refers to its streams: the domain can be freed. Returns 0, and
 * it must stay, where closed streams have work that is not known to be complete. */
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

/* A new stream, or NULL when there is no memory. */
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

static inline uint8_t own_kind_of_(const own_stream *stream) {
    return stream && stream->state == OWN_OPEN && !stream->dropped ? stream->kind : OWN_ENDED;
}

/* Nothing of a lost context runs any more: what its driver has taken is over. */
static inline void own_over_if_lost_(own_engine *engine, const own_stream *stream) {
    own_slot *slot = &engine->slots[stream->slot];
    if (stream->domain->lost && stream->state != OWN_RETIRED && slot->done < stream->settled) {
        slot->done = stream->settled;
    }
}

/* The context is lost. Operations that other threads are just handing over end with own_settle or
 * own_undo. */
static inline void own_domain_lose(own_engine *engine, own_domain *domain) {
    own_lock(engine);
    domain->lost = 1;
    for (const own_stream *stream = domain->streams; stream; stream = stream->next) {
        own_over_if_lost_(engine, stream);
    }
    own_unlock(engine);
}

/* Whether the host knows that all of the stream's work is complete. */
static inline int own_stream_known(own_engine *engine, const own_stream *stream) {
    own_lock(engine);
    int known = stream->state == OWN_RETIRED || own_known_(engine, stream->slot, stream->seq);
    own_unlock(engine);
    return known;
}

/* How many streams of the domain that nobody can name any more may have unfinished work. */
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

/* No more operations. Its unfinished ones stay known until the host knows that they are complete.
 */
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

/* The last reference to an open stream is gone, and it will be closed when that cannot block. When
 * that is depends on timing, and what the default stream is ordered after must not. */
static inline void own_stream_drop(own_engine *engine, own_stream *stream) {
    own_lock(engine);
    stream->dropped = 1;
    own_unlock(engine);
}

/* The last reference to a closed stream is gone. */
static inline void own_stream_release(own_engine *engine, own_stream *stream) {
    own_lock(engine);
    if (stream->state == OWN_RETIRED) {
        free(stream);
    } else {
        stream->orphaned = 1;
    }
    own_unlock(engine);
}

#endif
