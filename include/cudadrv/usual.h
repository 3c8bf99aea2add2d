/* The usual operation: one that needs no looking.
 *
 * Most operations use all of some memory that nobody but their own stream used last. They cannot
 * conflict, and need no room; for them, checking and borrowing is a dozen comparisons. All others
 * go the long way, in borrow.h. */

#ifndef CUDADRV_USUAL_H
#define CUDADRV_USUAL_H

#include "access.h"

typedef struct own_request {
    own_stream *stream;
    own_access *accesses;
    uint32_t count;
    uint32_t site;
    uint16_t operation;
    own_export *loan;        /* of its only access, to what others queue on the stream; or NULL */
    uint8_t returns;         /* ends a loan: what it stands for is queued already */
    uint8_t passive;         /* perhaps nothing is queued, and then nothing waits by the rules */
    own_snapshot issued;     /* for a token; the caller drops it */
    own_operation forgotten; /* of the stream's recent ones, the one that this took the place of */
    own_conflict conflict;
} own_request;

/* Whether an access is of the usual kind: of memory in one piece, all of it, that is neither closed
 * nor seen by the host, and that the stream itself used last. Such an access cannot conflict, and
 * needs no room. */
static inline int own_usual_(const own_engine *engine, const own_stream *stream,
                             const own_access *access) {
    const own_memory *memory = access->memory;
    const own_range *range = memory->ranges;
    uint32_t left = 0;
    if (memory->count != 1 || memory->closed || memory->exports || access->closes ||
        access->start != 0 || access->stop != memory->nbytes || access->stop == 0 ||
        range->capacity) {
        return 0;
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

/* Whether all accesses are, each of memory of its own, on a stream that no default stream's rules
 * order. */
static inline int own_all_usual_(own_engine *engine, const own_request *request) {
    const own_stream *stream = request->stream;
    const own_access *access = request->accesses, *end = access + request->count;
    if (stream->order != OWN_NON_BLOCKING || stream->state != OWN_OPEN || request->loan ||
        (stream->domain->host_excluded && engine->managed)) {
        return 0;
    }
    engine->requests++;
    for (; access < end; access++) {
        if (access->memory->asked == engine->requests || !own_usual_(engine, stream, access)) {
            return 0;
        }
        access->memory->asked = engine->requests;
    }
    return 1;
}

/* As own_commit_, for an access of the usual kind. */
static inline void own_commit_usual_(const own_engine *engine, const own_request *request,
                                     own_access *access) {
    own_range *range = access->memory->ranges;
    uint32_t kept = 0;
    access->undo = 1;
    access->undo_count = (uint8_t)range->count;
    memcpy(access->saved, range->few, sizeof access->saved);
    for (uint32_t k = 0; access->mode != OWN_WRITE && k < range->count; k++) {
        const own_epoch *old = &range->few[k];
        if (access->mode != old->mode && !own_known_(engine, old->slot, old->seq)) {
            range->few[kept++] = *old;
        }
    }
    range->few[kept++] = (own_epoch){request->issued.seq, request->issued.slot, request->site,
                                     request->operation, access->mode};
    range->count = kept;
}

#endif
