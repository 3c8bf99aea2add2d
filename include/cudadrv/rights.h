/* Rights: what the host may do with whole pages of a memory while operations use them.
 *
 * A page has bytes of several operations, views and buffers. A right is the largest one that any of
 * its bytes has: a page whose bytes are not all in use stays accessible, because the host may use
 * the others. */

#ifndef CUDADRV_RIGHTS_H
#define CUDADRV_RIGHTS_H

#include "host.h"

enum own_right { OWN_MAY_NOTHING, OWN_MAY_READ, OWN_MAY_ALL };

/* Pages of a memory. `start` is the offset of the first one, and `size` that of each. */
typedef struct own_pages {
    uint64_t start, size, count;
    uint8_t *rights; /* of each page: an own_right */
} own_pages;

/* Returns the right that an operation in this mode leaves to the host. OWN_SHARED leaves all: the
 * program orders such operations itself. */
static inline uint8_t own_right_beside_(uint8_t mode) {
    return mode == OWN_SHARED ? OWN_MAY_ALL : mode == OWN_READ ? OWN_MAY_READ : OWN_MAY_NOTHING;
}

/* Raises the rights of the pages that have some of these bytes. */
static inline void own_raise_(const own_pages *pages, uint64_t start, uint64_t stop,
                              uint8_t right) {
    const uint64_t end = pages->start + pages->count * pages->size;
    start = start > pages->start ? start : pages->start;
    stop = stop < end ? stop : end;
    if (start >= stop) {
        return;
    }
    uint64_t page = (start - pages->start) / pages->size;
    for (; page <= (stop - 1 - pages->start) / pages->size; page++) {
        if (pages->rights[page] < right) {
            pages->rights[page] = right;
        }
    }
}

/* Lowers the rights of the pages that have only these bytes. */
static inline void own_lower_(const own_pages *pages, uint64_t start, uint64_t stop,
                              uint8_t right) {
    const uint64_t behind = stop > pages->start ? (stop - pages->start) / pages->size : 0;
    uint64_t page =
        start > pages->start ? (start - pages->start + pages->size - 1) / pages->size : 0;
    for (; page < behind && page < pages->count; page++) {
        if (pages->rights[page] > right) {
            pages->rights[page] = right;
        }
    }
}

/* Returns the right that unfinished operations without boxes leave to the host in a range. */
static inline uint8_t own_right_in_(const own_engine *engine, own_range *range) {
    const own_epoch *epoch = own_epochs(range), *end = epoch + range->count;
    uint8_t right = OWN_MAY_ALL;
    for (; epoch < end; epoch++) {
        const uint8_t left = own_right_beside_(epoch->mode);
        if (!epoch->box && left < right && !own_known_(engine, epoch->slot, epoch->seq)) {
            right = left;
        }
    }
    return right;
}

/* Lowers the rights of the pages that lie in one row of an unfinished operation's box. */
static inline void own_lower_boxes_(const own_engine *engine, const own_memory *memory,
                                    own_range *range, const own_pages *pages) {
    const own_epoch *epoch = own_epochs(range), *end = epoch + range->count;
    for (; epoch < end; epoch++) {
        if (!epoch->box || own_known_(engine, epoch->slot, epoch->seq)) {
            continue;
        }
        const own_bytes bytes = own_boxed_bytes_(memory, epoch);
        const own_access access = {
            .start = bytes.start, .stop = bytes.stop, .boxed = 1, .box = *bytes.box};
        own_rows_ rows = own_rows_of_(&access);
        for (; bytes.box->width >= pages->size && own_has_row_(&rows); own_next_row_(&rows)) {
            own_lower_(pages, rows.start, rows.stop, own_right_beside_(epoch->mode));
        }
    }
}

/* Sets the rights of pages of a memory. Bytes behind its end, up to the end of the last page,
 * belong to nobody. */
static inline void own_rights(own_engine *engine, own_memory *memory, const own_pages *pages) {
    memset(pages->rights, OWN_MAY_NOTHING, pages->count);
    own_lock(engine);
    for (uint32_t i = 0; i < memory->count; i++) {
        own_raise_(pages, memory->ranges[i].start, own_range_stop(memory, i),
                   own_right_in_(engine, &memory->ranges[i]));
    }
    if (memory->limited & OWN_HAS_BOXES) {
        for (uint32_t i = 0; i < memory->count; i++) {
            own_lower_boxes_(engine, memory, &memory->ranges[i], pages);
        }
    }
    for (const own_export *view = memory->exports; view; view = view->next) {
        if (!view->borrower) { /* made under "unchecked", if operations use its bytes */
            own_raise_(pages, view->start, view->stop,
                       view->exclusive ? OWN_MAY_ALL : OWN_MAY_READ);
        }
    }
    own_unlock(engine);
    const uint64_t end = memory->nbytes > pages->start ? memory->nbytes - pages->start : 0;
    for (uint64_t page = (end + pages->size - 1) / pages->size; page < pages->count; page++) {
        pages->rights[page] = OWN_MAY_ALL;
    }
}

/* Finds an unfinished operation that forbids the host to read the byte at `at` or, with `writes`,
 * to write it. Returns 0 if there is none. */
static inline int own_forbids(own_engine *engine, own_memory *memory, uint64_t at, int writes,
                              own_epoch *found) {
    const own_bytes bytes = {at, at + 1, NULL};
    const uint8_t wanted = writes ? OWN_MAY_ALL : OWN_MAY_READ;
    int forbids = 0;
    own_lock(engine);
    const uint32_t index = own_range_find(memory, at);
    const own_epoch *epoch = own_epochs(&memory->ranges[index]);
    const own_epoch *end = epoch + memory->ranges[index].count;
    for (; epoch < end && !forbids; epoch++) {
        if (own_right_beside_(epoch->mode) < wanted &&
            !own_known_(engine, epoch->slot, epoch->seq) &&
            own_uses_bytes_(memory, index, epoch, bytes)) {
            *found = *epoch;
            forbids = 1;
        }
    }
    own_unlock(engine);
    return forbids;
}

/* Returns whether an operation that may be unfinished uses some bytes of a memory, and no later one
 * stands for it. */
static inline int own_is_in_use_by(own_engine *engine, const own_memory *memory, uint32_t slot,
                                   uint64_t seq, uint8_t mode) {
    own_lock(engine);
    int found = 0;
    for (uint32_t i = 0; i < memory->count && !own_known_(engine, slot, seq) && !found; i++) {
        const own_epoch *epoch = own_epochs(&memory->ranges[i]);
        const own_epoch *end = epoch + memory->ranges[i].count;
        for (; epoch < end; epoch++) {
            found |= epoch->slot == slot && epoch->seq == seq && epoch->mode == mode;
        }
    }
    own_unlock(engine);
    return found;
}

/* Finds the last operation of a stream whose unfinished work excludes the host from managed memory.
 * Returns 0 if there is none. */
static inline int own_excludes_host(own_engine *engine, own_memory *memory, own_epoch *found) {
    own_conflict conflict;
    own_lock(engine);
    const int excludes = own_excluded_(engine, memory, NULL, &conflict);
    own_unlock(engine);
    if (excludes) {
        *found = conflict.epoch;
    }
    return excludes;
}

#endif
