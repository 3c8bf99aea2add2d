/* Records which operations use which bytes of an allocation.
 *
 * An allocation is divided into ranges. Each range has the epochs of the operations that may
 * still use it: at most one for each stream and mode. Ranges are cut where an access begins or
 * ends, and joined again when neighbours have the same epochs.
 *
 * The epoch of a box does not use all bytes of its ranges: it has the number of the box in a table
 * of the allocation. */

#ifndef CUDADRV_RANGES_H
#define CUDADRV_RANGES_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "box.h"

enum own_mode {
    OWN_READ,  /* conflicts with OWN_WRITE and OWN_REACH */
    OWN_WRITE, /* conflicts with everything except OWN_SHARED */
    /* The user orders the operation: it conflicts with nothing, but the memory must outlive it. */
    OWN_SHARED,
    OWN_REACH /* may write: conflicts with OWN_READ and OWN_WRITE, not with other OWN_REACH */
};

/* The use of a range by one operation. */
typedef struct own_epoch {
    uint64_t seq;
    uint32_t slot;
    uint32_t site;
    uint16_t operation;
    uint8_t mode;
    uint8_t seen : 1; /* the host has used the bytes since: see turns.h */
    uint8_t box : 7;  /* 0: all bytes of the range; else its box is boxes[box - 1] */
} own_epoch;

enum {
    OWN_FEW = 2,      /* number of epochs that a range holds without malloc: a write and a read */
    OWN_CROWDED = 64, /* number of ranges at which own_sweep_ first runs */
    OWN_FEW_RANGES =
        8, /* number of ranges up to which the engine looks for boxes that are complete */
    OWN_FEW_ACCESSES =
        16,        /* number of accesses up to which the engine compares all pairs of them */
    OWN_BOXES = 64 /* number of boxes of an allocation; further boxes are recorded row by row */
};

typedef struct own_range {
    uint32_t count;
    uint32_t capacity; /* 0 if the epochs are in `few` */
    union {
        own_epoch few[OWN_FEW];
        own_epoch *many;
    };
    uint64_t start; /* the range ends at the start of the next one */
} own_range;

/* One operation: its slot, and its number in that slot. The number 0 stands for no operation. */
typedef struct own_id {
    uint64_t seq;
    uint32_t slot;
} own_id;

/* Bytes whose contents were discarded: see contents.h. */
typedef struct own_discard {
    struct own_discard *next;
    uint64_t start, stop;
    own_id made;    /* the discard */
    own_id written; /* an operation that has written all these bytes since, if there is one */
    own_id again;   /* another one, which began before the driver had `written` */
    uint32_t site;  /* call site of the discard */
} own_discard;

/* Which streams may use managed memory where work excludes the host: see contents.h. */
typedef struct own_attachment {
    uint64_t stream; /* own_tag of the only stream, 0 for all streams, or OWN_NO_STREAM */
    uint32_t site;   /* call site of the operation that attached the memory */
    own_id by;       /* this operation */
} own_attachment;

enum { OWN_ATTACHMENTS = 4 };

enum own_limit {
    OWN_HAS_DISCARDS = 1,
    OWN_IS_ATTACHED = 2,
    OWN_WAS_CUT = 4,
    OWN_WAS_LEFT = 8, /* `left` is not 0 */
    OWN_HAS_BOXES = 16
};

/* The boxes to which epochs of an allocation refer. */
typedef struct own_boxes {
    uint32_t count;
    struct {
        uint64_t start;
        own_box box;
    } each[OWN_BOXES];
} own_boxes;

typedef struct own_limits {
    own_discard *discards;
    /* The attachment, and those before it: own_undo takes out the one of its operation. */
    own_attachment attachments[OWN_ATTACHMENTS];
    /* OWN_WAS_CUT: the bytes from `end` on are gone, since this call site: see own_memory_cut. */
    uint64_t end;
    uint32_t cut_at;
    own_boxes *boxes; /* NULL until a box is first used */
} own_limits;

struct own_export;
struct own_hold;

/* The state of one allocation. It must not be moved, because `ranges` may point into it. The
 * fast path uses only its first 64 bytes, so that it touches few cache lines. */
typedef struct own_memory {
    uint64_t nbytes;
    own_range *ranges; /* sorted; the first starts at 0 */
    struct own_export *exports;
    uint32_t count;
    union {
        struct {
            uint8_t closed;
            uint8_t limited; /* own_limit bits: there is more to check than uses and views */
        };
        uint16_t unusual; /* `closed` and `limited`: the fast path tests both at once */
    };
    uint8_t managed;  /* the rules for managed memory apply */
    uint8_t orphaned; /* the state is freed with the last of its holds */
    own_range one;    /* the only range, if the memory has no cuts */
    uint32_t capacity;
    uint32_t crowded; /* number of ranges at which own_sweep_ runs */
    uint32_t loans;   /* how many of the exports are loans */
    /* How many buffers over the memory were closed whose objects are still alive: see own_leave_.
     */
    uint32_t left;
    uint32_t asked;         /* number of a request: see own_may_need_malloc_ */
    uint32_t batch;         /* number of the last batch of copies that writes the memory */
    uint32_t hint;          /* index of the range that own_only_range_ found last */
    uint32_t traced;        /* number of the memory in traces; 0 if it has none */
    own_limits *limits;     /* NULL until the memory is first discarded or attached */
    struct own_hold *holds; /* of the graphs that use the memory */
} own_memory;

static inline own_epoch *own_epochs(own_range *range) {
    return range->capacity ? range->many : range->few;
}

static inline uint64_t own_range_stop(const own_memory *memory, uint32_t index) {
    return index + 1 < memory->count ? memory->ranges[index + 1].start : memory->nbytes;
}

static inline void own_memory_prepare(own_memory *memory, uint64_t nbytes) {
    memset(memory, 0, sizeof *memory);
    memory->nbytes = nbytes;
    memory->ranges = &memory->one;
    memory->count = memory->capacity = 1;
    memory->crowded = OWN_CROWDED;
}

static inline void own_memory_clear(own_memory *memory) {
    for (uint32_t i = 0; i < memory->count; i++) {
        if (memory->ranges[i].capacity) {
            free(memory->ranges[i].many);
        }
    }
    if (memory->ranges != &memory->one) {
        free(memory->ranges);
    }
    while (memory->limits && memory->limits->discards) {
        own_discard *first = memory->limits->discards;
        memory->limits->discards = first->next;
        free(first);
    }
    if (memory->limits) {
        free(memory->limits->boxes);
    }
    free(memory->limits);
}

/* Returns the index of the range that contains the byte at `at`. */
static inline uint32_t own_range_find(const own_memory *memory, uint64_t at) {
    uint32_t low = 0, high = memory->count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (memory->ranges[middle].start <= at) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Returns the first range that has bytes between `start` and `stop`, and sets *end to the range
 * after the last such range. `start` must be less than `stop`. */
static inline own_range *own_ranges_of(const own_memory *memory, uint64_t start, uint64_t stop,
                                       own_range **end) {
    if (memory->count == 1) { /* the most frequent case */
        *end = memory->ranges + 1;
        return memory->ranges;
    }
    *end = memory->ranges + own_range_find(memory, stop - 1) + 1;
    return memory->ranges + own_range_find(memory, start);
}

/* Makes room for `more` epochs. Returns 0 if malloc fails. */
static inline int own_range_reserve(own_range *range, uint32_t more) {
    uint32_t capacity = range->capacity ? range->capacity : OWN_FEW;
    if (range->count + more <= capacity) {
        return 1;
    }
    capacity = 2 * capacity > range->count + more ? 2 * capacity : range->count + more;
    own_epoch *many = malloc(capacity * sizeof *many);
    if (!many) {
        return 0;
    }
    memcpy(many, own_epochs(range), range->count * sizeof *many);
    if (range->capacity) {
        free(range->many);
    }
    range->many = many;
    range->capacity = capacity;
    return 1;
}

/* Moves the epochs back into the range if there is room for them. The fast path needs them there:
 * see own_usual_. */
static inline void own_range_shrink(own_range *range) {
    if (range->capacity && range->count <= OWN_FEW) {
        own_epoch *many = range->many;
        range->capacity = 0;
        memcpy(range->few, many, range->count * sizeof *many);
        free(many);
    }
}

static inline int own_ranges_reserve(own_memory *memory) {
    if (memory->count < memory->capacity) {
        return 1;
    }
    uint32_t capacity = 2 * memory->capacity + 2;
    own_range *ranges = malloc(capacity * sizeof *ranges);
    if (!ranges) {
        return 0;
    }
    memcpy(ranges, memory->ranges, memory->count * sizeof *ranges);
    if (memory->ranges != &memory->one) {
        free(memory->ranges);
    }
    memory->ranges = ranges;
    memory->capacity = capacity;
    return 1;
}

static inline int own_range_cut_inside_(own_memory *memory, uint64_t at) {
    uint32_t index = own_range_find(memory, at);
    if (memory->ranges[index].start == at) {
        return 1;
    }
    if (!own_ranges_reserve(memory)) {
        return 0;
    }
    own_range *left = &memory->ranges[index];
    own_range right = *left;
    right.start = at;
    if (left->capacity) {
        right.many = malloc(left->capacity * sizeof *right.many);
        if (!right.many) {
            return 0;
        }
        memcpy(right.many, left->many, left->count * sizeof *right.many);
    }
    memmove(left + 2, left + 1, (memory->count - index - 1) * sizeof *left);
    left[1] = right;
    memory->count++;
    return 1;
}

/* Cuts the range that contains the byte at `at`, so that a range starts at `at`. Cuts do
 * not change the result of any check. Returns 0 if malloc fails. */
static inline int own_range_cut(own_memory *memory, uint64_t at) {
    return at == 0 || at >= memory->nbytes || own_range_cut_inside_(memory, at);
}

static inline int own_range_same(own_range *a, own_range *b) {
    if (a->count != b->count) {
        return 0;
    }
    const own_epoch *x = own_epochs(a), *y = own_epochs(b);
    for (uint32_t i = 0; i < a->count; i++) {
        if (x[i].seq != y[i].seq || x[i].slot != y[i].slot || x[i].mode != y[i].mode ||
            x[i].seen != y[i].seen || x[i].box != y[i].box) {
            return 0;
        }
    }
    return 1;
}

/* Joins neighbours that have equal epochs, among the ranges from `first` to before `end`; with
 * `unused`, only those without epochs. */
static inline void own_ranges_join_(own_memory *memory, own_range *first, own_range *end,
                                    int unused) {
    own_range *all = memory->ranges + memory->count;
    own_range *kept = first;
    for (own_range *range = first + 1; range < end; range++) {
        if (!(unused && range->count) && own_range_same(kept, range)) {
            if (range->capacity) {
                free(range->many);
            }
        } else {
            *++kept = *range;
        }
    }
    if (++kept < end) {
        memmove(kept, end, (size_t)(all - end) * sizeof *kept);
        memory->count -= (uint32_t)(end - kept);
    }
}

static inline void own_ranges_join(own_memory *memory, own_range *first, own_range *end) {
    own_ranges_join_(memory, first, end, 0);
}

#endif
