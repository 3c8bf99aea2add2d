/* Limits of memory that do not depend on other uses of the same bytes: contents that were
 * discarded, managed memory that is attached to one stream or to the host, and bytes that are gone
 * because the memory has shrunk. Also buffers that were closed, while others over the same memory
 * are open.
 *
 * Discarded bytes must not be read until something has written them. An access that may write bytes
 * counts as writing all of them. An operation only marks the discards that it overwrites, so that
 * own_undo can revert the marks. A later operation drops a marked discard, if the driver has
 * accepted the operation that marked it.
 *
 * An attachment only matters where work excludes the host. There, if memory is attached to a
 * stream, no other stream may use it, and only work of this stream excludes the host from it. An
 * attachment to a stream ends when the stream is closed and its work is known to be complete. */

#ifndef CUDADRV_CONTENTS_H
#define CUDADRV_CONTENTS_H

#include "access.h"

#define OWN_NO_STREAM UINT64_MAX /* the attachment of memory that only the host may use */

/* ---- attachments ---- */

/* Returns the stream to which the memory is attached. Returns NULL if the memory is attached to the
 * host, or if the attachment has ended. */
static inline const own_stream *own_attached_stream_(const own_engine *engine,
                                                     const own_memory *memory) {
    uint64_t tag = memory->limits->attachments->stream, slot = tag >> 40;
    const own_stream *stream = slot < engine->size ? engine->slots[slot].stream : NULL;
    if (!stream || own_tag(stream) != tag ||
        (stream->state != OWN_OPEN && own_known_(engine, stream->slot, stream->seq))) {
        return NULL;
    }
    return stream;
}

/* Returns whether the memory is attached to the host, so that no stream may use it. */
static inline int own_is_for_host_(const own_memory *memory) {
    return memory->limited & OWN_IS_ATTACHED &&
           memory->limits->attachments->stream == OWN_NO_STREAM;
}

/* Returns whether work of the stream may use the memory where work excludes the host. */
static inline int own_may_use_(const own_engine *engine, const own_memory *memory,
                               const own_stream *stream) {
    if (!(memory->limited & OWN_IS_ATTACHED)) {
        return 1;
    }
    const own_stream *only = own_attached_stream_(engine, memory);
    return only ? only == stream : !own_is_for_host_(memory);
}

/* Returns a host view that excludes work of the stream, or NULL. Call this only for domains where
 * work excludes the host. If `stream` is NULL, the work may be on any stream. */
static inline const own_export *own_excluding_view_(const own_engine *engine,
                                                    const own_stream *stream) {
    const own_export *view = engine->managed;
    while (view && (stream ? !own_may_use_(engine, view->memory, stream)
                           : own_is_for_host_(view->memory))) {
        view = view->next_managed;
    }
    return view;
}

static inline void own_blame_attachment_(const own_engine *engine, const own_memory *memory,
                                         own_conflict *conflict) {
    const own_stream *only = own_attached_stream_(engine, memory);
    conflict->site = memory->limits->attachments->site;
    conflict->number = only ? only->number : 0; /* 0: the memory is attached to the host */
    conflict->kind = own_kind_of_(only);
}

static inline int own_same_id_(own_id a, own_id b) { return a.seq == b.seq && a.slot == b.slot; }

static inline void own_mark_attached_(own_memory *memory) {
    memory->limited &= (uint8_t)~OWN_IS_ATTACHED;
    memory->limited |= memory->limits->attachments->stream ? OWN_IS_ATTACHED : 0;
}

static inline void own_attach_(own_memory *memory, const own_attachment *attachment, own_id by) {
    own_attachment *newest = memory->limits->attachments;
    memmove(newest + 1, newest, (OWN_ATTACHMENTS - 1) * sizeof *newest);
    *newest = *attachment;
    newest->by = by;
    own_mark_attached_(memory);
}

/* Reverts own_attach_, even if other operations have attached the memory since. */
static inline void own_undo_attach_(own_memory *memory, own_id by) {
    own_attachment *each = memory->limits->attachments, *last = each + OWN_ATTACHMENTS - 1;
    while (each < last && !own_same_id_(each->by, by)) {
        each++;
    }
    memmove(each, each + 1, (size_t)(last - each) * sizeof *each);
    own_mark_attached_(memory);
}

/* ---- discarded contents ---- */

static inline int own_is_discarded_(const own_discard *discard) {
    return discard->start < discard->stop && !discard->written.seq;
}

static inline own_discard *own_discards_(const own_memory *memory) {
    return memory->limits ? memory->limits->discards : NULL;
}

/* Returns whether an access may read its bytes, and so needs their contents. */
static inline int own_reads_(const own_access *access) {
    return (access->mode == OWN_READ && access->effect != OWN_MOVES) || access->effect == OWN_USES;
}

/* Returns whether an access may change the contents of its bytes. */
static inline int own_writes_(const own_access *access) {
    return access->mode != OWN_READ && access->effect != OWN_MOVES &&
           access->effect != OWN_ATTACHES;
}

static inline own_bytes own_discarded_bytes_(const own_discard *discard) {
    return (own_bytes){discard->start, discard->stop, NULL};
}

/* Returns the first entry with discarded bytes that are among `bytes`, or NULL. */
static inline const own_discard *own_find_discard_(const own_memory *memory, own_bytes bytes) {
    const own_discard *found = NULL;
    for (const own_discard *each = own_discards_(memory); each; each = each->next) {
        if (own_is_discarded_(each) && own_meet(bytes, own_discarded_bytes_(each)) &&
            (!found || each->start < found->start)) {
            found = each;
        }
    }
    return found;
}

/* Returns whether some bytes before `stop` are gone. */
static inline int own_is_cut_(const own_memory *memory, uint64_t stop) {
    return memory->limited & OWN_WAS_CUT && stop > memory->limits->end;
}

/* ---- buffers that share the memory ---- */

/* Closes one of several buffers over the memory: from now on its accesses are refused, even those
 * that were prepared before. The fast path does not know the buffer, so it is closed to all buffers
 * over the memory until own_memory_return. */
static inline void own_leave_(const own_access *access) {
    *access->gone = 1;
    access->memory->left++;
    access->memory->limited |= OWN_WAS_LEFT;
}

/* Call this when no access of a buffer that was closed can be prepared any more. */
static inline void own_return_(own_memory *memory) {
    memory->left--;
    memory->limited &= (uint8_t)~(memory->left ? 0 : OWN_WAS_LEFT);
}

static inline void own_memory_return(own_engine *engine, own_memory *memory) {
    own_lock(engine);
    own_return_(memory);
    own_unlock(engine);
}

/* Checks what does not depend on the work in flight: whether the memory is closed, the bytes are
 * gone or discarded, or the stream may not use them. Returns the reason for a refusal, or OWN_OK.
 * `stream` is NULL for the host. */
OWN_ONCE int own_check_limits_(const own_engine *engine, const own_stream *stream,
                               const own_access *access, own_conflict *conflict);

#if OWN_BODIES
int own_check_limits_(const own_engine *engine, const own_stream *stream, const own_access *access,
                      own_conflict *conflict) {
    const own_memory *memory = access->memory;
    if (memory->closed || (access->gone && *access->gone)) {
        return OWN_MEMORY_CLOSED;
    }
    if (access->start >= access->stop) {
        return OWN_OK;
    }
    if (own_is_cut_(memory, access->stop)) {
        conflict->site = memory->limits->cut_at;
        return OWN_CUT;
    }
    if (stream && stream->domain->host_excluded && access->effect < OWN_ATTACHES &&
        !own_may_use_(engine, memory, stream)) {
        own_blame_attachment_(engine, memory, conflict);
        return OWN_ATTACHED;
    }
    const own_discard *found =
        own_reads_(access) ? own_find_discard_(memory, own_bytes_of(access)) : NULL;
    if (found) {
        conflict->site = found->site;
        conflict->start =
            (found->start > access->start ? found->start : access->start) - access->start;
        conflict->stop = (found->stop < access->stop ? found->stop : access->stop) - access->start;
        return OWN_DISCARDED;
    }
    return OWN_OK;
}
#endif

/* Adds an entry that has no bytes yet. Returns NULL if malloc fails. */
static inline own_discard *own_new_discard_(own_memory *memory) {
    own_discard *made = calloc(1, sizeof *made);
    if (made) {
        made->next = memory->limits->discards;
        memory->limits->discards = made;
        memory->limited |= OWN_HAS_DISCARDS;
    }
    return made;
}

static inline void own_drop_discard_(own_memory *memory, own_discard **link) {
    own_discard *dropped = *link;
    *link = dropped->next;
    free(dropped);
    if (!memory->limits->discards) {
        memory->limited &= (uint8_t)~OWN_HAS_DISCARDS;
    }
}

/* Cuts the entries that have bytes before `at` and from `at` on. Returns 0 if malloc fails. */
static inline int own_cut_discards_(own_memory *memory, uint64_t at) {
    for (own_discard *each = own_discards_(memory); each; each = each->next) {
        if (each->start < at && at < each->stop) {
            own_discard *right = own_new_discard_(memory);
            if (!right) {
                return 0;
            }
            own_discard *next = right->next;
            *right = *each;
            right->next = next;
            right->start = each->stop = at;
        }
    }
    return 1;
}

/* Allocates what own_commit_effect_ needs for an access. Returns 0 if malloc fails. */
OWN_ONCE int own_reserve_contents_(const own_access *access);

#if OWN_BODIES
int own_reserve_contents_(const own_access *access) {
    own_memory *memory = access->memory;
    if (!memory->limits && (access->effect == OWN_DISCARDS || access->effect == OWN_ATTACHES)) {
        memory->limits = calloc(1, sizeof *memory->limits);
        if (!memory->limits) {
            return 0;
        }
    }
    if (!own_writes_(access)) {
        return 1;
    }
    own_rows_ rows = own_rows_of_(access);
    for (; memory->limited & OWN_HAS_DISCARDS && own_has_row_(&rows); own_next_row_(&rows)) {
        if (!own_cut_discards_(memory, rows.start) || !own_cut_discards_(memory, rows.stop)) {
            return 0;
        }
    }
    return (access->effect != OWN_DISCARDS || own_new_discard_(memory));
}
#endif

/* Returns whether the driver has accepted the operation, so that own_undo is no longer possible. */
static inline int own_is_settled_(const own_engine *engine, own_id id) {
    const own_stream *stream = engine->slots[id.slot].stream;
    return !stream || stream->settled >= id.seq;
}

/* Notes that an operation writes the bytes of an entry. Of several operations that the driver does
 * not have yet, two are noted: own_undo can then revert one of them. */
static inline void own_mark_written_(own_discard *discard, own_id by) {
    if (!discard->written.seq) {
        discard->written = by;
    } else if (!own_same_id_(discard->written, by) && !discard->again.seq) {
        discard->again = by;
    }
}

static inline void own_unmark_written_(own_discard *discard, own_id by) {
    if (own_same_id_(discard->written, by)) {
        discard->written = discard->again;
        discard->again = (own_id){0, 0};
    } else if (own_same_id_(discard->again, by)) {
        discard->again = (own_id){0, 0};
    }
}

/* Returns whether the bytes of an entry are written, and stay so. */
static inline int own_stays_written_(const own_engine *engine, const own_discard *discard) {
    return (discard->written.seq && own_is_settled_(engine, discard->written)) ||
           (discard->again.seq && own_is_settled_(engine, discard->again));
}

/* Returns whether an access may write all bytes of an entry. Entries that were there before the
 * operation were cut where the rows of the access begin and end. */
static inline int own_overwrites_(const own_access *access, const own_discard *discard) {
    const own_bytes bytes = own_bytes_of(access);
    const own_bytes first = {discard->start, discard->start + 1, NULL};
    const own_bytes last = {discard->stop - 1, discard->stop, NULL};
    return own_writes_(access) && own_meet(bytes, first) && own_meet(bytes, last);
}

/* Records what an accepted access does to contents and attachment. `by` is its operation. */
static __attribute__((noinline)) void own_commit_effect_(const own_engine *engine,
                                                         const own_access *access, own_id by,
                                                         uint32_t site,
                                                         const own_attachment *attachment) {
    own_memory *memory = access->memory;
    own_discard *empty = NULL;
    memory->closed |= access->effect == OWN_CLOSES;
    if (access->effect == OWN_LEAVES && access->gone) {
        own_leave_(access);
    }
    if (access->effect == OWN_ATTACHES) {
        own_attach_(memory, attachment, by);
    }
    own_discard **link = memory->limits ? &memory->limits->discards : NULL;
    for (own_discard *each; link && (each = *link);) {
        if (each->start == each->stop) {
            empty = each;
        } else if (own_stays_written_(engine, each)) {
            own_drop_discard_(memory, link);
            continue;
        } else if (own_overwrites_(access, each)) {
            own_mark_written_(each, by);
        }
        link = &each->next;
    }
    if (access->effect == OWN_DISCARDS && access->start < access->stop) {
        empty->start = access->start;
        empty->stop = access->stop;
        empty->made = by;
        empty->site = site;
    }
}

/* Joins adjacent entries that were discarded at the same line, so that a loop over parts leaves few
 * entries. Call this when all accesses of an operation are committed: committing an access needs
 * the cuts at both of its ends. */
static __attribute__((noinline)) void own_join_discards_(const own_engine *engine,
                                                         own_memory *memory) {
    for (own_discard *each = own_discards_(memory); each && each->next;) {
        own_discard *next = each->next;
        if (!own_is_discarded_(each) || !own_is_discarded_(next) || each->site != next->site ||
            (each->start != next->stop && each->stop != next->start) ||
            !own_is_settled_(engine, each->made) || !own_is_settled_(engine, next->made)) {
            each = next;
            continue;
        }
        each->start = each->start < next->start ? each->start : next->start;
        each->stop = each->stop > next->stop ? each->stop : next->stop;
        own_drop_discard_(memory, &each->next);
    }
}

/* Reverts own_commit_effect_. */
static __attribute__((noinline)) void own_undo_effect_(const own_access *access, own_id by) {
    own_memory *memory = access->memory;
    memory->closed &= access->effect != OWN_CLOSES;
    if (access->effect == OWN_LEAVES && access->gone) {
        *access->gone = 0;
        own_return_(memory);
    }
    if (access->effect == OWN_ATTACHES) {
        own_undo_attach_(memory, by);
    }
    own_discard **link = memory->limits ? &memory->limits->discards : NULL;
    for (own_discard *each; link && (each = *link);) {
        if (own_same_id_(each->made, by)) {
            own_drop_discard_(memory, link);
            continue;
        }
        own_unmark_written_(each, by);
        link = &each->next;
    }
}

/* Drops the discards of the bytes that an access of the host writes. A write of the host is never
 * undone, so nothing is marked. Returns 0 if malloc fails. */
static __attribute__((noinline)) int own_write_on_host_(const own_access *access) {
    own_memory *memory = access->memory;
    if (!own_writes_(access) || access->start >= access->stop) {
        return 1;
    }
    if (!own_reserve_contents_(access)) {
        return 0;
    }
    own_discard **link = memory->limits ? &memory->limits->discards : NULL;
    for (own_discard *each; link && (each = *link);) {
        if (own_is_discarded_(each) && own_overwrites_(access, each)) {
            own_drop_discard_(memory, link);
        } else {
            link = &each->next;
        }
    }
    return 1;
}

/* Sets *found to the first entry with discarded bytes among `bytes`. Returns 0 if there is none. */
static inline int own_discarded(own_engine *engine, const own_memory *memory, own_bytes bytes,
                                own_discard *found) {
    own_lock(engine);
    const own_discard *first = own_find_discard_(memory, bytes);
    if (first) {
        *found = *first;
    }
    own_unlock(engine);
    return first != NULL;
}

#endif
