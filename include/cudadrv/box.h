/* Boxes: bytes in rows with gaps between them, such as a part of an image or of a volume. Whether
 * boxes have bytes in common is decided by arithmetic, and takes the same time for any number of
 * rows. */

#ifndef CUDADRV_BOX_H
#define CUDADRV_BOX_H

#include <stdint.h>

typedef struct own_box {
    uint64_t width; /* bytes of a row */
    uint64_t pitch; /* bytes from a row to the next one; at least `width` */
    uint64_t rows;  /* rows of a slice, at least 1 */
    /* Bytes from a slice to the next one, at least those from the first to the last byte of a
     * slice. Not used if there is only one slice. */
    uint64_t slice;
    uint64_t slices; /* at least 1 */
} own_box;

/* Bytes from `start` to `stop`; with a box, only those in its rows. The first row begins at
 * `start`, and the last one ends at `stop`. */
typedef struct own_bytes {
    uint64_t start, stop;
    const own_box *box; /* NULL: all bytes */
} own_bytes;

static inline int own_box_same_(const own_box *one, const own_box *other) {
    return ((one->width ^ other->width) | (one->pitch ^ other->pitch) | (one->rows ^ other->rows) |
            (one->slice ^ other->slice) | (one->slices ^ other->slices)) == 0;
}

/* Bytes from the first byte of a slice to its last one. */
static inline uint64_t own_slice_bytes_(const own_box *box) {
    return (box->rows - 1) * box->pitch + box->width;
}

static inline uint64_t own_box_bytes(const own_box *box) {
    return (box->slices - 1) * box->slice + own_slice_bytes_(box);
}

/* The bytes of one slice. `of_slice` has room for its box. */
static inline own_bytes own_slice_(own_bytes bytes, uint64_t index, own_box *of_slice) {
    *of_slice = *bytes.box;
    of_slice->slices = 1;
    bytes.start += index * bytes.box->slice;
    bytes.stop = bytes.start + own_slice_bytes_(of_slice);
    bytes.box = of_slice;
    return bytes;
}

/* Returns whether a box has bytes from `from` to before `to`. */
static inline int own_box_meets_plain_(own_bytes bytes, uint64_t from, uint64_t to) {
    const own_box *box = bytes.box;
    if (from >= bytes.stop || to <= bytes.start) {
        return 0;
    }
    if (from <= bytes.start) {
        return 1; /* the first byte */
    }
    uint64_t at = from - bytes.start, z = 0;
    if (box->slices > 1) {
        z = at / box->slice < box->slices ? at / box->slice : box->slices - 1;
    }
    uint64_t within = at - z * box->slice;
    uint64_t y = within / box->pitch < box->rows ? within / box->pitch : box->rows - 1;
    if (within - y * box->pitch < box->width) {
        return 1; /* `from` is in this row */
    }
    uint64_t next = bytes.start + (y + 1 < box->rows ? z * box->slice + (y + 1) * box->pitch
                                                     : (z + 1) * box->slice);
    return next < to; /* there is a next row, because `from` is before the end of the last one */
}

/* Returns the largest integer that is at most a / b. `b` must be positive. */
static inline __int128 own_floor_(__int128 a, __int128 b) { return a / b - (a % b < 0); }

/* Returns the sum of floor((a * i + c) / q) for i from 0 to n - 1, by the steps of Euclid's
 * algorithm. Neither `a` nor `c` may be negative. */
static inline __int128 own_floor_sum_(__int128 n, __int128 q, __int128 a, __int128 c) {
    __int128 sum = 0;
    while (n > 0) {
        sum += n * (n - 1) / 2 * (a / q) + n * (c / q);
        const __int128 rest = a % q, last = rest * n + c % q;
        n = last / q;
        c = last % q;
        a = q;
        q = rest;
        if (q == 0) {
            break;
        }
    }
    return sum;
}

/* Returns how many pairs of i from 0 to m - 1 and j from 1 to n have j * q <= i * p + c. */
static inline __int128 own_pairs_(__int128 m, __int128 p, __int128 n, __int128 q, __int128 c) {
    __int128 none = own_floor_(q - c + p - 1, p);    /* before this i, no j is small enough */
    __int128 all = own_floor_(n * q - c + p - 1, p); /* from this i on, all j are */
    none = none < 0 ? 0 : none > m ? m : none;
    all = all < none ? none : all > m ? m : all;
    return (m - all) * n + (all > none ? own_floor_sum_(all - none, q, p, none * p + c) : 0);
}

/* Returns whether two boxes of one slice each, with any pitches, have bytes in common: whether a
 * row i of one and a row j of the other have -(width of one) < distance < width of the other. */
static inline int own_rows_meet_(own_bytes one, own_bytes other) {
    const own_box *a = one.box, *b = other.box;
    const __int128 apart = (__int128)one.start - other.start;
    const __int128 p = a->pitch, q = b->pitch;
    return own_pairs_(a->rows, p, b->rows, q, apart + a->width - 1 + q) >
           own_pairs_(a->rows, p, b->rows, q, apart - b->width + q);
}

/* As own_rows_meet_, for boxes of one pitch p. If several slices are in one of them, or in both at
 * the same distance S = height * p, then row i of slice k is row i + k * height, and only the
 * differences t of such numbers count. */
static inline int own_lattice_meets_(own_bytes one, own_bytes other) {
    const own_box *a = one.box, *b = other.box;
    const __int128 p = a->pitch, apart = (__int128)one.start - other.start;
    const __int128 height = (a->slices > 1 ? a->slice : b->slices > 1 ? b->slice : 0) / p;
    __int128 t = own_floor_(-(__int128)a->width - apart, p) + 1;
    for (; apart + t * p < b->width; t++) { /* at most two t, because no width exceeds p */
        __int128 least = 1 - (__int128)b->slices, most = (__int128)a->slices - 1;
        const __int128 low = t - (a->rows - 1), high = t + (b->rows - 1);
        if (height) {
            least = own_floor_(low + height - 1, height) > least
                        ? own_floor_(low + height - 1, height)
                        : least;
            most = own_floor_(high, height) < most ? own_floor_(high, height) : most;
        } else if (low > 0 || high < 0) {
            continue;
        }
        if (least <= most) {
            return 1;
        }
    }
    return 0;
}

static inline int own_is_lattice_(const own_box *box) {
    return box->slices == 1 || box->slice % box->pitch == 0;
}

/* Returns whether two boxes have bytes in common. */
static inline int own_boxes_meet_(own_bytes one, own_bytes other) {
    const own_box *a = one.box, *b = other.box;
    if (a->pitch == b->pitch && own_is_lattice_(a) && own_is_lattice_(b) &&
        (a->slices == 1 || b->slices == 1 || a->slice == b->slice)) {
        return own_lattice_meets_(one, other);
    }
    for (uint64_t i = 0, j = 0; i < a->slices && j < b->slices;) {
        own_box of_a, of_b;
        const own_bytes x = own_slice_(one, i, &of_a), y = own_slice_(other, j, &of_b);
        if (x.start < y.stop && y.start < x.stop && own_rows_meet_(x, y)) {
            return 1;
        }
        i += x.stop <= y.stop;
        j += y.stop < x.stop;
    }
    return 0;
}

/* Returns whether some bytes are in both. */
static inline int own_meet(own_bytes one, own_bytes other) {
    if (one.start >= other.stop || other.start >= one.stop || one.start >= one.stop ||
        other.start >= other.stop) {
        return 0;
    }
    if (!one.box) {
        return !other.box || own_box_meets_plain_(other, one.start, one.stop);
    }
    return other.box ? own_boxes_meet_(one, other)
                     : own_box_meets_plain_(one, other.start, other.stop);
}

/* Returns whether all bytes of `other`, which is a box, are in the box `one`. May return 0 for
 * boxes of several slices or different pitches, unless they are equal. */
static inline int own_box_covers_(own_bytes one, own_bytes other) {
    const own_box *a = one.box, *b = other.box;
    if (other.start < one.start || a->pitch != b->pitch) {
        return 0;
    }
    const uint64_t row = (other.start - one.start) / a->pitch;
    const uint64_t column = (other.start - one.start) % a->pitch;
    if (column + b->width > a->width) {
        return 0;
    }
    if (a->slices == 1 && b->slices == 1) {
        return row + b->rows <= a->rows;
    }
    return row == 0 && b->rows <= a->rows && b->slices <= a->slices &&
           (b->slices == 1 || (a->slices > 1 && a->slice == b->slice));
}

#endif
