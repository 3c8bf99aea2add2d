/* Vector clocks. A clock has a number for every slot: operations of the slot up to this number
 * are complete or ordered before the next operation of the stream that owns the clock.
 *
 * Clocks are immutable, so an event that is recorded shares the clock of its stream instead of
 * copying it. In the clock NULL all numbers are 0. The engine's lock guards the reference counts.
 */

#ifndef CUDADRV_CLOCK_H
#define CUDADRV_CLOCK_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct own_clock {
    uint64_t references;
    uint32_t size; /* slots from this one on have the number 0 */
    uint64_t seq[];
} own_clock;

/* What an event, a token or a synchronization stands for: the work of a stream up to operation
 * `seq`, and everything in the clock that the stream had then. */
typedef struct own_snapshot {
    own_clock *clock;
    uint64_t seq;
    uint32_t slot;
} own_snapshot;

static inline uint64_t own_clock_at(const own_clock *clock, uint32_t slot) {
    return clock && slot < clock->size ? clock->seq[slot] : 0;
}

static inline own_clock *own_clock_share(own_clock *clock) {
    if (clock) {
        clock->references++;
    }
    return clock;
}

static inline void own_clock_drop(own_clock *clock) {
    if (clock && --clock->references == 0) {
        free(clock);
    }
}

static inline int own_clock_knows(const own_clock *clock, const own_snapshot *news) {
    if (own_clock_at(clock, news->slot) < news->seq) {
        return 0;
    }
    if (news->clock == clock) {
        return 1;
    }
    for (uint32_t i = 0; news->clock && i < news->clock->size; i++) {
        if (own_clock_at(clock, i) < news->clock->seq[i]) {
            return 0;
        }
    }
    return 1;
}

/* Sets *joined to a clock that has everything in `clock` and in the snapshot `news`. The caller
 * owns a reference to it. Returns 0 if malloc fails. */
static inline int own_clock_join(own_clock *clock, const own_snapshot *news, own_clock **joined) {
    if (own_clock_knows(clock, news)) {
        *joined = own_clock_share(clock);
        return 1;
    }
    uint32_t size = news->slot + 1;
    size = clock && clock->size > size ? clock->size : size;
    size = news->clock && news->clock->size > size ? news->clock->size : size;
    own_clock *result = malloc(sizeof *result + size * sizeof *result->seq);
    if (!result) {
        return 0;
    }
    result->references = 1;
    result->size = size;
    for (uint32_t i = 0; i < size; i++) {
        uint64_t a = own_clock_at(clock, i), b = own_clock_at(news->clock, i);
        result->seq[i] = a > b ? a : b;
    }
    if (result->seq[news->slot] < news->seq) {
        result->seq[news->slot] = news->seq;
    }
    *joined = result;
    return 1;
}

#endif
