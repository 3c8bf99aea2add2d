/* Call sites tell which line of the user's program made a call.
 *
 * A site is a number for a pair (code object, instruction offset), which one lookup in a table
 * finds. The line is computed only when it is printed. Frames are never kept. The table has a
 * fixed size. When it is full it is cleared, and the lines of older sites are then unknown.
 *
 * The functions that every operation calls are in this file, so that they are inlined. The
 * search for new lines, and the lookup of a site, are in site_search.h. The GIL guards the
 * table. */

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

/* An instruction of a Python program, such as a call. */
typedef struct {
    PyCodeObject *code;
    int offset;
} site_spot;

typedef struct {
    PyCodeObject *code; /* a strong reference, so that no other code gets the same address */
    int offset;
    int library; /* the code belongs to a library (Python's own modules, NumPy), not to the user */
} site_place;

typedef struct {
    uint32_t generation; /* upper half of site numbers; never 0, because site 0 means "no site" */
    uint32_t count;
    /* A hash table. An entry is at the place of its hash, or at the first free place after it. A
     * free place has no code object. */
    site_place places[SITE_PLACES];
} site_table;

#if PY_VERSION_HEX < 0x030D0000
/* Returns the instruction that a frame runs. If the frame has not begun to run, sets *frame to its
 * nearest caller that has begun. PyEval_GetFrame and PyFrame_GetLasti would create an object for
 * each frame. */
static inline site_spot site_spot_of_frame(_PyInterpreterFrame **frame) {
    while (*frame && _PyFrame_IsIncomplete(*frame)) {
        *frame = (*frame)->previous;
    }
    return *frame ? (site_spot){(*frame)->f_code,
                                _PyInterpreterFrame_LASTI(*frame) * (int)sizeof(_Py_CODEUNIT)}
                  : (site_spot){NULL, 0};
}
#endif

/* Returns the code object and the instruction offset at which the innermost Python frame of a
 * thread runs. The frame owns the code object, which is NULL if there is no frame. Extension code
 * has no frame. */
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

/* Returns the site of an instruction, if it is user code and the table has it exactly at its hash.
 * Otherwise returns 0, and site_search must look for it. */
static inline uint32_t site_known(site_table *table, site_spot spot) {
    const site_place *place = site_at(table, site_hash(spot));
    return __builtin_expect(site_is(place, spot) && spot.code && !place->library, 1)
               ? site_number(table, place)
               : 0;
}

#endif
