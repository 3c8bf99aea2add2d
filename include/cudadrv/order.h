/* Events, waits and synchronizations, from which clocks learn what is complete or ordered
 * before. */

#ifndef CUDADRV_ORDER_H
#define CUDADRV_ORDER_H

#include "engine.h"

static inline void own_snapshot_of_(const own_stream *stream, own_snapshot *snapshot) {
    snapshot->clock = own_clock_share(stream->clock);
    snapshot->slot = stream->slot;
    snapshot->seq = stream->settled;
}

static inline void own_snapshot_drop(own_engine *engine, own_snapshot *snapshot) {
    if (snapshot->clock) {
        own_lock_clocks(engine);
        own_clock_drop(snapshot->clock);
        own_unlock(engine);
        snapshot->clock = NULL;
    }
}

static inline int own_join_(own_stream *stream, const own_snapshot *news) {
    own_clock *joined;
    own_snapshot others = *news;
    if (others.slot == stream->slot) {
        others.seq = 0; /* own work is ordered without a clock */
    }
    if (!own_clock_join(stream->clock, &others, &joined)) {
        return 0;
    }
    own_clock_drop(stream->clock);
    stream->clock = joined;
    return 1;
}

/* Returns the number of the stream's last operation that the default streams' rules order before
 * work of other streams. Passive operations (see own_request) after the last use are not ordered,
 * because the driver may have queued nothing for them. */
static inline uint64_t own_settled_by_rules_(const own_stream *stream) {
    return stream->passive == stream->uses + 1 ? stream->before : stream->settled;
}

/* Sets *view to the stream's clock, joined with the work that the default streams' rules order
 * before the stream's next operation. The caller owns a reference to *view. The stream waits for
 * this work only when the driver has the operation, so the caller must not install *view before.
 * Returns 0 if malloc fails. */
static inline int own_view_(const own_stream *stream, own_clock **view) {
    const own_stream *legacy = stream->domain->legacy;
    own_clock *clock = own_clock_share(stream->clock);
    const own_stream *other = NULL;
    if (stream->order == OWN_LEGACY) {
        other = stream->domain->streams;
    } else if (stream->order == OWN_BLOCKING && legacy && stream->legacy_seen < legacy->uses) {
        other = legacy;
    }
    while (other) {
        if (other->order != OWN_NON_BLOCKING && other != stream && other->state == OWN_OPEN &&
            !other->dropped) {
            own_snapshot news = {other->clock, own_settled_by_rules_(other), other->slot};
            own_clock *joined;
            int ok = own_clock_join(clock, &news, &joined);
            own_clock_drop(clock);
            if (!ok) {
                return 0;
            }
            clock = joined;
        }
        other = stream->order == OWN_LEGACY ? other->next : NULL;
    }
    *view = clock;
    return 1;
}

/* Joins into *clock everything that would be complete after a wait for all work of the slot. If
 * malloc fails, returns 0 and changes nothing. */
static inline int own_foresee(own_engine *engine, uint32_t slot, own_clock **clock) {
    own_clock *view = NULL, *joined;
    own_lock_clocks(engine);
    const own_stream *stream = engine->slots[slot].stream;
    int ok = 1;
    if (stream && stream->state == OWN_OPEN) {
        ok = own_view_(stream, &view);
    } else if (stream) {
        view = own_clock_share(stream->clock);
    }
    if (ok) {
        const own_snapshot all = {view, UINT64_MAX, slot};
        ok = own_clock_join(*clock, &all, &joined);
        own_clock_drop(view);
    }
    if (ok) {
        own_clock_drop(*clock);
        *clock = joined;
    }
    own_unlock(engine);
    return ok;
}

/* Makes `view` the stream's clock. Call this when the driver has the operation that was checked
 * with `view`. Takes over the caller's reference. */
static inline void own_learn_(own_stream *stream, own_clock *view) {
    own_clock_drop(stream->clock);
    stream->clock = view;
}

/* Counts a use of the stream, which the default streams' rules order after the work of the legacy
 * stream. */
static inline void own_count_use_(own_stream *stream) {
    const own_stream *legacy = stream->domain->legacy;
    stream->uses++;
    if (legacy) {
        stream->legacy_seen = legacy->uses;
    }
}

/* Counts a passive operation, which the default streams' rules do not order. Call this before
 * `settled` includes the operation. */
static inline void own_count_passive_(own_stream *stream) {
    if (stream->passive != stream->uses + 1) {
        stream->passive = stream->uses + 1;
        stream->before = stream->settled;
    }
}

/* Counts a record of an event, or a wait, as a use of the stream. Returns 0 if malloc fails. */
static inline int own_use_unchecked_(own_stream *stream) {
    own_clock *view;
    int ok = own_view_(stream, &view);
    if (ok) {
        own_learn_(stream, view);
        own_count_use_(stream);
    }
    return ok;
}

/* Takes a snapshot of the stream, with all its work that the driver has now. */
static inline void own_snapshot_take(own_engine *engine, const own_stream *stream,
                                     own_snapshot *snapshot) {
    own_lock_clocks(engine);
    own_snapshot_of_(stream, snapshot);
    own_unlock(engine);
}

/* Call this when the driver has recorded the event on the stream. The caller holds the issue
 * locks of both. Returns 0 if malloc fails; the event then keeps its former snapshot. */
static inline int own_record(own_engine *engine, own_stream *stream, own_event *event) {
    own_lock_clocks(engine);
    int ok = own_use_unchecked_(stream);
    if (ok) {
        own_clock_drop(event->snapshot.clock);
        own_snapshot_of_(stream, &event->snapshot);
        event->recorded++;
    }
    own_unlock(engine);
    return ok;
}

static inline void own_record_as_(const own_snapshot *as_of, own_event *event) {
    own_clock_drop(event->snapshot.clock);
    event->snapshot = *as_of;
    own_clock_share(as_of->clock);
    event->recorded++;
}

/* Like own_record, but the event gets the earlier snapshot `as_of` instead of a new one. */
static inline void own_record_as(own_engine *engine, const own_snapshot *as_of, own_event *event) {
    own_lock_clocks(engine);
    own_record_as_(as_of, event);
    own_unlock(engine);
}

static inline void own_snapshot_copy(own_engine *engine, const own_snapshot *from,
                                     own_snapshot *to) {
    own_lock_clocks(engine);
    *to = *from;
    own_clock_share(to->clock);
    own_unlock(engine);
}

/* Orders the stream's later work after a snapshot. If malloc fails, returns 0; the engine then does
 * not know of this order and refuses work that relies on it. */
static inline int own_join(own_engine *engine, own_stream *stream, const own_snapshot *news) {
    own_lock_clocks(engine);
    int ok = own_join_(stream, news);
    own_unlock(engine);
    return ok;
}

/* Call this when the driver has made the stream wait for a snapshot. The caller holds the stream's
 * issue lock. For the default streams' rules, the wait is a use even if the work is complete. If
 * malloc fails, returns 0; the engine then does not know of this order and refuses work that relies
 * on it. */
static inline int own_wait(own_engine *engine, own_stream *stream, const own_snapshot *news) {
    own_lock_clocks(engine);
    int ok = own_use_unchecked_(stream) && own_join_(stream, news);
    own_unlock(engine);
    return ok;
}

/* Joins a snapshot like own_join_host, and calls `hears` and `learned`. */
OWN_ONCE void own_tell_and_join_(own_engine *engine, const own_snapshot *news);

OWN_INLINE void own_join_host_(own_engine *engine, const own_snapshot *news) {
    for (uint32_t i = 0; news->clock && i < news->clock->size; i++) {
        if (engine->slots[i].done < news->clock->seq[i]) {
            engine->slots[i].done = news->clock->seq[i];
        }
    }
    if (news->seq && engine->slots[news->slot].done < news->seq) {
        engine->slots[news->slot].done = news->seq;
    }
}

#if OWN_BODIES
static void own_tell_(const own_engine *engine, const own_snapshot *news) {
    for (uint32_t i = 0; news->clock && i < news->clock->size; i++) {
        if (engine->slots[i].done < news->clock->seq[i]) {
            engine->hears(i, news->clock->seq[i]);
        }
    }
    if (news->seq && engine->slots[news->slot].done < news->seq) {
        engine->hears(news->slot, news->seq);
    }
}

void own_tell_and_join_(own_engine *engine, const own_snapshot *news) {
    own_lock_clocks(engine);
    if (engine->hears) { /* the trace may have ended meanwhile */
        own_tell_(engine, news);
    }
    own_join_host_(engine, news);
    own_unlock(engine);
    void (*learned)(void) = engine->learned;
    if (learned) {
        learned();
    }
}
#endif

/* Call this when the host has seen that everything in the snapshot is complete. */
static inline void own_join_host(own_engine *engine, const own_snapshot *news) {
    if (__builtin_expect(engine->listened, 0)) {
        own_tell_and_join_(engine, news);
        return;
    }
    own_lock_clocks(engine);
    own_join_host_(engine, news);
    own_unlock(engine);
}

/* Returns whether the host knows that operation `seq` of the slot is complete. */
static inline int own_known(own_engine *engine, uint32_t slot, uint64_t seq) {
    own_lock_clocks(engine);
    int known = own_known_(engine, slot, seq);
    own_unlock(engine);
    return known;
}

/* Returns whether the snapshot contains operation `seq` of the slot. */
static inline int own_snapshot_has(own_engine *engine, const own_snapshot *snapshot, uint32_t slot,
                                   uint64_t seq) {
    own_lock_clocks(engine);
    int has = (snapshot->slot == slot && snapshot->seq >= seq) ||
              own_clock_at(snapshot->clock, slot) >= seq;
    own_unlock(engine);
    return has;
}

/* Returns whether the host knows that everything in the snapshot is complete. */
static inline int own_snapshot_known(own_engine *engine, const own_snapshot *snapshot) {
    own_lock_clocks(engine);
    int known = own_known_(engine, snapshot->slot, snapshot->seq) &&
                own_clock_known_(engine, snapshot->clock);
    own_unlock(engine);
    return known;
}

#endif
