/* Operations that are issued again and again: the launches of executable graphs.
 *
 * If such an operation is issued twice on one stream, and meanwhile nothing has used ranges, views
 * or the states of streams, the second run cannot conflict, and would only give the epochs of the
 * first run another number. So the second run is only recorded here. The epochs are renewed when
 * ranges, views or states of streams are used again (own_lock). The cost of a run then does not
 * depend on the number of its accesses. */

#ifndef CUDADRV_RUNS_H
#define CUDADRV_RUNS_H

#include "usual.h"

/* The runs of one operation. Zeroed memory is that of an operation without runs. */
typedef struct own_runs {
    own_event last; /* recorded after the last run; a new run takes its issue lock */
    /* The other fields are valid while the engine's `runs` points to this struct. */
    own_stream *stream; /* the stream of the last run */
    own_access *accesses;
    uint32_t count;
    uint8_t behind; /* the epochs are those of an earlier run */
    /* The last run, and the run before it. Their modes are not used. */
    own_epoch latest, before;
} own_runs;

static inline own_epoch own_run_by_(const own_epoch *run, const own_access *access) {
    own_epoch epoch = *run;
    epoch.mode = access->mode;
    return epoch;
}

/* Renews the epochs of the operation that was issued last, and what own_undo needs. */
OWN_ONCE void own_catch_up_(own_engine *engine);

#if OWN_BODIES
void own_catch_up_(own_engine *engine) {
    const own_runs *runs = engine->runs;
    own_access *access = runs->accesses, *end = access + (runs->behind ? runs->count : 0);
    engine->runs = NULL;
    for (; access < end; access++) {
        own_range *range = own_only_range_(access);
        own_epoch *epoch = &range->few[range->count - 1];
        access->undo = 1;
        access->undo_count = (uint8_t)range->count;
        *epoch = own_run_by_(&runs->before, access);
        memcpy(access->saved, range->few, range->count * sizeof *access->saved);
        *epoch = own_run_by_(&runs->latest, access);
    }
}
#endif

static inline void own_note_run_(const own_request *request, own_runs *runs, int behind) {
    runs->before = runs->latest;
    runs->latest = (own_epoch){
        request->issued.seq, request->issued.slot, request->site, request->operation, 0, 0, 0};
    runs->behind = (uint8_t)behind;
}

/* Notes the first of several runs, after own_begin on the fast path has recorded its accesses. */
static inline void own_run_first_(own_engine *engine, const own_request *request, own_runs *runs) {
    runs->stream = request->stream;
    runs->accesses = request->accesses;
    runs->count = request->count;
    own_note_run_(request, runs, 0);
    engine->runs = runs;
}

/* Call this before runs or their accesses change or are freed. */
static inline void own_catch_up(own_engine *engine) {
    own_lock(engine);
    own_unlock(engine);
}

#endif
