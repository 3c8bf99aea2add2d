/* Reuse: checks whether memory without an owner can be given to a new owner. */

#ifndef CUDADRV_REUSE_H
#define CUDADRV_REUSE_H

#include "borrow.h"

/* Returns whether the memory can get a new owner: no view of it is alive, and all its uses are
 * ordered before the next operation of `stream`. If `stream` is NULL, the host must know that all
 * uses are complete. OWN_SHARED uses count, too, because the new owner does not know of them.
 * Returns 0 if malloc fails. */
static inline int own_memory_reusable(own_engine *engine, const own_stream *stream,
                                      own_memory *memory) {
    own_clock *view = NULL;
    if (memory->exports || memory->holds) {
        return 0;
    }
    if (memory->count == 1 && memory->ranges[0].count == 0) {
        return 1; /* never used: the most frequent case for scratch memory */
    }
    /* The most frequent case for memory on a stream: only this stream has used it. No lock is
     * needed, because nobody can use memory without an owner. */
    if (stream && memory->count == 1 && memory->ranges[0].count == 1 && !engine->runs &&
        own_epochs(memory->ranges)->slot == stream->slot) {
        return 1;
    }
    own_lock(engine);
    int reusable = !stream || own_view_(stream, &view);
    for (uint32_t i = 0; reusable && i < memory->count; i++) {
        const own_epoch *epochs = own_epochs(&memory->ranges[i]);
        for (uint32_t k = 0; reusable && k < memory->ranges[i].count; k++) {
            reusable = own_in_view_(engine, stream, view, &epochs[k]);
        }
    }
    own_clock_drop(view);
    own_unlock(engine);
    return reusable;
}

/* Removes the record of the operation `allocation`, which allocated the memory, if nothing has used
 * the memory since. */
static inline void own_memory_forget(own_engine *engine, own_memory *memory, uint16_t allocation) {
    own_lock(engine);
    if (memory->count == 1 && memory->ranges[0].count == 1 &&
        own_epochs(memory->ranges)->operation == allocation) {
        memory->ranges[0].count = 0;
    }
    own_unlock(engine);
}

/* Resets the state of memory for its next owner: it has no uses. */
static inline void own_memory_renew(own_memory *memory, uint64_t nbytes) {
    own_memory_clear(memory);
    own_memory_prepare(memory, nbytes);
}

/* Like own_memory_prepare, for memory whose bytes were all written last by the request `write`. */
static inline void own_memory_prepare_used(own_memory *memory, uint64_t nbytes,
                                           const own_request *write) {
    own_memory_prepare(memory, nbytes);
    memory->one.few[0] = (own_epoch){
        write->issued.seq, write->issued.slot, write->site, write->operation, OWN_WRITE, 0, 0};
    memory->one.count = 1;
}

#endif
