/* The host's side of borrowing: views of memory, closing it, and saying who holds it. */

#ifndef CUDADRV_HOST_H
#define CUDADRV_HOST_H

#include "borrow.h"

/* Where `host_excluded` holds, managed memory is the host's only while nothing is in flight. */
static inline int own_check_excluded_(const own_engine *engine, const own_access *access,
                                      own_conflict *conflict) {
    for (const own_domain *domain = engine->domains; domain; domain = domain->next) {
        const own_stream *stream = domain->host_excluded ? domain->streams : NULL;
        for (; stream; stream = stream->next) {
            if (!own_known_(engine, stream->slot, stream->seq)) {
                const own_operation *last = &stream->recent[stream->seq % OWN_RECENT];
                own_epoch epoch = {stream->seq, stream->slot, last->site, last->operation,
                                   OWN_WRITE};
                own_blame_(engine, conflict, &epoch);
                return access->policy == OWN_WAIT ? OWN_MUST_WAIT : OWN_BORROWED;
            }
        }
    }
    return OWN_OK;
}

/* Borrows bytes for the host: OWN_READ shares them, OWN_WRITE excludes the GPU. The view stays
 * linked into the memory until own_export_close. Anything but OWN_OK has changed nothing. */
static inline int own_export_open(own_engine *engine, const own_access *access, uint32_t site,
                                  own_export *view, own_conflict *conflict) {
    own_memory *memory = access->memory;
    int answer = OWN_OK;
    own_lock(engine);
    if (memory->closed) {
        answer = OWN_MEMORY_CLOSED;
    } else if (access->start < access->stop) {
        answer = own_check_epochs_(engine, NULL, NULL, access, conflict);
        if (answer == OWN_OK && memory->managed && access->policy != OWN_UNCHECKED) {
            answer = own_check_excluded_(engine, access, conflict);
        }
    }
    if (answer == OWN_OK) {
        *view = (own_export){.memory = memory,
                             .next = memory->exports,
                             .start = access->start,
                             .stop = access->stop,
                             .site = site,
                             .exclusive = access->mode == OWN_WRITE};
        memory->exports = view;
        if (memory->managed) {
            view->next_managed = engine->managed;
            engine->managed = view;
        }
    }
    own_unlock(engine);
    return answer;
}

static inline void own_export_close(own_engine *engine, own_export *view) {
    own_lock(engine);
    own_export **link = &view->memory->exports;
    while (*link != view) {
        link = &(*link)->next;
    }
    *link = view->next;
    if (view->memory->managed) {
        link = &engine->managed;
        while (*link != view) {
            link = &(*link)->next_managed;
        }
        *link = view->next_managed;
    }
    own_unlock(engine);
}

/* Whether the host knows that nothing queued uses the memory any more. */
static inline int own_memory_known_(const own_engine *engine, own_memory *memory,
                                    own_conflict *conflict) {
    for (uint32_t i = 0; i < memory->count; i++) {
        const own_epoch *epochs = own_epochs(&memory->ranges[i]);
        for (uint32_t k = 0; k < memory->ranges[i].count; k++) {
            if (!own_known_(engine, epochs[k].slot, epochs[k].seq)) {
                own_blame_(engine, conflict, &epochs[k]);
                return 0;
            }
        }
    }
    return 1;
}

/* Whether nobody uses the memory: no view is alive, and no GPU use may be unfinished. With `close`,
 * closes it then: every later request is refused. */
static inline int own_memory_free(own_engine *engine, own_memory *memory, int close,
                                  own_conflict *conflict) {
    int answer = OWN_OK;
    own_lock(engine);
    if (memory->closed) {
        answer = OWN_MEMORY_CLOSED;
    } else if (memory->exports) {
        conflict->site = memory->exports->site;
        answer = OWN_EXPORTED;
    } else if (!own_memory_known_(engine, memory, conflict)) {
        answer = OWN_BORROWED;
    } else if (close) {
        memory->closed = 1;
    }
    own_unlock(engine);
    return answer;
}

/* A GPU use that is not known to be complete. */
typedef struct own_borrow {
    own_epoch epoch;
    uint64_t start, stop;
    uint64_t number; /* of its stream */
    uint8_t order;
} own_borrow;

/* Fills `borrows` with the uses of some bytes, and gives their number, which may be more than fit.
 */
static inline uint32_t own_borrows(own_engine *engine, own_memory *memory, uint64_t start,
                                   uint64_t stop, own_borrow *borrows, uint32_t fit) {
    uint32_t found = 0;
    own_lock(engine);
    uint32_t i = own_range_find(memory, start);
    for (; i < memory->count && memory->ranges[i].start < stop; i++) {
        const own_epoch *epochs = own_epochs(&memory->ranges[i]);
        uint64_t from = memory->ranges[i].start, to = own_range_stop(memory, i);
        for (uint32_t k = 0; k < memory->ranges[i].count; k++) {
            if (own_known_(engine, epochs[k].slot, epochs[k].seq)) {
                continue;
            }
            if (found < fit) {
                own_conflict holder;
                own_blame_(engine, &holder, &epochs[k]);
                borrows[found] = (own_borrow){epochs[k], from > start ? from : start,
                                              to < stop ? to : stop, holder.number, holder.order};
            }
            found++;
        }
    }
    own_unlock(engine);
    return found;
}

/* An operation that the host does not know to be complete, for the report of a lost context. */
typedef struct own_suspect {
    own_operation operation;
    uint64_t number;
    uint64_t earlier; /* how many of its stream are no longer remembered */
    uint8_t order;
} own_suspect;

static inline uint32_t own_suspects(own_engine *engine, const own_domain *domain,
                                    own_suspect *suspects, uint32_t fit) {
    uint32_t found = 0;
    own_lock(engine);
    for (const own_stream *stream = domain->streams; stream; stream = stream->next) {
        uint64_t done = engine->slots[stream->slot].done;
        uint64_t open = stream->seq > done ? stream->seq - done : 0;
        uint64_t known = open < OWN_RECENT ? open : OWN_RECENT;
        for (uint64_t seq = stream->seq - known + 1; known && seq <= stream->seq; seq++, found++) {
            if (found < fit) {
                suspects[found] = (own_suspect){stream->recent[seq % OWN_RECENT], stream->number,
                                                open - known, stream->order};
            }
        }
    }
    own_unlock(engine);
    return found;
}

/* How much an engine keeps: what must not grow without bound. */
typedef struct own_books {
    uint32_t domains, streams, views; /* streams that are not retired; views of managed memory */
} own_books;

static inline void own_count(own_engine *engine, own_books *books) {
    *books = (own_books){0, 0, 0};
    own_lock(engine);
    for (const own_domain *domain = engine->domains; domain; domain = domain->next) {
        books->domains++;
    }
    for (uint32_t i = 0; i < engine->size; i++) {
        books->streams += engine->slots[i].stream != NULL;
    }
    for (const own_export *view = engine->managed; view; view = view->next_managed) {
        books->views++;
    }
    own_unlock(engine);
}

/* All work of a context that the driver has by now, that of closed streams too. Gives 0 without
 * memory. */
static inline int own_domain_snapshot(own_engine *engine, const own_domain *domain,
                                      own_snapshot *snapshot) {
    own_lock(engine);
    own_clock *clock = calloc(1, sizeof *clock + engine->size * sizeof *clock->seq);
    *snapshot = (own_snapshot){clock, 0, 0};
    if (clock) {
        clock->references = 1;
        clock->size = engine->size;
        for (const own_stream *stream = domain->streams; stream; stream = stream->next) {
            clock->seq[stream->slot] = stream->settled;
        }
    }
    own_unlock(engine);
    return clock != NULL;
}

#endif
