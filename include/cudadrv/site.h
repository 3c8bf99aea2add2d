/* Call sites: which line of the user's program made a call, at the price of a hash probe.
 *
 * A site is a number that stands for (code object, instruction offset). Its line is worked out only
 * when it is printed. No frame is ever kept. The table is bounded: when it is full it starts anew,
 * and numbers from before then stand for a line that is no longer known.
 *
 * Included by cudadrv._site alone; the GIL guards it. */

#ifndef CUDADRV_SITE_H
#define CUDADRV_SITE_H

#include <Python.h>
#include <stdint.h>

enum { SITE_LIMIT = 1 << 14, SITE_PROBES = 1 << 15 };

typedef struct {
    PyCodeObject *code; /* a strong reference: a reused address must not name another line */
    int offset;
} site_place;

static site_place site_places[SITE_LIMIT];
static uint32_t site_probes[SITE_PROBES]; /* index into site_places, plus one */
static uint32_t site_count;
static uint32_t site_generation = 1; /* upper half of a site's number: 0 stands for "no site" */

static void site_start_anew(void) {
    uint32_t count = site_count;
    site_count = 0;
    site_generation = site_generation == UINT16_MAX ? 1 : site_generation + 1;
    memset(site_probes, 0, sizeof site_probes);
    for (uint32_t i = 0; i < count; i++) {
        Py_CLEAR(site_places[i].code);
    }
}

static uint32_t site_number(PyCodeObject *code, int offset) {
    uintptr_t hash = ((uintptr_t)code >> 4) * 31 + (uintptr_t)offset / 2;
    for (;; hash++) {
        uint32_t *probe = &site_probes[hash % SITE_PROBES];
        if (*probe == 0) {
            if (site_count == SITE_LIMIT) {
                site_start_anew();
                return site_number(code, offset);
            }
            site_places[site_count].code = (PyCodeObject *)Py_NewRef((PyObject *)code);
            site_places[site_count].offset = offset;
            *probe = ++site_count;
        }
        site_place *place = &site_places[*probe - 1];
        if (place->code == code && place->offset == offset) {
            return site_generation << 16 | (*probe - 1);
        }
    }
}

/* The site of the innermost Python frame. Extension code has none, so this is the user's line. */
static uint32_t site_here(void) {
    PyObject *code;
    int offset;
#if PY_VERSION_HEX >= 0x030C0000
    PyThreadState *state = PyThreadState_Get();
#if PY_VERSION_HEX >= 0x030D0000
    struct _PyInterpreterFrame *frame = state->current_frame;
#else
    struct _PyInterpreterFrame *frame = state->cframe->current_frame;
#endif
    if (!frame) {
        return 0;
    }
    code = PyUnstable_InterpreterFrame_GetCode(frame);
    offset = PyUnstable_InterpreterFrame_GetLasti(frame);
#else
    PyFrameObject *frame = PyEval_GetFrame();
    if (!frame) {
        return 0;
    }
    code = (PyObject *)PyFrame_GetCode(frame);
    offset = PyFrame_GetLasti(frame);
#endif
    uint32_t site = PyCode_Check(code) ? site_number((PyCodeObject *)code, offset) : 0;
    Py_DECREF(code);
    return site;
}

/* The place of a site, borrowed, or NULL if it is no longer known. */
static site_place *site_find(uint32_t site) {
    uint32_t index = site & 0xffff;
    return site >> 16 == site_generation && index < site_count ? &site_places[index] : NULL;
}

static PyObject *site_file(site_place *place) { return Py_NewRef(place->code->co_filename); }

static int site_line(site_place *place) { return PyCode_Addr2Line(place->code, place->offset); }

#endif
