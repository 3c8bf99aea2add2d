/* Turns: the host uses bytes that operations have used since the host used them last. At a turn the
 * driver moves managed memory to the host. */

#ifndef CUDADRV_TURNS_H
#define CUDADRV_TURNS_H

#include "host.h"

/* Bytes that operations have used since the host used them last. */
typedef struct own_turn {
    uint64_t start, stop; /* all these bytes lie between; there may be gaps */
    own_epoch last;       /* one of these operations */
} own_turn;

/* Returns whether operations have used some of these bytes since own_turn_end was called for them,
 * and sets `turn`. Operations with the name `allocation` do not count, and neither do those that
 * own_sweep_ has dropped from the ranges. */
static inline int own_turn_begins(own_engine *engine, const own_access *access, uint16_t allocation,
                                  own_turn *turn) {
    *turn = (own_turn){0};
    own_lock(engine);
    own_memory *memory = access->memory;
    uint32_t i = own_range_find(memory, access->start);
    for (; i < memory->count && memory->ranges[i].start < access->stop; i++) {
        const own_epoch *epoch = own_epochs(&memory->ranges[i]);
        const own_epoch *end = epoch + memory->ranges[i].count;
        uint64_t from = memory->ranges[i].start, to = own_range_stop(memory, i);
        for (; epoch < end; epoch++) {
            if (!epoch->seen && epoch->operation != allocation &&
                own_uses_bytes_(memory, i, epoch, own_bytes_of(access))) {
                if (turn->stop == 0) {
                    turn->start = from > access->start ? from : access->start;
                }
                turn->stop = to < access->stop ? to : access->stop;
                turn->last = *epoch;
            }
        }
    }
    own_unlock(engine);
    return turn->stop != 0;
}

/* Notes that the host uses these bytes now. This marks whole ranges, so it also counts as a use of
 * the other bytes of these ranges: the same operations used them. */
static inline void own_turn_end(own_engine *engine, const own_access *access) {
    own_lock(engine);
    own_memory *memory = access->memory;
    uint32_t i = own_range_find(memory, access->start);
    for (; i < memory->count && memory->ranges[i].start < access->stop; i++) {
        own_epoch *epochs = own_epochs(&memory->ranges[i]);
        for (uint32_t k = 0; k < memory->ranges[i].count; k++) {
            epochs[k].seen = 1;
        }
    }
    own_unlock(engine);
}

#endif
