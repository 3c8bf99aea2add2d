/* DLPack: the structs by which libraries pass arrays to each other, in version 1.1 and in the
 * unversioned form, and the exchange API for C of version 1.3.
 *
 * Uses no CUDA. The consumer of an export calls its deleter to end it: in any thread, with or
 * without the GIL, while Python is finalizing, or in a forked child. Therefore the deleter touches
 * no Python object. It puts the export into a list, which the library empties later.
 *
 * Only cudadrv._dlpack includes this file. */

#ifndef CUDADRV_DLPACK_H
#define CUDADRV_DLPACK_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    DL_CPU = 1,
    DL_CUDA = 2,
    DL_CUDA_HOST = 3,
    DL_CUDA_MANAGED = 13,
};

enum { DL_INT, DL_UINT, DL_FLOAT, DL_OPAQUE, DL_BFLOAT, DL_COMPLEX, DL_BOOL, DL_FLOAT8 };

enum { DL_READ_ONLY = 1, DL_IS_COPIED = 2, DL_MAJOR = 1, DL_MINOR = 1, DL_MOST_DIMENSIONS = 64 };

typedef struct {
    int32_t device_type;
    int32_t device_id;
} dl_device;

typedef struct {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
} dl_dtype;

typedef struct {
    void *data;
    dl_device device;
    int32_t ndim;
    dl_dtype dtype;
    int64_t *shape;
    int64_t *strides; /* in items; NULL if the array is C-contiguous */
    uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed {
    dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *);
} dl_managed;

typedef struct dl_versioned {
    uint32_t major;
    uint32_t minor;
    void *context;
    void (*deleter)(struct dl_versioned *);
    uint64_t flags;
    dl_tensor tensor;
} dl_versioned;

/* The functions that a type of arrays offers to C, in its capsule __dlpack_c_exchange_api__. None
 * of these functions orders any work. They return 0, or -1 with a Python exception. */
typedef struct dl_exchange {
    uint32_t major;
    uint32_t minor;
    struct dl_exchange *older; /* the exchange API of an older version, or NULL */
    int (*allocate)(dl_tensor *like, dl_versioned **tensor, void *error,
                    void (*set_error)(void *error, const char *kind, const char *message));
    int (*managed_from_object)(void *array, dl_versioned **tensor); /* the caller owns the tensor */
    int (*object_from_managed)(dl_versioned *tensor, void **array); /* takes over the tensor */
    /* NULL if this is not supported. The tensor is valid until the caller returns to Python. */
    int (*tensor_from_object)(void *array, dl_tensor *tensor);
    int (*current_work_stream)(int32_t device_type, int32_t device_id, void **stream);
} dl_exchange;

/* One export, with its shape and strides. */
typedef struct dl_export {
    union {
        dl_managed managed;
        dl_versioned versioned;
    };
    void *keeper; /* Python object that must live as long as the export */
    struct dl_export *next;
    int64_t sizes[]; /* the shape, followed by the strides */
} dl_export;

static dl_export *dl_ended; /* exports that their consumers have ended */
static int dl_nowhere;
static int *dl_attention = &dl_nowhere; /* dl_end() sets its first bit */

static void dl_end(dl_export *export) {
    dl_export *first = __atomic_load_n(&dl_ended, __ATOMIC_RELAXED);
    do {
        export->next = first;
    } while (!__atomic_compare_exchange_n(&dl_ended, &first, export, 1, __ATOMIC_RELEASE,
                                          __ATOMIC_RELAXED));
    __atomic_or_fetch(dl_attention, 1, __ATOMIC_RELEASE); /* CUDADRV_LOANS_HAVE_ENDED */
}

static void dl_end_managed(dl_managed *managed) { dl_end(managed->context); }

static void dl_end_versioned(dl_versioned *versioned) { dl_end(versioned->context); }

/* Creates an export. Returns NULL if malloc fails. The caller sets the tensor's data, device and
 * dtype. */
static dl_export *dl_new_export(int versioned, uint64_t flags, int32_t ndim, const int64_t *shape,
                                const int64_t *strides, void *keeper) {
    dl_export *export = calloc(1, sizeof *export + 2 * (size_t)ndim * sizeof(int64_t));
    if (!export) {
        return NULL;
    }
    export->keeper = keeper;
    dl_tensor *tensor;
    if (versioned) {
        export->versioned = (dl_versioned){.major = DL_MAJOR, .minor = DL_MINOR, .flags = flags};
        export->versioned.context = export;
        export->versioned.deleter = dl_end_versioned;
        tensor = &export->versioned.tensor;
    } else {
        export->managed.context = export;
        export->managed.deleter = dl_end_managed;
        tensor = &export->managed.tensor;
    }
    tensor->ndim = ndim;
    tensor->shape = export->sizes;
    tensor->strides = export->sizes + ndim;
    memcpy(tensor->shape, shape, (size_t)ndim * sizeof *shape);
    memcpy(tensor->strides, strides, (size_t)ndim * sizeof *strides);
    return export;
}

static inline dl_tensor *dl_tensor_of(dl_export *export, int versioned) {
    return versioned ? &export->versioned.tensor : &export->managed.tensor;
}

/* Takes all exports that have ended, in the order in which they have ended. They are taken as a
 * whole, because taking only the first one of the list is not an atomic step. */
static inline dl_export *dl_take_all(void) {
    dl_export *newest = __atomic_exchange_n(&dl_ended, NULL, __ATOMIC_ACQUIRE), *first = NULL;
    while (newest) {
        dl_export *older = newest->next;
        newest->next = first;
        first = newest;
        newest = older;
    }
    return first;
}

/* Returns the export that has ended first, or NULL. The caller holds the GIL and frees the
 * export. */
static inline dl_export *dl_take_ended(void) {
    static dl_export *taken; /* taken from `dl_ended`, and not returned yet */
    if (!taken && __atomic_load_n(&dl_ended, __ATOMIC_RELAXED)) {
        taken = dl_take_all();
    }
    dl_export *first = taken;
    taken = first ? first->next : NULL;
    return first;
}

#endif
