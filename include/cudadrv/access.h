/* Accesses of operations, host views and loans of memory. Checks accesses against views and
 * loans. */

#ifndef CUDADRV_ACCESS_H
#define CUDADRV_ACCESS_H

#include "order.h"
#include "ranges.h"

enum own_policy { OWN_STRICT, OWN_WAIT, OWN_UNCHECKED };

enum own_answer {
    OWN_OK,
    OWN_BORROWED,  /* an operation that is not ordered before this one uses the bytes */
    OWN_EXPORTED,  /* a host view of the bytes is alive */
    OWN_MUST_WAIT, /* like OWN_BORROWED, but the policy is OWN_WAIT */
    OWN_MEMORY_CLOSED,
    OWN_STREAM_CLOSED,
    OWN_NO_MEMORY,
    OWN_DISCARDED, /* the contents of the bytes were discarded, and the request may read them */
    OWN_ATTACHED,  /* the memory is attached to another stream, or to the host */
    OWN_HELD,      /* a graph uses the memory, so it cannot be closed */
    OWN_CUT,       /* the last bytes are gone: the memory has shrunk */
    OWN_UNUSUAL    /* own_begin was asked for the fast path only, and that is not possible */
};

/* What an access does besides reading or writing its bytes. OWN_CLOSES and OWN_LEAVES also conflict
 * with uses of the mode OWN_SHARED, because the memory may be gone afterwards. */
enum own_effect {
    OWN_STAYS,    /* nothing else */
    OWN_USES,     /* the access may read the bytes even if its mode is not OWN_READ */
    OWN_MOVES,    /* the access needs no contents and changes none, whatever its mode is */
    OWN_ATTACHES, /* as OWN_MOVES, and it changes the attachment; conflicts with every view */
    OWN_DISCARDS, /* the contents become undefined; conflicts with every view of the bytes */
    OWN_SHARES,   /* another process gets the bytes; conflicts with every view of the bytes */
    OWN_CLOSES,   /* the access closes the whole memory; conflicts with every view */
    OWN_LEAVES    /* the access closes one of several buffers that share the memory's state */
};

/* A live host view, or a loan: memory that another library uses on one stream. The caller owns this
 * struct; the engine links it into its lists. */
typedef struct own_export {
    own_memory *memory;
    struct own_export *next;         /* in the memory's list */
    struct own_export *next_managed; /* in the engine's list of host views of managed memory */
    /* The stream of a loan, whose work may always use the bytes. NULL for a host view. In a request
     * that begins a loan, NULL stands for the request's stream. */
    own_stream *borrower;
    uint64_t start, stop;
    uint32_t site;
    uint8_t exclusive; /* others may not even read the bytes */
    uint8_t keeps; /* the bytes can be used, but the memory cannot be closed: see own_keep_open */
    uint8_t boxed; /* only the bytes of `box` */
    own_box box;
} own_export;

/* Bytes that a graph uses. They can be used, but not closed. The caller owns this struct; the
 * engine links it into the list of the memory. */
typedef struct own_hold {
    own_memory *memory;
    struct own_hold *next, *previous;
    uint64_t start, stop;
    uint64_t graph;     /* number of the graph */
    uint32_t site;      /* call site of the first operation of the graph that uses the bytes */
    uint16_t operation; /* name of that operation */
} own_hold;

/* The bytes that one operation uses, and what own_undo needs to revert own_begin. */
typedef struct own_access {
    own_memory *memory;
    uint64_t start, stop;
    uint8_t mode;
    uint8_t policy;
    uint8_t effect; /* an own_effect */
    uint8_t undo;   /* `saved` has the former epochs of the bytes, which were one range */
    uint8_t undo_count;
    uint8_t boxed;  /* only the bytes of `box` are used */
    uint8_t number; /* of a box: that of its epochs, or OWN_BY_ROWS; own_reserve_ sets it */
    /* The flag of a buffer that shares the memory with other buffers. It is set when this buffer
     * is closed, and the memory stays open. May be NULL. */
    uint8_t *gone;
    own_epoch saved[OWN_FEW];
    own_box box;
} own_access;

enum { OWN_BY_ROWS = 0 }; /* the table of boxes is full, so each row has epochs of its own */

static inline own_bytes own_bytes_of(const own_access *access) {
    return (own_bytes){access->start, access->stop, access->boxed ? &access->box : NULL};
}

static inline own_bytes own_bytes_of_view_(const own_export *view) {
    return (own_bytes){view->start, view->stop, view->boxed ? &view->box : NULL};
}

/* Returns the box of an epoch, which has one. */
static inline own_bytes own_boxed_bytes_(const own_memory *memory, const own_epoch *epoch) {
    const own_boxes *boxes = memory->limits->boxes;
    const uint64_t start = boxes->each[epoch->box - 1].start;
    const own_box *box = &boxes->each[epoch->box - 1].box;
    return (own_bytes){start, start + own_box_bytes(box), box};
}

/* Returns the bytes that the operation of an epoch uses. Without a box, only those in the range
 * `index`; with a box, also those in other ranges, and those that later operations have used. These
 * later operations are ordered after the epoch's. So whatever is not ordered after the epoch is not
 * ordered after them, and conflicts with them, too: checks of the whole box are exact. */
static inline own_bytes own_bytes_at_(const own_memory *memory, uint32_t index,
                                      const own_epoch *epoch) {
    if (epoch->box) {
        return own_boxed_bytes_(memory, epoch);
    }
    return (own_bytes){memory->ranges[index].start, own_range_stop(memory, index), NULL};
}

/* Returns whether an epoch of the range `index`, which has some of these bytes between their first
 * and last one, uses some of them. */
static inline int own_uses_bytes_(const own_memory *memory, uint32_t index, const own_epoch *epoch,
                                  own_bytes bytes) {
    return (!bytes.box && !epoch->box) || own_meet(bytes, own_bytes_at_(memory, index, epoch));
}

/* The rows of an access, one after the other. An access without a box has one row. */
typedef struct own_rows_ {
    const own_access *access;
    uint64_t row, slice;
    uint64_t start, stop;
} own_rows_;

static inline own_rows_ own_rows_of_(const own_access *access) {
    const uint64_t stop = access->boxed ? access->start + access->box.width : access->stop;
    return (own_rows_){access, 0, 0, access->start, stop};
}

static inline int own_has_row_(const own_rows_ *rows) { return rows->start < rows->access->stop; }

static inline void own_next_row_(own_rows_ *rows) {
    const own_box *box = &rows->access->box;
    if (!rows->access->boxed || (++rows->row == box->rows && ++rows->slice == box->slices)) {
        rows->start = rows->access->stop;
        return;
    }
    rows->row %= box->rows;
    rows->start = rows->access->start + rows->slice * box->slice + rows->row * box->pitch;
    rows->stop = rows->start + box->width;
}

/* Why a request was refused: what else uses the bytes, or limits their use. */
typedef struct own_conflict {
    uint32_t access; /* index of the access that was refused */
    union {
        own_epoch epoch; /* the conflicting operation, if there is one */
        struct {
            uint64_t start, stop; /* OWN_DISCARDED: bytes, counted from the start of the access */
        };
    };
    uint32_t site; /* call site of the conflicting view, loan, discard, attachment or cut */
    /* Number of the stream that has the operation, loan or attachment. OWN_HELD: of the graph. */
    uint64_t number;
    /* The bytes that the conflicting operation uses. */
    const own_memory *memory;
    uint64_t from, upto;
    uint8_t order; /* own_order of the stream that has this number */
    uint8_t kind;  /* own_kind of the stream that has this number */
    uint8_t loan;  /* the conflict is with a loan */
    /* The other user may use different memory: without concurrent managed access, work on the
     * device and host views of managed memory exclude each other. */
    uint8_t excluded;
} own_conflict;

/* Returns whether the host uses managed memory through the view. Without concurrent managed access,
 * such a view excludes all work of the device. */
static inline int own_excludes_(const own_export *view) {
    return view->memory->managed && view->start < view->stop && !view->borrower;
}

static inline void own_export_link_(own_engine *engine, const own_access *access, uint32_t site,
                                    own_stream *borrower, own_export *view) {
    own_memory *memory = access->memory;
    *view = (own_export){.memory = memory,
                         .next = memory->exports,
                         .borrower = borrower,
                         .start = access->start,
                         .stop = access->stop,
                         .site = site,
                         .exclusive = access->mode == OWN_WRITE,
                         .boxed = access->boxed,
                         .box = access->box};
    memory->exports = view;
    if (borrower) {
        borrower->loans++;
        memory->loans++;
    }
    if (own_excludes_(view)) {
        view->next_managed = engine->managed;
        engine->managed = view;
    }
}

static inline void own_export_unlink_(own_engine *engine, own_export *view) {
    own_export **link = &view->memory->exports;
    while (*link != view) {
        link = &(*link)->next;
    }
    *link = view->next;
    if (view->borrower) {
        view->borrower->loans--;
        view->borrower->taken -= view->keeps;
        view->memory->loans -= !view->keeps;
    }
    if (own_excludes_(view)) {
        link = &engine->managed;
        while (*link != view) {
            link = &(*link)->next_managed;
        }
        *link = view->next_managed;
    }
    view->borrower = NULL; /* the next loan in this struct may have another borrower */
}

static inline void own_blame_export_(own_conflict *conflict, const own_export *view) {
    const own_stream *borrower = view->borrower;
    conflict->site = view->site;
    conflict->loan = borrower != NULL;
    conflict->number = borrower ? borrower->number : 0;
    conflict->kind = borrower ? own_kind_of_(borrower) : OWN_ENDED;
}

/* Returns OWN_HELD and sets `conflict` if a graph uses some of these bytes, else OWN_OK. Graphs
 * hold no empty ranges. */
static inline int own_check_holds_(const own_memory *memory, uint64_t start, uint64_t stop,
                                   own_conflict *conflict) {
    for (const own_hold *hold = memory->holds; hold && start < stop; hold = hold->next) {
        if (hold->start < stop && start < hold->stop) {
            conflict->site = hold->site;
            conflict->number = hold->graph;
            conflict->epoch.operation = hold->operation;
            return OWN_HELD;
        }
    }
    return OWN_OK;
}

/* Returns OWN_EXPORTED if a view or a loan conflicts with the access, OWN_HELD if the access closes
 * bytes that a graph uses, else OWN_OK. `stream` is NULL for the host. The host is one user: its
 * own views never block it, and a stream's loans never block that stream, except when it closes,
 * discards or attaches. */
static inline int own_check_exports_(const own_stream *stream, const own_access *access,
                                     own_conflict *conflict) {
    if (!stream && !access->effect && !access->memory->loans) {
        return OWN_OK; /* fast path: without loans, all views are the host's own */
    }
    for (const own_export *view = access->memory->exports; view; view = view->next) {
        if (own_meet(own_bytes_of_view_(view), own_bytes_of(access)) &&
            (view->exclusive || access->mode != OWN_READ) && access->mode != OWN_SHARED &&
            ((access->effect >= OWN_ATTACHES && access->effect <= OWN_CLOSES) ||
             (!view->keeps && view->borrower != stream))) {
            own_blame_export_(conflict, view);
            return OWN_EXPORTED;
        }
    }
    return access->effect < OWN_CLOSES
               ? OWN_OK
               : own_check_holds_(access->memory, access->start, access->stop, conflict);
}

#endif
