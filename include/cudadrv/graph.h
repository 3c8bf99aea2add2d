/* Graphs: what the operations of a capture use, and memory that stays open while a graph exists.
 *
 * Each capture has a separate own_engine, in which its streams and its memory have no earlier work.
 * So the functions of borrow.h check the operations of a capture against each other. */

#ifndef CUDADRV_GRAPH_H
#define CUDADRV_GRAPH_H

#include "host.h"

/* ---- memory that stays open ---- */

/* Links a hold, which the caller has filled in. Returns 0 and does nothing if the memory is closed
 * or the bytes are gone. */
static inline int own_hold_open(own_engine *engine, own_hold *hold) {
    own_memory *memory = hold->memory;
    own_lock(engine);
    int open = !memory->closed && !own_is_cut_(memory, hold->stop);
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

/* Finds the first operation that uses some of these bytes in the graph with the lowest number above
 * `after`. Returns 0 if there is no such graph; else sets `conflict`, as own_held does. */
static inline int own_next_held(own_engine *engine, const own_memory *memory, uint64_t start,
                                uint64_t stop, uint64_t after, own_conflict *conflict) {
    const own_hold *found = NULL;
    own_lock(engine);
    for (const own_hold *hold = memory->holds; hold; hold = hold->next) { /* newest first */
        if (hold->start < stop && start < hold->stop && hold->graph > after &&
            (!found || hold->graph <= found->graph)) {
            found = hold;
        }
    }
    if (found) {
        conflict->site = found->site;
        conflict->number = found->graph;
        conflict->epoch.operation = found->operation;
    }
    own_unlock(engine);
    return found != NULL;
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
    uint32_t first; /* index of the first access of the same memory */
} own_sorted_;

/* A range of bytes or a box, and how operations use all of it. */
typedef struct own_part_ {
    uint8_t modes; /* a bit for each own_mode of the accesses that are joined */
    uint8_t written;
    uint8_t needed; /* the range may be read before it is written */
} own_part_;

static inline int own_compare_memory_(const void *a, const void *b) {
    const own_sorted_ *x = a, *y = b;
    if (x->access->memory != y->access->memory) {
        return x->access->memory < y->access->memory ? -1 : 1;
    }
    return x->index < y->index ? -1 : x->index > y->index;
}

static inline int own_compare_first_(const void *a, const void *b) {
    const own_sorted_ *x = a, *y = b;
    if (x->first != y->first) {
        return x->first < y->first ? -1 : 1;
    }
    return x->index < y->index ? -1 : x->index > y->index;
}

/* Sorts accesses by their memory. The memory that is used first comes first, so that nothing
 * depends on addresses. */
static inline void own_sort_accesses_(own_sorted_ *sorted, uint32_t count) {
    qsort(sorted, count, sizeof *sorted, own_compare_memory_);
    for (uint32_t i = 0; i < count; i++) {
        int same = i > 0 && sorted[i - 1].access->memory == sorted[i].access->memory;
        sorted[i].first = same ? sorted[i - 1].first : sorted[i].index;
    }
    qsort(sorted, count, sizeof *sorted, own_compare_first_);
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

/* Sets the mode and the effect of an access that stands for the part. Bytes that are read and
 * shared need two accesses: one with OWN_READ and, if `shared` is true, one with OWN_SHARED, which
 * counts as writing them. Returns 0 if there is no such access. */
static inline int own_union_of_(const own_part_ *part, int shared, own_access *access) {
    enum {
        READ = 1 << OWN_READ,
        WRITE = 1 << OWN_WRITE,
        SHARED = 1 << OWN_SHARED,
        REACH = 1 << OWN_REACH
    };
    if (shared) {
        access->mode = OWN_SHARED;
        access->effect = OWN_STAYS;
        return part->modes == (READ | SHARED);
    }
    if (part->modes & WRITE || (part->modes & READ && part->modes & REACH)) {
        access->mode = OWN_WRITE;
    } else if (part->modes & (READ | REACH)) {
        access->mode = part->modes & READ ? OWN_READ : OWN_REACH;
    } else {
        access->mode = OWN_SHARED;
    }
    if (access->mode == OWN_READ) {
        access->effect = part->needed ? OWN_STAYS : OWN_MOVES;
    } else {
        access->effect = part->needed ? OWN_USES : OWN_STAYS;
    }
    return part->modes != 0;
}

/* Makes the accesses for all parts of a memory; `cuts` are their ends. Returns their number. */
static inline uint32_t own_join_parts_(own_access access, const uint64_t *cuts,
                                       const own_part_ *parts, uint32_t count, int shared,
                                       own_access *result) {
    uint32_t found = 0;
    for (uint32_t k = 0; k < count; k++) {
        own_access *last = found ? &result[found - 1] : NULL;
        if (!own_union_of_(&parts[k], shared, &access)) {
            continue;
        }
        access.start = cuts[k];
        access.stop = cuts[k + 1];
        if (last && last->stop == access.start && last->mode == access.mode &&
            last->effect == access.effect) {
            last->stop = access.stop;
        } else {
            result[found++] = access;
        }
    }
    return found;
}

static inline void own_add_use_(own_part_ *part, const own_access *access, int policy, int needed) {
    if (policy < 0 || access->policy == policy) {
        part->modes |= (uint8_t)(1 << access->mode);
    }
    part->needed |= own_reads_(access) && needed;
    part->written |= own_writes_(access) != 0;
}

/* Returns whether some bytes of a box were not written by the accesses before it: neither by one
 * with a box that covers it, nor by those without boxes (`parts`). */
static inline int own_box_needs_(const own_sorted_ *sorted, uint32_t index, const uint64_t *cuts,
                                 const own_part_ *parts, uint32_t count) {
    const own_access *access = sorted[index].access;
    const own_bytes bytes = own_bytes_of(access);
    for (uint32_t i = 0; i < index; i++) {
        const own_access *before = sorted[i].access;
        if (before->boxed && own_writes_(before) && own_box_covers_(own_bytes_of(before), bytes)) {
            return 0;
        }
    }
    for (uint32_t k = own_cut_at_(cuts, count, access->start); cuts[k] < access->stop; k++) {
        if (!parts[k].written && own_box_meets_plain_(bytes, cuts[k], cuts[k + 1])) {
            return 1;
        }
    }
    return 0;
}

/* Returns the index of the first access with the same box. */
static inline uint32_t own_first_with_box_(const own_sorted_ *sorted, uint32_t index) {
    const own_access *access = sorted[index].access;
    for (uint32_t i = 0; i < index; i++) {
        const own_access *before = sorted[i].access;
        if (before->boxed && before->start == access->start &&
            !memcmp(&before->box, &access->box, sizeof access->box)) {
            return i;
        }
    }
    return index;
}

/* Makes the accesses for all boxes of a memory. `parts` has an entry for each access. Returns their
 * number. */
static inline uint32_t own_join_boxes_(const own_sorted_ *sorted, const own_part_ *parts,
                                       uint32_t count, int policy, own_access *result) {
    uint32_t found = 0;
    for (uint32_t i = 0; i < count; i++) {
        for (int shared = 0; sorted[i].access->boxed && shared < 2; shared++) {
            own_access *access = &result[found];
            *access = *sorted[i].access;
            access->policy = policy < 0 ? OWN_STRICT : (uint8_t)policy;
            found += own_union_of_(&parts[i], shared, access) != 0;
        }
    }
    return found;
}

/* Joins accesses of one memory into `result`. `cuts` has room for two entries for each access, and
 * `parts` for three. Returns the number of entries of `result`. */
static inline uint32_t own_join_accesses_(const own_sorted_ *sorted, uint32_t count, int policy,
                                          uint64_t *cuts, own_part_ *parts, own_access *result) {
    own_part_ *boxes = parts + 2 * (size_t)count;
    uint32_t used = 0;
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
    memset(parts, 0, 3 * (size_t)count * sizeof *parts);
    for (uint32_t i = 0; i < count; i++) {
        const own_access *access = sorted[i].access;
        uint32_t k = own_cut_at_(cuts, used, access->start);
        if (access->boxed) {
            own_add_use_(&boxes[own_first_with_box_(sorted, i)], access, policy,
                         own_box_needs_(sorted, i, cuts, parts, used));
            continue;
        }
        for (; cuts[k] < access->stop; k++) {
            own_add_use_(&parts[k], access, policy, !parts[k].written);
        }
    }
    own_access access = {.memory = sorted->access->memory,
                         .policy = policy < 0 ? OWN_STRICT : (uint8_t)policy};
    uint32_t found = own_join_parts_(access, cuts, parts, used - 1, 0, result);
    found += own_join_parts_(access, cuts, parts, used - 1, 1, result + found);
    return found + own_join_boxes_(sorted, boxes, count, policy, result + found);
}

/* Joins the accesses of a graph's operations, in the order in which they were captured, into those
 * of the whole graph: for each memory, ranges that do not overlap, except that SHARED ones may
 * overlap READ ones, and boxes may overlap all others. Only accesses with the `policy` are joined;
 * if it is negative, all are. The others still count as writes: a read of bytes that an earlier
 * access of the graph has written does not need their contents from before. `result` has room for
 * four entries for each access. Returns 0 if malloc fails, else 1, and sets *found. */
static inline int own_join_accesses(const own_access *accesses, uint32_t count, int policy,
                                    own_access *result, uint32_t *found) {
    own_sorted_ *sorted = malloc((count + 1) * sizeof *sorted);
    uint64_t *cuts = malloc(2 * ((size_t)count + 1) * sizeof *cuts);
    own_part_ *parts = malloc(3 * ((size_t)count + 1) * sizeof *parts);
    int ok = sorted && cuts && parts;
    uint32_t used = 0;
    *found = 0;
    for (uint32_t i = 0; ok && i < count; i++) {
        if (accesses[i].start < accesses[i].stop) {
            sorted[used] = (own_sorted_){&accesses[i], i, 0};
            used++;
        }
    }
    if (ok) {
        own_sort_accesses_(sorted, used);
    }
    for (uint32_t first = 0, end; ok && first < used; first = end) {
        for (end = first; end < used && sorted[end].access->memory == sorted[first].access->memory;
             end++) {
        }
        *found +=
            own_join_accesses_(sorted + first, end - first, policy, cuts, parts, result + *found);
    }
    free(sorted);
    free(cuts);
    free(parts);
    return ok;
}

/* Returns whether no two accesses that own_join_accesses has made use the same memory. */
static inline int own_are_apart(const own_access *joined, uint32_t count) {
    for (uint32_t i = 1; i < count; i++) {
        if (joined[i - 1].memory == joined[i].memory) {
            return 0;
        }
    }
    return 1;
}

#endif
