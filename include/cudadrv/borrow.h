/* Checks operations, and records that they borrow the bytes that they use. */

#ifndef CUDADRV_BORROW_H
#define CUDADRV_BORROW_H

#include "runs.h"

/* Returns whether the operation of an epoch is ordered before the next operation of the stream.
 * `view` is the clock of everything that the stream will have waited for before that operation.
 * `stream` is NULL for the host. */
static inline int own_in_view_(const own_engine *engine, const own_stream *stream,
                               const own_clock *view, const own_epoch *epoch) {
    return (stream && epoch->slot == stream->slot && epoch->seq <= stream->seq) ||
           own_known_(engine, epoch->slot, epoch->seq) ||
           own_clock_at(view, epoch->slot) >= epoch->seq;
}

static inline void own_blame_(const own_engine *engine, own_conflict *conflict,
                              const own_epoch *epoch) {
    const own_stream *stream = engine->slots[epoch->slot].stream;
    conflict->epoch = *epoch;
    conflict->number = stream ? stream->number : 0;
    conflict->order = stream ? stream->order : OWN_NON_BLOCKING;
    conflict->kind = own_kind_of_(stream);
}

/* Returns whether a use of mode `other` conflicts with an access of this mode, which must be
 * OWN_READ or OWN_REACH. */
static inline int own_excludes_read_(uint8_t mode, uint8_t other) {
    return other == OWN_WRITE || (other == OWN_REACH && mode == OWN_READ) ||
           (other == OWN_READ && mode == OWN_REACH);
}

/* Returns OWN_OK if every operation that conflicts with the access is ordered before it. Otherwise
 * the policy selects between OWN_MUST_WAIT and OWN_BORROWED. `stream` is NULL for the host. */
static inline int own_check_epochs_(const own_engine *engine, const own_stream *stream,
                                    const own_clock *view, const own_access *access,
                                    own_conflict *conflict) {
    own_memory *memory = access->memory;
    if (access->policy == OWN_UNCHECKED || access->mode == OWN_SHARED) {
        return OWN_OK;
    }
    own_range *last, *range = own_ranges_of(memory, access->start, access->stop, &last);
    for (; range < last; range++) {
        const own_epoch *epoch = own_epochs(range), *end = epoch + range->count;
        const uint32_t index = (uint32_t)(range - memory->ranges);
        for (; epoch < end; epoch++) {
            if ((access->mode == OWN_WRITE
                     ? epoch->mode != OWN_SHARED || access->effect >= OWN_CLOSES
                     : own_excludes_read_(access->mode, epoch->mode)) &&
                !own_in_view_(engine, stream, view, epoch) &&
                own_uses_bytes_(memory, index, epoch, own_bytes_of(access))) {
                const own_bytes used = own_bytes_at_(memory, index, epoch);
                own_blame_(engine, conflict, epoch);
                conflict->memory = memory;
                conflict->from = used.start;
                conflict->upto = used.stop;
                return access->policy == OWN_WAIT ? OWN_MUST_WAIT : OWN_BORROWED;
            }
        }
    }
    return OWN_OK;
}

/* Checks all accesses of a request. If one of them must be refused and another must wait, returns
 * the refusal, so that the caller does not wait in vain. */
static inline int own_check_(const own_engine *engine, own_request *request,
                             const own_clock *view) {
    int answer = OWN_OK;
    if (request->stream->state != OWN_OPEN) {
        return OWN_STREAM_CLOSED;
    }
    if (request->returns) {
        return OWN_OK;
    }
    for (uint32_t i = 0; i < request->count; i++) {
        const own_access *access = &request->accesses[i];
        own_conflict conflict = {.access = i};
        int found = OWN_OK;
        if (__builtin_expect(access->memory->unusual, 0)) {
            found = own_check_limits_(engine, request->stream, access, &conflict);
        }
        if (found == OWN_OK && access->start < access->stop) {
            found = own_check_exports_(request->stream, access, &conflict);
            if (found == OWN_OK) {
                found = own_check_epochs_(engine, request->stream, view, access, &conflict);
            }
        }
        if (found != OWN_OK && (answer == OWN_OK || answer == OWN_MUST_WAIT)) {
            answer = found;
            request->conflict = conflict;
        }
    }
    if ((answer == OWN_OK || answer == OWN_MUST_WAIT) && request->stream->domain->host_excluded) {
        const own_export *view = own_excluding_view_(engine, request->stream);
        if (view) {
            request->conflict = (own_conflict){.site = view->site, .excluded = 1};
            return OWN_EXPORTED;
        }
    }
    return answer;
}

/* Drops the epochs that the host knows to be complete; with `boxed`, only those with boxes, and
 * those of managed memory only if the host has used the bytes since (turns.h needs the others). */
static inline void own_drop_known_(const own_engine *engine, own_memory *memory, int boxed) {
    for (uint32_t i = 0; i < memory->count; i++) {
        own_range *range = &memory->ranges[i];
        own_epoch *epochs = own_epochs(range);
        uint32_t kept = 0;
        for (uint32_t k = 0; k < range->count; k++) {
            if (!own_known_(engine, epochs[k].slot, epochs[k].seq) ||
                (boxed && (!epochs[k].box || (memory->managed && !epochs[k].seen)))) {
                epochs[kept++] = epochs[k];
            }
        }
        range->count = kept;
    }
}

/* Returns a set of the numbers of boxes that epochs have: bit n for the number n + 1. */
static inline uint64_t own_boxes_used_(const own_memory *memory) {
    uint64_t used = 0;
    for (uint32_t i = 0; i < memory->count; i++) {
        const own_epoch *epoch = own_epochs(&memory->ranges[i]);
        const own_epoch *end = epoch + memory->ranges[i].count;
        for (; epoch < end; epoch++) {
            used |= epoch->box ? UINT64_C(1) << (epoch->box - 1) : 0;
        }
    }
    return used;
}

/* Lets operations take the fast path again if no epoch has a box any more. */
static inline void own_drop_boxes_(own_memory *memory) {
    if (!own_boxes_used_(memory)) {
        memory->limits->boxes->count = 0;
        memory->limited &= (uint8_t)~OWN_HAS_BOXES;
    }
}

/* Returns whether one of the few accesses before this one has found no number in the table of its
 * memory. Then there is none for this one either. */
static inline int own_was_full_(const own_request *request, const own_access *access) {
    const own_access *other = access;
    for (uint32_t i = 0; i < OWN_FEW_ACCESSES && other > request->accesses; i++) {
        other--;
        if (other->memory == access->memory && other->boxed) {
            return other->number == OWN_BY_ROWS;
        }
    }
    return 0;
}

/* Returns a number of a full table that no epoch and no other access of the request has, or
 * OWN_BY_ROWS. */
static inline uint32_t own_unused_box_(const own_engine *engine, const own_request *request,
                                       const own_access *access) {
    own_memory *memory = access->memory;
    if (own_was_full_(request, access)) {
        return OWN_BY_ROWS;
    }
    own_drop_known_(engine, memory, 1);
    uint64_t used = own_boxes_used_(memory);
    for (uint32_t i = 0; i < request->count; i++) {
        const own_access *other = &request->accesses[i];
        if (other->memory == memory && other->boxed && other->number) {
            used |= UINT64_C(1) << (other->number - 1);
        }
    }
    const uint64_t unused = ~used & (~UINT64_C(0) >> (64 - OWN_BOXES));
    return unused ? (uint32_t)__builtin_ctzll(unused) + 1 : OWN_BY_ROWS;
}

/* Enters the box of an access into the table of its memory, and sets its number. Returns 0 if there
 * is no table, or if it is full. */
static inline int own_enter_box_(own_access *access) {
    own_boxes *boxes = access->memory->limits ? access->memory->limits->boxes : NULL;
    uint32_t i = 0;
    if (!boxes) {
        return 0;
    }
    while (i < boxes->count && (boxes->each[i].start != access->start ||
                                !own_box_same_(&boxes->each[i].box, &access->box))) {
        i++;
    }
    if (i == OWN_BOXES) {
        return 0;
    }
    if (i == boxes->count) {
        boxes->each[i].start = access->start;
        boxes->each[i].box = access->box;
        boxes->count++;
    }
    access->memory->limited |= OWN_HAS_BOXES;
    access->number = (uint8_t)(i + 1);
    return 1;
}

/* Sets the number of the box of an access, and makes room in the table of its memory if necessary.
 * Returns 0 if malloc fails. */
static __attribute__((noinline)) int own_find_box_(const own_engine *engine,
                                                   const own_request *request, own_access *access) {
    own_memory *memory = access->memory;
    if (!memory->limits) {
        memory->limits = calloc(1, sizeof *memory->limits);
    }
    if (memory->limits && !memory->limits->boxes) {
        memory->limits->boxes = calloc(1, sizeof *memory->limits->boxes);
    }
    if (!memory->limits || !memory->limits->boxes) {
        return 0;
    }
    own_boxes *boxes = memory->limits->boxes;
    if (own_enter_box_(access)) {
        return 1;
    }
    access->number = (uint8_t)own_unused_box_(engine, request, access);
    if (access->number != OWN_BY_ROWS) {
        boxes->each[access->number - 1].start = access->start;
        boxes->each[access->number - 1].box = access->box;
    }
    return 1;
}

/* Returns how many epochs the operation can add to a range at most: one for each mode, and one for
 * each mode of a box of the table. */
static inline uint32_t own_most_uses_(const own_request *request) {
    const own_access *access = request->accesses, *end = access + request->count;
    uint32_t modes = 0, boxes = 0;
    for (; access < end; access++) {
        modes |= UINT32_C(1) << access->mode;
        boxes += access->boxed;
    }
    const uint32_t different = (uint32_t)__builtin_popcount(modes);
    return different + (boxes < OWN_BOXES * different ? boxes : OWN_BOXES * different);
}

/* As own_most_uses_, for the ranges of one memory. */
static inline uint32_t own_uses_(const own_request *request, const own_memory *memory) {
    const own_access *access = request->accesses, *end = access + request->count;
    uint32_t modes = 0, boxes = 0;
    for (; access < end; access++) {
        modes |= (uint32_t)(access->memory == memory) << access->mode;
        boxes += access->memory == memory && access->boxed;
    }
    return (uint32_t)__builtin_popcount(modes) + boxes;
}

static inline int own_cut_rows_(const own_access *access) {
    for (own_rows_ rows = own_rows_of_(access); own_has_row_(&rows); own_next_row_(&rows)) {
        if (!own_range_cut(access->memory, rows.start) ||
            !own_range_cut(access->memory, rows.stop)) {
            return 0;
        }
    }
    return 1;
}

/* Allocates what own_commit_ needs. `most` is 0, or what own_most_uses_ has returned: counting the
 * uses of each memory would take too long for a request with many accesses. */
static inline int own_reserve_(const own_engine *engine, const own_request *request,
                               own_access *access, uint32_t most) {
    own_memory *memory = access->memory;
    if (access->start >= access->stop) {
        return 1;
    }
    if (access->boxed) {
        if (!own_find_box_(engine, request, access) ||
            (access->number == OWN_BY_ROWS && !own_cut_rows_(access))) {
            return 0;
        }
    }
    if (!own_range_cut(memory, access->start) || !own_range_cut(memory, access->stop)) {
        return 0;
    }
    if (__builtin_expect(access->effect | memory->limited, 0) && !own_reserve_contents_(access)) {
        return 0;
    }
    own_range *end, *range = own_ranges_of(memory, access->start, access->stop, &end);
    for (; range < end; range++) {
        if (range->count + request->count > OWN_FEW &&
            !own_range_reserve(range, most ? most : own_uses_(request, memory))) {
            return 0;
        }
    }
    return 1;
}

/* Returns whether the epoch `epoch` uses all bytes that the epoch `old` uses in the same range. */
static inline int own_covers_(const own_memory *memory, const own_epoch *epoch,
                              const own_epoch *old) {
    return !epoch->box || epoch->box == old->box ||
           (old->box &&
            own_box_covers_(own_boxed_bytes_(memory, epoch), own_boxed_bytes_(memory, old)));
}

/* Adds the epoch of a new operation and drops the epochs before it that it can replace: what is
 * ordered after the new operation is also ordered after those. A read does not replace a write,
 * because later reads must be checked against the write. */
static inline void own_replace_(const own_engine *engine, const own_stream *stream,
                                const own_clock *view, const own_memory *memory, own_range *range,
                                const own_epoch *epoch) {
    own_epoch *kept = own_epochs(range);
    const own_epoch *old = kept, *end = old + range->count;
    for (; old < end; old++) {
        int stands_for = (epoch->mode == OWN_WRITE || old->mode == epoch->mode) &&
                         own_covers_(memory, epoch, old);
        int same = old->slot == epoch->slot && old->seq == epoch->seq;
        if (!(own_known_(engine, old->slot, old->seq) ||
              (stands_for && (same || own_in_view_(engine, stream, view, old))))) {
            *kept++ = *old;
        }
    }
    *kept++ = *epoch;
    range->count = (uint32_t)(kept - own_epochs(range));
}

static inline void own_commit_rows_(const own_engine *engine, const own_request *request,
                                    const own_access *access, const own_epoch *epoch) {
    own_memory *memory = access->memory;
    for (own_rows_ rows = own_rows_of_(access); own_has_row_(&rows); own_next_row_(&rows)) {
        own_range *end, *range = own_ranges_of(memory, rows.start, rows.stop, &end);
        for (; range < end; range++) {
            own_replace_(engine, request->stream, request->stream->clock, memory, range, epoch);
        }
    }
}

/* Records the use of an access. */
static inline void own_commit_epochs_(const own_engine *engine, const own_request *request,
                                      own_access *access) {
    own_memory *memory = access->memory;
    const own_epoch epoch = {request->issued.seq,
                             request->issued.slot,
                             request->site,
                             request->operation,
                             access->mode,
                             0,
                             access->boxed ? access->number & 0x7f : 0};
    access->undo = 0;
    if (access->boxed && access->number == OWN_BY_ROWS) {
        own_commit_rows_(engine, request, access, &epoch);
        return;
    }
    own_range *end, *first = own_ranges_of(memory, access->start, access->stop, &end);
    if (end == first + 1 && first->count <= OWN_FEW) {
        const own_epoch *epochs = own_epochs(first);
        access->undo = 1;
        access->undo_count = (uint8_t)first->count;
        for (uint32_t k = 0; k < first->count; k++) {
            access->saved[k] = epochs[k];
            access->undo &= epochs[k].box == 0; /* the number may get another box meanwhile */
        }
    }
    for (own_range *range = first; range < end; range++) {
        own_replace_(engine, request->stream, request->stream->clock, memory, range, &epoch);
    }
}

static inline void own_commit_(const own_engine *engine, own_request *request, own_access *access) {
    access->undo = 0;
    if (__builtin_expect(access->effect | access->memory->limited, 0)) {
        const own_id by = {request->issued.seq, request->issued.slot};
        own_commit_effect_(engine, access, by, request->site, &request->attachment);
    }
    if (access->start < access->stop) {
        own_commit_epochs_(engine, request, access);
    }
}

#if OWN_BODIES
/* Returns whether one of the first accesses of the request drops the epoch `old` of a range. */
static inline int own_is_replaced_(const own_request *request, uint32_t accesses,
                                   const own_memory *memory, const own_range *range,
                                   const own_epoch *old) {
    for (uint32_t i = 0; i < accesses; i++) {
        const own_access *access = &request->accesses[i];
        const own_epoch epoch = {.mode = access->mode, .box = access->boxed ? access->number : 0};
        if (access->memory == memory && access->start <= range->start &&
            range->start < access->stop && (epoch.mode == OWN_WRITE || epoch.mode == old->mode) &&
            own_covers_(memory, &epoch, old)) {
            return 1;
        }
    }
    return 0;
}

static inline int own_asks_for_box_(const own_request *request) {
    for (uint32_t i = 0; i < request->count; i++) {
        if (request->accesses[i].boxed) {
            return 1;
        }
    }
    return 0;
}

/* Enters the boxes of all accesses to a memory. Returns 0 if there is no room for one of them. */
static inline int own_enter_boxes_(const own_request *request, const own_memory *memory) {
    for (uint32_t i = 0; i < request->count; i++) {
        own_access *access = &request->accesses[i];
        if (access->memory == memory && access->boxed && !own_enter_box_(access)) {
            return 0;
        }
    }
    return 1;
}

/* Returns whether a request has one access, or two of different memory. */
static inline int own_is_simple_(const own_request *request) {
    return request->count == 1 ||
           (request->count == 2 && request->accesses[0].memory != request->accesses[1].memory);
}

/* Returns how many unfinished epochs of a range are left when the first accesses of the request are
 * recorded. Returns UINT32_MAX if one of them is of another stream. */
static inline uint32_t own_left_(const own_engine *engine, const own_request *request,
                                 uint32_t accesses, const own_memory *memory, own_range *range) {
    const own_epoch *old = own_epochs(range), *last = old + range->count;
    uint32_t left = 0;
    for (; old < last; old++) {
        if (!own_known_(engine, old->slot, old->seq)) {
            if (old->slot != request->stream->slot) {
                return UINT32_MAX;
            }
            left += !own_is_replaced_(request, accesses, memory, range, old);
        }
    }
    return left;
}

/* Returns whether all unfinished uses of a range are on the stream of the request, and the range
 * has room for the new epochs of each access, one after the other. */
static inline int own_has_room_(const own_engine *engine, const own_request *request,
                                const own_memory *memory, own_range *range) {
    const uint32_t room = range->capacity ? range->capacity : OWN_FEW;
    uint32_t added = 0;
    for (uint32_t i = 0; i < request->count; i++) {
        if (request->accesses[i].memory == memory) {
            const uint32_t left = own_left_(engine, request, i + 1, memory, range);
            if (left > room || left + ++added > room) {
                return 0;
            }
        }
    }
    return 1;
}

/* The bytes may be several ranges, but must begin and end where a range does. No access of the
 * request has to be checked against another one, because they are of one operation. */
int own_usual_boxed_(const own_engine *engine, const own_request *request, own_access *access) {
    own_memory *memory = access->memory;
    if (memory->closed || (memory->limited & ~OWN_HAS_BOXES) || memory->exports ||
        access->effect >= OWN_ATTACHES || access->start >= access->stop ||
        request->count > OWN_FEW_ACCESSES) {
        return 0;
    }
    own_range *range = own_only_range_(access);
    if (range && range->count == 1 && own_epochs(range)->slot == request->stream->slot &&
        own_is_simple_(request)) {
        return !access->boxed || own_enter_box_(access); /* the most frequent case */
    }
    const int entered = own_enter_boxes_(request, memory);
    own_range *end, *first = own_ranges_of(memory, access->start, access->stop, &end);
    if (!entered || first->start != access->start || end - first > OWN_FEW_RANGES ||
        own_range_stop(memory, (uint32_t)(end - 1 - memory->ranges)) != access->stop) {
        return 0;
    }
    for (range = first; range < end; range++) {
        if (!own_has_room_(engine, request, memory, range)) {
            return 0;
        }
    }
    return 1;
}

void own_commit_boxed_(const own_engine *engine, own_request *request, own_access *access) {
    own_memory *memory = access->memory;
    own_commit_epochs_(engine, request, access);
    if (memory->count == 1 && memory->ranges->count == 1 && !own_epochs(memory->ranges)->box &&
        !own_asks_for_box_(request)) {
        own_drop_boxes_(memory);
        own_range_shrink(memory->ranges); /* without boxes, the fast path takes it as small */
    }
}
#endif

/* Joins ranges inside an access that have equal epochs, and makes ranges with few epochs small.
 * Call this after all accesses of the operation are committed: accesses may overlap, and
 * own_commit_ needs the cuts at both ends of each. These cuts stay, because the next operation that
 * uses the same bytes then takes the fast path. */
static inline void own_join_ranges_(const own_access *access) {
    own_memory *memory = access->memory;
    if (access->start >= access->stop) {
        return;
    }
    own_range *end, *first = own_ranges_of(memory, access->start, access->stop, &end);
    for (own_range *range = first; range < end; range++) {
        own_range_shrink(range);
    }
    own_ranges_join(memory, first, end);
}

/* When the number of ranges has doubled since the last sweep, drops the epochs that the host knows
 * to be complete, and joins ranges without epochs. Without this, ranges that no operation uses
 * again would stay cut. Ranges with equal epochs stay apart: they are parts that one batch has
 * used, and the next batch may use again. */
static inline void own_sweep_(const own_engine *engine, own_memory *memory) {
    if (memory->count < memory->crowded) {
        return;
    }
    own_drop_known_(engine, memory, 0);
    own_ranges_join_(memory, memory->ranges, memory->ranges + memory->count, 1);
    memory->crowded = 2 * memory->count + OWN_CROWDED;
}

/* Checks a request. If it is allowed, allocates memory for its epochs. Returns an own_answer. */
static inline int own_prepare_(own_engine *engine, own_request *request, const own_clock *view) {
    int answer = own_check_(engine, request, view);
    const uint32_t most = request->count > OWN_FEW_ACCESSES ? own_most_uses_(request) : 0;
    for (uint32_t i = 0; answer == OWN_OK && i < request->count; i++) {
        answer =
            own_reserve_(engine, request, &request->accesses[i], most) ? OWN_OK : OWN_NO_MEMORY;
    }
    return answer;
}

static inline void own_commit_all_(own_engine *engine, own_request *request) {
    for (uint32_t i = 0; i < request->count; i++) {
        own_commit_(engine, request, &request->accesses[i]);
    }
    if (request->loan) {
        own_stream *borrower = request->loan->borrower;
        own_export_link_(engine, request->accesses, request->site,
                         borrower ? borrower : request->stream, request->loan);
    }
    for (uint32_t i = 0; i < request->count; i++) {
        own_memory *memory = request->accesses[i].memory;
        own_join_ranges_(&request->accesses[i]);
        own_sweep_(engine, memory);
        if (__builtin_expect(memory->limited, 0)) {
            own_join_discards_(engine, memory);
            if (memory->limited & OWN_HAS_BOXES && memory->count <= OWN_FEW_RANGES) {
                own_drop_known_(engine, memory, 1);
                own_drop_boxes_(memory);
            }
        }
    }
}

/* Returns whether the stream runs its next operation after `before` anyway, because `before` is
 * empty, or is of this stream. */
static inline int own_follows_(const own_stream *stream, const own_snapshot *before) {
    return before->seq == 0 || (before->slot == stream->slot && before->seq <= stream->seq);
}

/* Joins a snapshot into *view. Returns 0 if malloc fails; then *view is dropped. */
static __attribute__((noinline)) int own_join_view_(own_clock **view, const own_snapshot *news) {
    own_clock *joined = NULL;
    int ok = own_clock_join(*view, news, &joined);
    own_clock_drop(*view);
    *view = joined;
    return ok;
}

/* Sets *view to a clock of everything that is ordered before the request's operation: what its
 * stream waits for and, if `runs` is not NULL, the last run. The caller owns a reference to this
 * clock. Returns 0 if malloc fails. */
static inline int own_view_of_(const own_request *request, const own_runs *runs, own_clock **view) {
    int ok = 1;
    if (request->passive) {
        *view = own_clock_share(request->stream->clock);
    } else {
        ok = own_view_(request->stream, view);
    }
    return ok && (!runs || own_follows_(request->stream, &runs->last.snapshot) ||
                  own_join_view_(view, &runs->last.snapshot));
}

/* Gives the operation the next number of its stream. `view` is the clock from own_view_of_. */
static inline void own_number_(own_request *request, own_clock *view) {
    own_stream *stream = request->stream;
    own_operation *recent = &stream->recent[++stream->seq % OWN_RECENT];
    request->issued = (own_snapshot){view, stream->seq, stream->slot};
    request->forgotten = *recent;
    *recent = (own_operation){stream->seq, request->site, request->operation};
}

/* Does own_begin for every operation. The fast path is in own_begin itself. */
static __attribute__((noinline)) int own_begin_unusual_(own_engine *engine, own_request *request,
                                                        const own_runs *runs) {
    own_clock *view;
    if (!own_view_of_(request, runs, &view)) {
        return OWN_NO_MEMORY;
    }
    int answer = own_prepare_(engine, request, view);
    if (answer == OWN_OK) {
        own_number_(request, view);
        own_commit_all_(engine, request);
    } else {
        own_clock_drop(view);
    }
    return answer;
}

/* Checks an operation and, if it is allowed, borrows its bytes. Returns an own_answer. If that is
 * not OWN_OK, nothing has changed. The caller holds the issue locks of the stream and of the runs,
 * until own_settle or own_undo.
 *
 * `runs`: NULL, or the runs of an operation that is issued again and again. The driver starts each
 * run after the last one, even if the stream does not wait for the last one; own_settle then orders
 * the stream's later work after the last run, too.
 * `apart`: the accesses use different memory and, with `runs`, were those of the last run, too.
 * `alone`: no other thread can be in the engine, so its lock is not taken. Only the fast path is
 * tried: if it is not possible, returns OWN_UNUSUAL.
 *
 * Always inlined, so that constant arguments leave only the code that the caller needs. */
OWN_INLINE int own_begin(own_engine *engine, own_request *request, own_runs *runs, int apart,
                         int alone) {
    int answer = OWN_OK;
    if (!alone) {
        own_lock_clocks(engine);
    }
    if (runs &&
        __builtin_expect(engine->runs == runs && runs->stream == request->stream && apart, 1)) {
        own_number_(request, own_clock_share(request->stream->clock));
        own_note_run_(request, runs, 1);
    } else {
        if (__builtin_expect(engine->runs != NULL, 0)) {
            own_catch_up_(engine);
        }
        if (__builtin_expect((!runs || own_follows_(request->stream, &runs->last.snapshot)) &&
                                 own_all_usual_(engine, request, apart),
                             1)) {
            own_access *access = request->accesses, *end = access + request->count;
            uint8_t limited = 0;
            own_number_(request, own_clock_share(request->stream->clock));
            for (; access < end; access++) {
                own_commit_usual_(engine, request, access);
                limited |= runs ? access->memory->limited : 0;
            }
            if (runs && apart && !limited) { /* own_catch_up_ knows no boxes */
                own_run_first_(engine, request, runs);
            }
        } else {
            answer = alone ? OWN_UNUSUAL : own_begin_unusual_(engine, request, runs);
        }
    }
    if (!alone) {
        own_unlock(engine);
    }
    return answer;
}

/* Returns what own_begin would return if the stream had waited for everything in the clock
 * `waited`, and sets the conflict of the request. Borrows nothing. */
static inline int own_ask(own_engine *engine, own_request *request, const own_runs *runs,
                          own_clock *waited) {
    own_clock *view;
    int answer = OWN_NO_MEMORY;
    own_lock(engine);
    const own_snapshot news = {waited, 0, 0};
    if (own_view_of_(request, runs, &view) && (!waited || own_join_view_(&view, &news))) {
        answer = own_check_(engine, request, view);
        own_clock_drop(view);
    }
    own_unlock(engine);
    return answer;
}

/* Drops the epochs of operations that the default streams' rules order before this operation. Call
 * this when the driver has the operation, and not earlier: the rules make the stream wait only
 * then. */
static inline void own_supersede_(const own_engine *engine, const own_request *request,
                                  const own_access *access) {
    own_memory *memory = access->memory;
    const own_snapshot *issued = &request->issued;
    if (access->start >= access->stop) {
        return;
    }
    own_range *end, *first = own_ranges_of(memory, access->start, access->stop, &end);
    for (own_range *range = first; range < end; range++) {
        for (uint32_t k = 0; k < range->count; k++) {
            const own_epoch epoch = own_epochs(range)[k];
            if (epoch.slot == issued->slot && epoch.seq == issued->seq &&
                epoch.mode == access->mode && epoch.box == (access->boxed ? access->number : 0)) {
                own_replace_(engine, request->stream, issued->clock, memory, range, &epoch);
                break;
            }
        }
    }
    own_ranges_join(memory, first, end);
}

/* Lets the stream's clock and the default streams' rules know of an operation that the driver has.
 */
OWN_ONCE void own_order_later_(own_engine *engine, const own_request *request);

#if OWN_BODIES
void own_order_later_(own_engine *engine, const own_request *request) {
    own_stream *stream = request->stream;
    if (request->issued.clock != stream->clock) {
        if (engine->runs) {
            own_catch_up_(engine);
        }
        for (uint32_t i = 0; i < request->count; i++) {
            own_supersede_(engine, request, &request->accesses[i]);
        }
        own_learn_(stream, own_clock_share(request->issued.clock));
    }
    if (request->passive) {
        own_count_passive_(stream);
    } else {
        own_count_use_(stream);
    }
}
#endif

/* Call this when the driver has accepted the operation. Notes it as the last one of `runs`, which
 * may be NULL.
 *
 * `alone`: as for own_begin, which took the fast path. Operations on the fast path do not change
 * the stream's clock, and the default streams' rules do not order them. */
OWN_INLINE void own_settle(own_engine *engine, own_request *request, own_runs *runs, int alone) {
    own_stream *stream = request->stream;
    if (!alone) {
        own_lock_clocks(engine);
        own_order_later_(engine, request);
    }
    stream->settled = request->issued.seq;
    own_over_if_lost_(engine, stream);
    if (runs) {
        own_record_as_(&request->issued, &runs->last);
    }
    if (!alone) {
        own_unlock(engine);
    }
}

/* Returns whether own_undo can restore the former epochs of the bytes. It can if the bytes are
 * still one range, whose last epoch is that of the operation. */
static inline int own_undoable_(const own_access *access, const own_snapshot *issued) {
    own_memory *memory = access->memory;
    uint32_t i = own_range_find(memory, access->start);
    own_range *range = &memory->ranges[i];
    const own_epoch *last = own_epochs(range) + range->count - 1;
    return access->undo && range->start == access->start && range->count &&
           own_range_stop(memory, i) == access->stop && last->seq == issued->seq &&
           last->slot == issued->slot;
}

/* Call this when the first driver call of the operation has failed, so that the driver has queued
 * nothing. Reverts own_begin. It cannot restore bytes that were in several ranges, or that another
 * thread has borrowed since: these stay borrowed as if the operation had been queued. */
static inline void own_undo(own_engine *engine, own_request *request) {
    own_stream *stream = request->stream;
    int all = 1;
    own_lock(engine);
    if (request->loan) {
        own_export_unlink_(engine, request->loan);
    }
    for (uint32_t i = request->count; i-- > 0;) {
        own_access *access = &request->accesses[i];
        if (__builtin_expect(access->effect | access->memory->limited, 0)) {
            const own_id by = {request->issued.seq, request->issued.slot};
            own_undo_effect_(access, by);
        }
        if (access->start >= access->stop) {
            continue;
        }
        if (!own_undoable_(access, &request->issued)) {
            all = 0;
            continue;
        }
        uint32_t index = own_range_find(access->memory, access->start);
        own_range *range = &access->memory->ranges[index];
        memcpy(own_epochs(range), access->saved, access->undo_count * sizeof *access->saved);
        range->count = access->undo_count;
        own_ranges_join(access->memory, range - (index > 0),
                        range + 1 + (index + 1 < access->memory->count));
    }
    if (all) {
        stream->recent[stream->seq % OWN_RECENT] = request->forgotten;
        stream->seq--;
    } else {
        own_count_passive_(stream);
        stream->settled = stream->seq;
        own_over_if_lost_(engine, stream);
    }
    own_clock_drop(request->issued.clock);
    request->issued.clock = NULL;
    own_unlock(engine);
}

#endif
