/* All pairs of small boxes: what box.h computes must be what their sets of bytes say. */

#include <stdio.h>

#include "cudadrv/box.h"

enum { PITCHES = 6, ROWS = 4, SLICES = 3, APART = 3, LENGTHS = 9, MOST = 1024 };

typedef unsigned __int128 bytes_set; /* the bytes from 0 on; no box here is longer */

static own_box boxes[MOST];
static bytes_set sets[MOST];
static int count;

static void add(own_box box) {
    bytes_set bytes = 0;
    for (uint64_t z = 0; z < box.slices; z++) {
        for (uint64_t y = 0; y < box.rows; y++) {
            bytes |= (((bytes_set)1 << box.width) - 1) << (z * box.slice + y * box.pitch);
        }
    }
    boxes[count] = box;
    sets[count++] = bytes;
}

static void add_all(void) {
    for (uint64_t pitch = 1; pitch <= PITCHES; pitch++) {
        for (uint64_t width = 1; width <= pitch; width++) {
            for (uint64_t rows = 1; rows <= ROWS; rows++) {
                own_box box = {width, pitch, rows, 0, 1};
                add(box);
                const uint64_t least = own_slice_bytes_(&box);
                for (uint64_t slice = least; slice < least + APART; slice++) {
                    for (uint64_t slices = 2; slices <= SLICES; slices++) {
                        add((own_box){width, pitch, rows, slice, slices});
                    }
                }
            }
        }
    }
}

static own_bytes at(int box, uint64_t start) {
    return (own_bytes){start, start + own_box_bytes(&boxes[box]), &boxes[box]};
}

static int wrong(const char *what, own_bytes one, own_bytes other, int found) {
    const own_bytes both[] = {one, other};
    printf("%s: %d\n", what, found);
    for (int i = 0; i < 2; i++) {
        const own_box *box = both[i].box;
        printf("  from %lu to %lu", (unsigned long)both[i].start, (unsigned long)both[i].stop);
        if (box) {
            printf(", width %lu, pitch %lu, rows %lu, slice %lu, slices %lu",
                   (unsigned long)box->width, (unsigned long)box->pitch, (unsigned long)box->rows,
                   (unsigned long)box->slice, (unsigned long)box->slices);
        }
        printf("\n");
    }
    return 1;
}

/* Whether own_box_covers_ has to notice that `one` covers `other`. Boxes of whole rows are recorded
 * as plain ranges. */
static int must_notice(const own_box *one, const own_box *other) {
    return one->pitch == other->pitch && one->slices == 1 && other->slices == 1 &&
           one->width < one->pitch;
}

static int check_boxes(int i, int j, uint64_t start) {
    const own_bytes one = at(i, 0), other = at(j, start);
    const bytes_set moved = sets[j] << start;
    const int expected = (sets[i] & moved) != 0, covers = (moved & ~sets[i]) == 0;
    int found = own_meet(one, other);
    if (found != expected) {
        return wrong("own_meet", one, other, found);
    }
    found = own_meet(other, one);
    if (found != expected) {
        return wrong("own_meet", other, one, found);
    }
    found = own_box_covers_(one, other);
    if (found != covers && (found || must_notice(&boxes[i], &boxes[j]))) {
        return wrong("own_box_covers_", one, other, found);
    }
    return 0;
}

static int check_plain(int i, uint64_t from, uint64_t to) {
    const bytes_set range = (((bytes_set)1 << (to - from)) - 1) << from;
    const own_bytes box = at(i, 3), plain = {from, to, 0};
    const int expected = ((sets[i] << 3) & range) != 0;
    if (own_meet(box, plain) != expected || own_meet(plain, box) != expected) {
        return wrong("own_meet", box, plain, !expected);
    }
    return 0;
}

int main(void) {
    unsigned long pairs = 0;
    add_all();
    for (int i = 0; i < count; i++) {
        const uint64_t length = own_box_bytes(&boxes[i]);
        for (int j = 0; j < count; j++) {
            for (uint64_t start = 0; start <= length; start++, pairs++) {
                if (check_boxes(i, j, start)) {
                    return 1;
                }
            }
        }
        for (uint64_t from = 0; from <= length + 4; from++) {
            for (uint64_t to = from; to < from + LENGTHS; to++, pairs++) {
                if (check_plain(i, from, to)) {
                    return 1;
                }
            }
        }
    }
    printf("%d boxes, %lu pairs\n", count, pairs);
    return 0;
}
