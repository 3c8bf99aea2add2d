/* Access of the host to memory: its views, the closing of memory, and reports of who uses
 * memory. */

#ifndef CUDADRV_HOST_H
#define CUDADRV_HOST_H

#include "borrow.h"

/* In a domain with `host_excluded`, the host may use managed memory only while the streams that may
 * use this memory have no unfinished work. Returns 1 and sets `conflict` if one of these streams
 * has work that is not known to be complete and is not in the clock `waited`. */
static inline int own_excluded_(const own_engine *engine, const own_memory *memory,
                                const own_clock *waited, own_conflict *conflict) {
    for (const own_domain *domain = engine->domains; domain; domain = domain->next) {
        const own_stream *stream = domain->host_excluded ? domain->streams : NULL;
        for (; stream; stream = stream->next) {
            if (own_may_use_(engine, memory, stream) &&
                !own_known_(engine, stream->slot, stream->seq) &&
                own_clock_at(waited, stream->slot) < stream->seq) {
                const own_operation *last = &stream->recent[stream->seq % OWN_RECENT];
                own_epoch epoch = {
                    stream->seq, stream->slot, last->site, last->operation, OWN_WRITE, 0, 0};
                own_blame_(engine, conflict, &epoch);
                conflict->excluded = 1;
                return 1;
            }
        }
    }
    return 0;
}

/* A stream that has a loan may have work at any time. Returns 1 and sets `conflict` if such a
 * stream may use the memory and belongs to a domain with `host_excluded`. */
static inline int own_lent_where_excluded_(const own_engine *engine, const own_memory *memory,
                                           own_conflict *conflict) {
    for (const own_domain *domain = engine->domains; domain; domain = domain->next) {
        const own_stream *stream = domain->host_excluded ? domain->streams : NULL;
        for (; stream; stream = stream->next) {
            if (stream->loans > stream->taken && own_may_use_(engine, memory, stream)) {
                *conflict = (own_conflict){.site = stream->recent[stream->seq % OWN_RECENT].site,
                                           .number = stream->number,
                                           .kind = own_kind_of_(stream),
                                           .loan = 1,
                                           .excluded = 1};
                return 1;
            }
        }
    }
    return 0;
}

/* Returns OWN_OK if the host may use the bytes after it has waited for everything in the clock
 * `waited`. Otherwise returns the reason, and sets `conflict`. */
static inline int own_check_host_(const own_engine *engine, const own_clock *waited,
                                  const own_access *access, own_conflict *conflict) {
    *conflict = (own_conflict){0};
    if (__builtin_expect(access->memory->unusual, 0)) {
        int limit = own_check_limits_(engine, NULL, access, conflict);
        if (limit != OWN_OK) {
            return limit;
        }
    }
    if (access->start >= access->stop) {
        return OWN_OK;
    }
    int answer = own_check_exports_(NULL, access, conflict);
    if (answer == OWN_OK && access->memory->managed &&
        own_lent_where_excluded_(engine, access->memory, conflict)) {
        answer = OWN_EXPORTED;
    }
    if (answer == OWN_OK) {
        answer = own_check_epochs_(engine, NULL, waited, access, conflict);
    }
    if (answer == OWN_OK && access->memory->managed && access->policy != OWN_UNCHECKED &&
        own_excluded_(engine, access->memory, waited, conflict)) {
        answer = access->policy == OWN_WAIT ? OWN_MUST_WAIT : OWN_BORROWED;
    }
    return answer;
}

/* Returns what own_export_open would return if the host had waited for everything in the clock
 * `waited`. Changes nothing. */
static inline int own_ask_host(own_engine *engine, const own_access *access,
                               const own_clock *waited, own_conflict *conflict) {
    own_lock(engine);
    int answer = own_check_host_(engine, waited, access, conflict);
    own_unlock(engine);
    return answer;
}

/* Borrows bytes for the host. With OWN_READ the device may read them too; with OWN_WRITE it may not
 * use them. The view stays linked to the memory until own_export_close. If the answer is not
 * OWN_OK, nothing has changed. */
static inline int own_export_open(own_engine *engine, const own_access *access, uint32_t site,
                                  own_export *view, own_conflict *conflict) {
    own_lock(engine);
    int answer = own_check_host_(engine, NULL, access, conflict);
    if (answer == OWN_OK && access->memory->limited && !own_write_on_host_(access)) {
        answer = OWN_NO_MEMORY;
    }
    if (answer == OWN_OK) {
        own_export_link_(engine, access, site, NULL, view);
    }
    own_unlock(engine);
    return answer;
}

/* Lends bytes for work that is on no stream. `borrower` represents this work and has no operations.
 * The work is ordered only after operations that the host knows to be complete, and it conflicts
 * with every view, even of the host. */
static inline int own_lend_open(own_engine *engine, const own_access *access, uint32_t site,
                                own_stream *borrower, own_export *view, own_conflict *conflict) {
    static const own_stream nobody;
    own_lock(engine);
    *conflict = (own_conflict){0};
    int answer =
        access->memory->unusual ? own_check_limits_(engine, borrower, access, conflict) : OWN_OK;
    if (answer == OWN_OK && access->start < access->stop) {
        answer = own_check_exports_(&nobody, access, conflict);
        if (answer == OWN_OK) {
            answer = own_check_host_(engine, NULL, access, conflict);
        }
    }
    if (answer == OWN_OK) {
        own_export_link_(engine, access, site, borrower, view);
    }
    own_unlock(engine);
    return answer;
}

/* Lends bytes to a stream without a check, because the borrower may use them already. From now on
 * all other uses are refused. */
static inline void own_lend_anyway(own_engine *engine, const own_access *access, uint32_t site,
                                   own_stream *borrower, own_export *view) {
    own_lock(engine);
    own_export_link_(engine, access, site, borrower, view);
    own_unlock(engine);
}

/* Keeps memory and stream open for a borrower that lets others use the bytes for a while: only
 * closing them is refused. */
static inline void own_keep_open(own_engine *engine, const own_access *access, uint32_t site,
                                 own_stream *borrower, own_export *view) {
    own_lock(engine);
    own_export_link_(engine, access, site, borrower, view);
    borrower->taken++;
    access->memory->loans--;
    view->keeps = 1;
    own_unlock(engine);
}

static inline void own_export_close(own_engine *engine, own_export *view) {
    own_lock(engine);
    own_export_unlink_(engine, view);
    own_unlock(engine);
}

/* Returns whether the host knows that all operations that use these bytes are complete. If not,
 * sets `conflict`. */
static inline int own_bytes_known_(const own_engine *engine, own_memory *memory, uint64_t start,
                                   uint64_t stop, own_conflict *conflict) {
    const own_bytes bytes = {start, stop, NULL};
    own_range *last, *range = own_ranges_of(memory, start, stop, &last);
    for (; range < last; range++) {
        const own_epoch *epochs = own_epochs(range);
        const uint32_t index = (uint32_t)(range - memory->ranges);
        for (uint32_t k = 0; k < range->count; k++) {
            if (!own_known_(engine, epochs[k].slot, epochs[k].seq) &&
                own_uses_bytes_(memory, index, &epochs[k], bytes)) {
                own_blame_(engine, conflict, &epochs[k]);
                return 0;
            }
        }
    }
    return 1;
}

/* Copies the epochs of `other` to memory that has no epochs yet, and gives them all the mode
 * `mode`. Returns 0 and changes nothing if malloc fails. */
static inline int own_memory_inherit(own_engine *engine, own_memory *memory,
                                     const own_memory *other, int mode) {
    own_lock(engine);
    own_range *range = memory->ranges, *used = other->ranges;
    int ok = own_range_reserve(range, used->count);
    for (uint32_t k = 0; ok && k < used->count; k++) {
        own_epoch *epoch = &own_epochs(range)[range->count++];
        *epoch = own_epochs(used)[k];
        epoch->mode = (uint8_t)mode;
        epoch->box = 0; /* this memory has no table of boxes */
    }
    own_unlock(engine);
    return ok;
}

static inline int own_memory_known_(const own_engine *engine, own_memory *memory,
                                    own_conflict *conflict) {
    return memory->nbytes == 0 || own_bytes_known_(engine, memory, 0, memory->nbytes, conflict);
}

static inline int own_bytes_free_(own_engine *engine, own_memory *memory, uint64_t start,
                                  uint64_t stop, own_conflict *conflict) {
    int answer = OWN_OK;
    *conflict = (own_conflict){0};
    for (const own_export *view = memory->exports; view && answer == OWN_OK; view = view->next) {
        if (own_meet(own_bytes_of_view_(view), (own_bytes){start, stop, NULL})) {
            own_blame_export_(conflict, view);
            answer = OWN_EXPORTED;
        }
    }
    if (answer == OWN_OK) {
        answer = own_check_holds_(memory, start, stop, conflict);
    }
    if (answer == OWN_OK && !own_bytes_known_(engine, memory, start, stop, conflict)) {
        answer = OWN_BORROWED;
    }
    return answer;
}

/* Returns OWN_OK if no view of these bytes is alive and no operation that uses them may be
 * unfinished. */
static inline int own_bytes_free(own_engine *engine, own_memory *memory, uint64_t start,
                                 uint64_t stop, own_conflict *conflict) {
    own_lock(engine);
    int answer = own_bytes_free_(engine, memory, start, stop, conflict);
    own_unlock(engine);
    return answer;
}

/* Closes one of several buffers over the memory, with the bytes of the access, if no view of them
 * is alive and no operation that uses them may be unfinished. In a context that is `lost`, graphs
 * do not keep the buffer open, because no graph can be launched in a lost context. */
static inline int own_bytes_leave(own_engine *engine, const own_access *access, int lost,
                                  own_conflict *conflict) {
    own_lock(engine);
    int answer = OWN_MEMORY_CLOSED;
    if (!*access->gone) {
        answer = own_bytes_free_(engine, access->memory, access->start, access->stop, conflict);
        answer = answer == OWN_HELD && lost ? OWN_OK : answer;
        if (answer == OWN_OK) {
            own_leave_(access);
        }
    }
    own_unlock(engine);
    return answer;
}

/* Takes away the bytes from `end` on, if own_bytes_free_ returns OWN_OK for them and the memory is
 * open. Later requests that use them are refused, even if the caller prepared them before this
 * call. Otherwise nothing has changed. `end` must be less than the size of the memory. */
static inline int own_memory_cut(own_engine *engine, own_memory *memory, uint64_t end,
                                 uint32_t site, own_conflict *conflict) {
    own_lock(engine);
    int answer = memory->closed ? OWN_MEMORY_CLOSED
                                : own_bytes_free_(engine, memory, end, memory->nbytes, conflict);
    if (answer == OWN_OK && !memory->limits) {
        memory->limits = calloc(1, sizeof *memory->limits);
        answer = memory->limits ? OWN_OK : OWN_NO_MEMORY;
    }
    if (answer == OWN_OK) {
        memory->limits->end = end;
        memory->limits->cut_at = site;
        memory->limited |= OWN_WAS_CUT;
    }
    own_unlock(engine);
    return answer;
}

/* Returns whether some bytes before `stop` are gone. If so, sets *site, unless that is NULL, to the
 * call site of own_memory_cut. */
static inline int own_is_cut(own_engine *engine, const own_memory *memory, uint64_t stop,
                             uint32_t *site) {
    own_lock_clocks(engine);
    int cut = own_is_cut_(memory, stop);
    if (cut && site) {
        *site = memory->limits->cut_at;
    }
    own_unlock(engine);
    return cut;
}

/* Lets requests use the bytes before `end` again, after own_memory_cut. */
static inline void own_memory_extend(own_engine *engine, own_memory *memory, uint64_t end) {
    own_lock(engine);
    if (memory->limited & OWN_WAS_CUT) {
        memory->limits->end = end;
    }
    own_unlock(engine);
}

/* Returns OWN_OK if no view is alive, no graph uses the memory, and no operation that uses it may
 * be unfinished. With `close`, this also closes the memory, so that every later request is
 * refused. */
static inline int own_memory_free(own_engine *engine, own_memory *memory, int close,
                                  own_conflict *conflict) {
    int answer = OWN_OK;
    *conflict = (own_conflict){0};
    own_lock(engine);
    if (memory->closed) {
        answer = OWN_MEMORY_CLOSED;
    } else if (memory->exports) {
        own_blame_export_(conflict, memory->exports);
        answer = OWN_EXPORTED;
    } else if (memory->holds) {
        answer = own_check_holds_(memory, 0, memory->nbytes, conflict);
    } else if (!own_memory_known_(engine, memory, conflict)) {
        answer = OWN_BORROWED;
    } else if (close) {
        memory->closed = 1;
    }
    own_unlock(engine);
    return answer;
}

/* Finds out what blocks access to some bytes although no operation uses them. This is a view of the
 * bytes (for the whole memory also an empty view), or a use of managed memory that excludes the
 * host or the device. Returns OWN_EXPORTED, OWN_BORROWED or OWN_OK. */
static inline int own_obstacle(own_engine *engine, const own_domain *domain,
                               const own_memory *memory, own_bytes bytes, own_conflict *conflict) {
    int answer = OWN_OK;
    *conflict = (own_conflict){0};
    own_lock(engine);
    for (const own_export *view = memory->exports; view && answer == OWN_OK; view = view->next) {
        if (!view->keeps && (own_meet(own_bytes_of_view_(view), bytes) ||
                             bytes.stop - bytes.start == memory->nbytes)) {
            own_blame_export_(conflict, view);
            answer = OWN_EXPORTED;
        }
    }
    if (answer == OWN_OK && memory->managed && own_lent_where_excluded_(engine, memory, conflict)) {
        answer = OWN_EXPORTED;
    }
    if (answer == OWN_OK && memory->managed && own_excluded_(engine, memory, NULL, conflict)) {
        answer = OWN_BORROWED;
    }
    if (answer == OWN_OK && domain->host_excluded) {
        const own_export *other = own_excluding_view_(engine, NULL);
        if (other) {
            *conflict = (own_conflict){.site = other->site, .excluded = 1};
            answer = OWN_EXPORTED;
        }
    }
    own_unlock(engine);
    return answer;
}

/* A use by an operation that is not known to be complete. */
typedef struct own_borrow {
    own_epoch epoch;
    uint64_t start, stop;
    uint64_t number; /* number of the stream that has the operation */
    uint8_t kind;
} own_borrow;

/* Returns whether one of the ranges from `first` to before `index` has this epoch, with its box. */
static inline int own_has_epoch_(const own_memory *memory, uint32_t first, uint32_t index,
                                 const own_epoch *epoch) {
    for (; first < index; first++) {
        const own_epoch *each = own_epochs(&memory->ranges[first]);
        const own_epoch *end = each + memory->ranges[first].count;
        for (; each < end; each++) {
            if (each->seq == epoch->seq && each->slot == epoch->slot && each->mode == epoch->mode &&
                each->box == epoch->box) {
                return 1;
            }
        }
    }
    return 0;
}

/* Fills `borrows` with the unfinished uses of some bytes, at most `fit`. Returns how many
 * unfinished uses there are, which may be more. The use of a box is one use. */
static inline uint32_t own_borrows(own_engine *engine, own_memory *memory, own_bytes bytes,
                                   own_borrow *borrows, uint32_t fit) {
    uint32_t found = 0;
    own_lock(engine);
    const uint32_t first = own_range_find(memory, bytes.start);
    for (uint32_t i = first; i < memory->count && memory->ranges[i].start < bytes.stop; i++) {
        const own_epoch *epochs = own_epochs(&memory->ranges[i]);
        for (uint32_t k = 0; k < memory->ranges[i].count; k++) {
            if (own_known_(engine, epochs[k].slot, epochs[k].seq) ||
                !own_uses_bytes_(memory, i, &epochs[k], bytes) ||
                (epochs[k].box && own_has_epoch_(memory, first, i, &epochs[k]))) {
                continue;
            }
            if (found < fit) {
                const own_bytes used = own_bytes_at_(memory, i, &epochs[k]);
                own_conflict holder;
                own_blame_(engine, &holder, &epochs[k]);
                borrows[found] = (own_borrow){
                    epochs[k], used.start > bytes.start ? used.start : bytes.start,
                    used.stop < bytes.stop ? used.stop : bytes.stop, holder.number, holder.kind};
            }
            found++;
        }
    }
    own_unlock(engine);
    return found;
}

/* An operation that the host does not know to be complete, for the report of a lost context. */
typedef struct own_suspect {
    own_operation operation;
    uint64_t number; /* number of the stream that has the operation */
    /* Number of older unfinished operations of the stream, whose call sites are no longer known. */
    uint64_t earlier;
    uint8_t kind;
} own_suspect;

/* Fills `suspects` with the unfinished operations of a domain, at most `fit`. Returns how many
 * unfinished operations have known call sites, which may be more. */
static inline uint32_t own_suspects(own_engine *engine, const own_domain *domain,
                                    own_suspect *suspects, uint32_t fit) {
    uint32_t found = 0;
    own_lock(engine);
    for (const own_stream *stream = domain->streams; stream; stream = stream->next) {
        uint64_t done = engine->slots[stream->slot].done;
        uint64_t open = stream->seq > done ? stream->seq - done : 0;
        uint64_t known = open < OWN_RECENT ? open : OWN_RECENT;
        for (uint64_t seq = stream->seq - known + 1; known && seq <= stream->seq; seq++, found++) {
            if (found < fit) {
                suspects[found] = (own_suspect){stream->recent[seq % OWN_RECENT], stream->number,
                                                open - known, own_kind_of_(stream)};
            }
        }
    }
    own_unlock(engine);
    return found;
}

/* Finds the operation that a thread is submitting now to the stream with this tag. Returns 0 if
 * there is none. */
static inline int own_current(own_engine *engine, uint64_t tag, own_suspect *current) {
    uint64_t slot = tag >> 40;
    own_lock_clocks(engine);
    const own_stream *stream = slot < engine->size ? engine->slots[slot].stream : NULL;
    int found = stream && own_tag(stream) == tag && stream->settled != stream->seq;
    if (found) {
        *current = (own_suspect){stream->recent[stream->seq % OWN_RECENT], stream->number, 0,
                                 own_kind_of_(stream)};
    }
    own_unlock(engine);
    return found;
}

/* The numbers of entries in an engine's lists. Tests check that these numbers do not grow without
 * bound. */
typedef struct own_books {
    /* `streams` counts those that are not retired, `views` the host views of managed memory. */
    uint32_t domains, streams, views;
} own_books;

static inline void own_count(own_engine *engine, own_books *books) {
    *books = (own_books){0, 0, 0};
    own_lock(engine);
    for (const own_domain *domain = engine->domains; domain; domain = domain->next) {
        books->domains++;
    }
    for (uint32_t i = 0; i < engine->size; i++) {
        books->streams += engine->slots[i].stream != NULL;
    }
    for (const own_export *view = engine->managed; view; view = view->next_managed) {
        books->views++;
    }
    own_unlock(engine);
}

/* Joins `other` into `clock`. The clock must not be shared, and must have all slots. */
static inline void own_clock_raise_(own_clock *clock, const own_clock *other) {
    for (uint32_t i = 0; other && i < other->size; i++) {
        if (clock->seq[i] < other->seq[i]) {
            clock->seq[i] = other->seq[i];
        }
    }
}

/* Takes a snapshot of the context: of all work that the driver has now, in closed and retired
 * streams too, and of all work in other contexts that its streams have waited for. Returns 0 if
 * malloc fails. */
static inline int own_domain_snapshot(own_engine *engine, const own_domain *domain,
                                      own_snapshot *snapshot) {
    own_lock(engine);
    own_clock *clock = calloc(1, sizeof *clock + engine->size * sizeof *clock->seq);
    *snapshot = (own_snapshot){clock, 0, 0};
    if (clock) {
        clock->references = 1;
        clock->size = engine->size;
        own_clock_raise_(clock, domain->inherited);
        for (const own_stream *stream = domain->streams; stream; stream = stream->next) {
            own_clock_raise_(clock, stream->clock);
            if (clock->seq[stream->slot] < stream->settled) {
                clock->seq[stream->slot] = stream->settled;
            }
        }
    }
    own_unlock(engine);
    return clock != NULL;
}

#endif
