/* Fast path: an operation that cannot conflict.
 *
 * Most operations use a whole memory, or a part of it that was used before, and only their own
 * stream has unfinished uses of those bytes. Such an operation cannot conflict and needs no
 * allocation; checking and recording it takes a dozen comparisons. The same holds for a box that
 * was used before, which takes more comparisons (own_usual_boxed_). All other operations take the
 * slow path, in borrow.h. */

#ifndef CUDADRV_USUAL_H
#define CUDADRV_USUAL_H

#include "contents.h"

typedef struct own_request {
    own_stream *stream;
    own_access *accesses;
    uint32_t count;
    uint32_t site;
    uint16_t operation;
    /* The loan that the request begins, or NULL. A request with a loan has exactly one access. The
     * memory is lent to the loan's `borrower` or, if that is NULL, to the request's stream. */
    own_export *loan;
    /* The request ends a loan. The loan's work is already queued, so nothing is checked. */
    uint8_t returns;
    /* The driver may queue nothing for a passive operation, so the default streams' rules do not
     * order it. */
    uint8_t passive;
    own_attachment attachment; /* only for an access that OWN_ATTACHES; the engine sets `by` */
    own_snapshot issued;       /* snapshot of the operation, for a token; the caller drops it */
    own_operation forgotten;   /* entry of `recent` that this operation replaced */
    own_conflict conflict;
} own_request;

/* Returns the range whose bytes are exactly those of an access, or NULL if there is none. Finds the
 * range that it has found last, and the one after it, without a search: many parts of a memory are
 * often used in turn. */
OWN_ONCE own_range *own_only_range_(const own_access *access);

#if OWN_BODIES
own_range *own_only_range_(const own_access *access) {
    own_memory *memory = access->memory;
    uint32_t i = memory->hint;
    if (i >= memory->count || memory->ranges[i].start != access->start) {
        i++;
        if (i >= memory->count || memory->ranges[i].start != access->start) {
            i = own_range_find(memory, access->start);
        }
    }
    memory->hint = i;
    own_range *range = &memory->ranges[i];
    return range->start == access->start && own_range_stop(memory, i) == access->stop ? range
                                                                                      : NULL;
}
#endif

/* As own_usual_ and own_commit_usual_, for an access with a box, or of a memory that has boxes. */
OWN_ONCE int own_usual_boxed_(const own_engine *engine, const own_request *request,
                              own_access *access);
OWN_ONCE void own_commit_boxed_(const own_engine *engine, own_request *request, own_access *access);

/* Returns whether an access can take the fast path. Its bytes must be exactly one range, and its
 * effect must be less than OWN_ATTACHES. The memory must be open, without views, loans and limits.
 * All unfinished uses must be on this stream, and the new epoch must fit without malloc. */
static inline int own_usual_(const own_engine *engine, const own_request *request,
                             own_access *access) {
    const own_memory *memory = access->memory;
    const own_stream *stream = request->stream;
    const own_range *range = memory->ranges;
    uint32_t left = 0;
    uint64_t part = (memory->count ^ 1) | access->start | (access->stop ^ memory->nbytes);
    uint64_t unusual = memory->unusual | (uintptr_t)memory->exports |
                       (access->effect >= OWN_ATTACHES) | access->boxed |
                       (access->start >= access->stop);
    if (__builtin_expect(part | unusual | range->capacity, 0)) {
        if (unusual) {
            return own_usual_boxed_(engine, request, access);
        }
        range = own_only_range_(access);
        if (!range || range->capacity) {
            return 0;
        }
    }
    if (__builtin_expect(range->count == 1 && range->few->slot == stream->slot, 1)) {
        return 1; /* the most frequent case */
    }
    for (uint32_t k = 0; k < range->count; k++) {
        const own_epoch *old = &range->few[k];
        if (old->slot != stream->slot && !own_known_(engine, old->slot, old->seq)) {
            return 0;
        }
        left += access->mode != OWN_WRITE && access->mode != old->mode;
    }
    return left < OWN_FEW;
}

/* Returns whether a request may need malloc for its epochs: if two of its accesses use the same
 * memory, and one of them has another mode than OWN_READ and OWN_WRITE. For reads and writes, a
 * range has room. Numbers of requests wrap around, so the answer may be 1 without need. The lowest
 * bit of `asked` is 1 for the other modes. */
static inline int own_may_need_malloc_(own_engine *engine, const own_request *request) {
    const own_access *access = request->accesses, *end = access + request->count;
    const uint32_t number = engine->requests += 2;
    for (; access < end; access++) {
        const uint32_t asked = access->memory->asked, now = number | (access->mode > OWN_WRITE);
        if ((asked | 1) == (now | 1) && ((asked | now) & 1)) {
            return 1;
        }
        access->memory->asked = now;
    }
    return 0;
}

/* Returns whether a request can take the fast path: all its accesses can, also together, and the
 * default streams' rules do not order the stream. If `apart` is true, the caller knows that the
 * accesses use different memory. */
static inline int own_all_usual_(own_engine *engine, const own_request *request, int apart) {
    const own_stream *stream = request->stream;
    own_access *access = request->accesses, *end = access + request->count;
    if (__builtin_expect(stream->order != OWN_NON_BLOCKING || stream->state != OWN_OPEN ||
                             request->loan || (stream->domain->host_excluded && engine->managed),
                         0)) {
        return 0;
    }
    if (!apart && request->count > 1 &&
        (request->count == 2
             ? access[0].memory == access[1].memory && (access[0].mode | access[1].mode) > OWN_WRITE
             : own_may_need_malloc_(engine, request))) {
        return 0;
    }
    for (; access < end; access++) {
        if (__builtin_expect(!own_usual_(engine, request, access), 0)) {
            return 0;
        }
    }
    return 1;
}

/* Drops the epochs that have the given mode, and those that are known to be complete. Returns how
 * many epochs are left. */
static inline uint32_t own_keep_others_(const own_engine *engine, own_range *range, uint8_t mode) {
    uint32_t kept = 0;
    for (uint32_t k = 0; k < range->count; k++) {
        const own_epoch *old = &range->few[k];
        if (mode != old->mode && !own_known_(engine, old->slot, old->seq)) {
            range->few[kept++] = *old;
        }
    }
    return kept;
}

/* Does own_commit_ on the fast path. */
static inline void own_commit_usual_(const own_engine *engine, own_request *request,
                                     own_access *access) {
    own_memory *memory = access->memory;
    own_range *range = memory->ranges;
    uint32_t kept = 0;
    if (__builtin_expect(memory->limited | access->boxed, 0)) {
        own_commit_boxed_(engine, request, access);
        return;
    }
    if (__builtin_expect(memory->count > 1, 0)) {
        range = own_only_range_(access);
    }
    access->undo = 1;
    access->undo_count = (uint8_t)range->count;
    access->saved[0] = range->few[0];
    if (__builtin_expect(range->count > 1, 0)) {
        access->saved[1] = range->few[1];
    }
    if (__builtin_expect(access->mode != OWN_WRITE &&
                             (range->count != 1 || range->few->mode != access->mode),
                         0)) {
        kept = own_keep_others_(engine, range, access->mode);
    }
    range->few[kept] = (own_epoch){request->issued.seq,
                                   request->issued.slot,
                                   request->site,
                                   request->operation,
                                   access->mode,
                                   0,
                                   0};
    range->count = kept + 1;
}

#endif
