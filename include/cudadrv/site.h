/* Call sites: which line of the user's program made a call, at the price of a look at one place.
 *
 * A site is a number that stands for (code object, instruction offset). Its line is worked out only
 * when it is printed. No frame is ever kept. The table is bounded: when it is full it starts anew,
 * and numbers from before then stand for a line that is no longer known.
 *
 * Here is what every operation does, in one piece with the rest of it. What a line needs when it is
 * new, or somebody asks for it, is in site_search.h. The GIL guards the table. */

#ifndef CUDADRV_SITE_H
#define CUDADRV_SITE_H

#include <Python.h>
#include <stdint.h>
#if PY_VERSION_HEX < 0x030D0000
#ifndef Py_BUILD_CORE
#define Py_BUILD_CORE 1
#endif
#include <internal/pycore_frame.h>
#endif

enum { SITE_PLACES = 1 << 15, SITE_LIMIT = SITE_PLACES / 2 };

typedef struct {
    PyCodeObject *code;
    int offset;
} site_spot;

typedef struct {
    PyCodeObject *code; /* a strong reference: a reused address must not name another line */
    int offset;
    int library; /* not the user's: Python's own modules, and NumPy */
} site_place;

typedef struct {
    uint32_t generation; /* upper half of a site's number: 0 stands for "no site" */
    uint32_t count;
    /* Each at its hash, or at the first one after it that was free: those without a code object. */
    site_place places[SITE_PLACES];
} site_table;

#if PY_VERSION_HEX < 0x030D0000
/* Where a frame is, or the nearest one that called it and has begun. As PyEval_GetFrame and
 * PyFrame_GetLasti, which would make an object for each new frame. */
static inline site_spot site_spot_of_frame(_PyInterpreterFrame **frame) {
    while (*frame && _PyFrame_IsIncomplete(*frame)) {
        *frame = (*frame)->previous;
    }
    return *frame ? (site_spot){(*frame)->f_code,
                                _PyInterpreterFrame_LASTI(*frame) * (int)sizeof(_Py_CODEUNIT)}
                  : (site_spot){NULL, 0};
}
#endif

/* Where a thread is: in its innermost Python frame, because extension code has none. The code
 * object is borrowed from the frame; NULL where there is none. */
static inline site_spot site_spot_of(const PyThreadState *thread) {
#if PY_VERSION_HEX >= 0x030D0000
    site_spot spot = {NULL, 0};
    struct _PyInterpreterFrame *frame = thread->current_frame;
    if (frame) {
        PyObject *code = PyUnstable_InterpreterFrame_GetCode(frame);
        spot.offset = PyUnstable_InterpreterFrame_GetLasti(frame);
        spot.code = PyCode_Check(code) ? (PyCodeObject *)code : NULL;
        Py_DECREF(code);
    }
    return spot;
#else
    _PyInterpreterFrame *frame = thread->cframe->current_frame;
    return site_spot_of_frame(&frame);
#endif
}

static inline uintptr_t site_hash(site_spot spot) {
    return ((uintptr_t)spot.code >> 4) * 31 + (uintptr_t)spot.offset / 2;
}

static inline site_place *site_at(site_table *table, uintptr_t hash) {
    return &table->places[hash % SITE_PLACES];
}

static inline int site_is(const site_place *place, site_spot spot) {
    return place->code == spot.code && place->offset == spot.offset;
}

static inline uint32_t site_number(const site_table *table, const site_place *place) {
    return table->generation << 16 | (uint32_t)(place - table->places);
}

/* The site of a spot that is the user's and was seen before, where it is looked for first; else 0.
 */
static inline uint32_t site_known(site_table *table, site_spot spot) {
    const site_place *place = site_at(table, site_hash(spot));
    return __builtin_expect(site_is(place, spot) && spot.code && !place->library, 1)
               ? site_number(table, place)
               : 0;
}

#endif
