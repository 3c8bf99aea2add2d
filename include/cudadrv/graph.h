/* Graphs: what the operations of a capture use, and memory that stays open as long as a graph.
 *
 * A capture has an own_engine of its own, in which its streams and its memory have no earlier work.
 * So the functions of borrow.h check its operations against each other. */

#ifndef CUDADRV_GRAPH_H
#define CUDADRV_GRAPH_H

#include "host.h"

/* ---- memory that stays open ---- */

/* Links a hold, which the caller has filled in. Returns 0 and does nothing if the memory is closed.
 */
static inline int own_hold_open(own_engine *engine, own_hold *hold) {
    own_memory *memory = hold->memory;
    own_lock(engine);
    int open = !memory->closed;
    if (open) {
        hold->previous = NULL;
        hold->next = memory->holds;
        if (memory->holds) {
            memory->holds->previous = hold;
        }
        memory->holds = hold;
    }
    own_unlock(engine);
    return open;
}

/* Frees the state of memory that is gone. If graphs hold it, the last of them frees it. */
static inline void own_memory_end(own_memory *memory) {
    if (memory->holds) {
        memory->orphaned = 1;
    } else {
        own_memory_clear(memory);
        free(memory);
    }
}

static inline void own_hold_close(own_engine *engine, own_hold *hold) {
    own_memory *memory = hold->memory;
    own_lock(engine);
    if (hold->next) {
        hold->next->previous = hold->previous;
    }
    if (hold->previous) {
        hold->previous->next = hold->next;
    } else {
        memory->holds = hold->next;
    }
    int gone = memory->orphaned && !memory->holds;
    own_unlock(engine);
    if (gone) {
        own_memory_clear(memory);
        free(memory);
    }
}

/* Returns whether a graph uses some of these bytes. If so, sets `conflict`. */
static inline int own_held(own_engine *engine, const own_memory *memory, uint64_t start,
                           uint64_t stop, own_conflict *conflict) {
    if (!memory->holds) {
        return 0;
    }
    own_lock(engine);
    int answer = own_check_holds_(memory, start, stop, conflict);
    own_unlock(engine);
    return answer == OWN_HELD;
}

/* ---- the engine of a capture ---- */

/* Ends an engine whose streams run nothing. No snapshot of it may be left. */
static inline void own_engine_end(own_engine *engine, own_domain *domain) {
    while (domain->streams) {
        own_stream *stream = domain->streams;
        domain->streams = stream->next;
        own_clock_drop(stream->clock);
        free(stream);
    }
    own_clock_drop(domain->inherited);
    free(engine->slots);
    memset(engine, 0, sizeof *engine);
    memset(domain, 0, sizeof *domain);
}

/* Returns whether everything that `stream` has done and waited for is ordered before the next
 * operation of `other`. */
static inline int own_is_joined(own_engine *engine, const own_stream *stream,
                                const own_stream *other) {
    own_lock(engine);
    int joined = stream == other || own_clock_at(other->clock, stream->slot) >= stream->seq;
    own_unlock(engine);
    return joined;
}

/* ---- what a graph uses ---- */

typedef struct own_sorted_ {
    const own_access *access;
    uint32_t index;
} own_sorted_;

/* A range of bytes, and how operations use all of it. */
typedef struct own_part_ {
    uint8_t modes; /* a bit for each own_mode */
    uint8_t written;
    uint8_t needed; /* it may be read before it is written */
} own_part_;

static inline int own_compare_memory_(const void *a, const void *b) {
    const own_sorted_ *x = a, *y = b;
    if (x->access->memory != y->access->memory) {
        return x->access->memory < y->access->memory ? -1 : 1;
    }
    return x->index < y->index ? -1 : x->index > y->index;
}

static inline int own_compare_bytes_(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static inline uint32_t own_cut_at_(const uint64_t *cuts, uint32_t count, uint64_t at) {
    uint32_t low = 0, high = count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (cuts[middle] <= at) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

static inline own_access own_union_of_(own_memory *memory, const own_part_ *part) {
    enum { READ = 1 << OWN_READ, WRITE = 1 << OWN_WRITE, REACH = 1 << OWN_REACH };
    own_access access = {.memory = memory, .mode = OWN_SHARED, .policy = OWN_STRICT};
    if (part->modes & WRITE || (part->modes & READ && part->modes & REACH)) {
        access.mode = OWN_WRITE;
    } else if (part->modes & (READ | REACH)) {
        access.mode = part->modes & READ ? OWN_READ : OWN_REACH;
    }
    access.effect = part->needed && access.mode != OWN_READ ? OWN_USES : OWN_STAYS;
    return access;
}

/* Joins accesses of one memory into `result`. `cuts` and `parts` have room for two entries for each
 * access. Returns the number of entries of `result`. */
static inline uint32_t own_join_accesses_(const own_sorted_ *sorted, uint32_t count, uint64_t *cuts,
                                          own_part_ *parts, own_access *result) {
    uint32_t used = 0, found = 0;
    for (uint32_t i = 0; i < count; i++) {
        cuts[2 * i] = sorted[i].access->start;
        cuts[2 * i + 1] = sorted[i].access->stop;
    }
    qsort(cuts, 2 * (size_t)count, sizeof *cuts, own_compare_bytes_);
    for (uint32_t i = 0; i < 2 * count; i++) {
        if (used == 0 || cuts[used - 1] != cuts[i]) {
            cuts[used++] = cuts[i];
        }
    }
    memset(parts, 0, used * sizeof *parts);
    for (uint32_t i = 0; i < count; i++) {
        const own_access *access = sorted[i].access;
        uint32_t k = own_cut_at_(cuts, used, access->start);
        for (; cuts[k] < access->stop; k++) {
            parts[k].modes |= (uint8_t)(1 << access->mode);
            parts[k].needed |= own_reads_(access) && !parts[k].written;
            parts[k].written |= own_writes_(access) != 0;
        }
    }
    for (uint32_t k = 0; k + 1 < used; k++) {
        own_access access = own_union_of_(sorted->access->memory, &parts[k]);
        own_access *last = found ? &result[found - 1] : NULL;
        access.start = cuts[k];
        access.stop = cuts[k + 1];
        if (!parts[k].modes) {
            continue;
        }
        if (last && last->stop == access.start && last->mode == access.mode &&
            last->effect == access.effect) {
            last->stop = access.stop;
        } else {
            result[found++] = access;
        }
    }
    return found;
}

/* Joins the accesses of a graph's operations, in the order in which they were captured, into those
 * of the whole graph: for each memory, ranges that do not overlap. `result` has room for two
 * entries for each access. Returns 0 if malloc fails, else 1, and sets *found. */
static inline int own_join_accesses(const own_access *accesses, uint32_t count, own_access *result,
                                    uint32_t *found) {
    own_sorted_ *sorted = malloc((count + 1) * sizeof *sorted);
    uint64_t *cuts = malloc(2 * ((size_t)count + 1) * sizeof *cuts);
    own_part_ *parts = malloc(2 * ((size_t)count + 1) * sizeof *parts);
    int ok = sorted && cuts && parts;
    uint32_t used = 0;
    *found = 0;
    for (uint32_t i = 0; ok && i < count; i++) {
        if (accesses[i].start < accesses[i].stop) {
            sorted[used] = (own_sorted_){&accesses[i], i};
            used++;
        }
    }
    if (ok) {
        qsort(sorted, used, sizeof *sorted, own_compare_memory_);
    }
    for (uint32_t first = 0, end; ok && first < used; first = end) {
        for (end = first; end < used && sorted[end].access->memory == sorted[first].access->memory;
             end++) {
        }
        *found += own_join_accesses_(sorted + first, end - first, cuts, parts, result + *found);
    }
    free(sorted);
    free(cuts);
    free(parts);
    return ok;
}

#endif
