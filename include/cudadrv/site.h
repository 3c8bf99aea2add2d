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
#if PY_VERSION_HEX < 0x030D0000
#ifndef Py_BUILD_CORE
#define Py_BUILD_CORE 1
#endif
#include <internal/pycore_frame.h>
#endif

enum { SITE_PLACES = 1 << 15, SITE_LIMIT = SITE_PLACES / 2 };

typedef struct {
    PyCodeObject *code; /* a strong reference: a reused address must not name another line */
    int offset;
    int library; /* not the user's: Python's own modules, and NumPy */
} site_place;

enum { SITE_LIBRARIES = 2, SITE_DEPTH = 100 };
static char site_libraries[SITE_LIBRARIES][4096]; /* where they lie, with a slash at the end */

/* Each at its hash, or at the first one after it that was free: those without a code object. */
static site_place site_places[SITE_PLACES];
static uint32_t site_count;
static uint32_t site_generation = 1; /* upper half of a site's number: 0 stands for "no site" */

/* The table is whole again before a code object dies: that can run Python, which comes here. */
static void site_start_anew(void) {
    uint32_t count = 0;
    PyCodeObject **old = malloc(site_count * sizeof *old); /* else they live for ever */
    for (uint32_t i = 0; old && i < SITE_PLACES; i++) {
        if (site_places[i].code) {
            old[count++] = site_places[i].code;
        }
    }
    site_count = 0;
    site_generation = site_generation == UINT16_MAX ? 1 : site_generation + 1;
    memset(site_places, 0, sizeof site_places);
    for (uint32_t i = 0; i < count; i++) {
        Py_DECREF(old[i]);
    }
    free(old);
}

static void site_set_library(int index, const char *folder) {
    if (strlen(folder) < sizeof *site_libraries) {
        strcpy(site_libraries[index], folder);
    }
}

static int site_is_library(PyCodeObject *code) {
    const char *file = PyUnicode_AsUTF8(code->co_filename);
    if (!file) {
        PyErr_Clear();
        return 0;
    }
    for (int i = 0; i < SITE_LIBRARIES; i++) {
        size_t length = strlen(site_libraries[i]);
        if (length && strncmp(file, site_libraries[i], length) == 0) {
            return i == 0 ? !strstr(file + length, "-packages/") : 1;
        }
    }
    return strncmp(file, "<frozen ", 8) == 0;
}

static uintptr_t site_hash(PyCodeObject *code, int offset) {
    return ((uintptr_t)code >> 4) * 31 + (uintptr_t)offset / 2;
}

static inline site_place *site_at(uintptr_t hash) { return &site_places[hash % SITE_PLACES]; }

static inline int site_is(const site_place *place, const PyCodeObject *code, int offset) {
    return place->code == code && place->offset == offset;
}

static __attribute__((noinline)) site_place *site_search(PyCodeObject *code, int offset) {
    uintptr_t hash = site_hash(code, offset);
    while (site_at(hash)->code && !site_is(site_at(hash), code, offset)) {
        hash++;
    }
    site_place *place = site_at(hash);
    if (place->code) {
        return place;
    }
    if (site_count == SITE_LIMIT) {
        site_start_anew();
        return site_search(code, offset);
    }
    int library = site_is_library(code);
    *place = (site_place){(PyCodeObject *)Py_NewRef((PyObject *)code), offset, library};
    site_count++;
    return place;
}

static inline site_place *site_of(PyCodeObject *code, int offset) {
    site_place *place = site_at(site_hash(code, offset));
    return __builtin_expect(site_is(place, code, offset), 1) ? place : site_search(code, offset);
}

static inline uint32_t site_number(const site_place *place) {
    return site_generation << 16 | (uint32_t)(place - site_places);
}

/* The innermost frame of the user's code, for calls that come through a library: slow, and rare. */
static __attribute__((noinline)) uint32_t site_of_user(uint32_t innermost) {
    PyFrameObject *frame = PyEval_GetFrame();
    uint32_t site = innermost;
    Py_XINCREF(frame);
    for (int depth = 0; frame && depth < SITE_DEPTH; depth++) {
        PyCodeObject *code = PyFrame_GetCode(frame);
        PyFrameObject *back = PyFrame_GetBack(frame);
        int library = site_is_library(code);
        if (!library) {
            site = site_number(site_of(code, PyFrame_GetLasti(frame)));
        }
        Py_DECREF(code);
        Py_DECREF(frame);
        frame = back;
        if (!library) {
            break;
        }
    }
    Py_XDECREF(frame);
    return site;
}

/* The user's line: that of the innermost Python frame, because extension code has none. */
static uint32_t site_here(void) {
    PyThreadState *state = PyThreadState_Get();
#if PY_VERSION_HEX >= 0x030D0000
    struct _PyInterpreterFrame *frame = state->current_frame;
    if (!frame) {
        return 0;
    }
    PyObject *code = PyUnstable_InterpreterFrame_GetCode(frame);
    int offset = PyUnstable_InterpreterFrame_GetLasti(frame);
    Py_DECREF(code); /* the frame keeps it */
#else
    /* As PyEval_GetFrame and PyFrame_GetLasti, which would make an object for each new frame. */
    _PyInterpreterFrame *frame = state->cframe->current_frame;
    while (frame && _PyFrame_IsIncomplete(frame)) {
        frame = frame->previous;
    }
    if (!frame) {
        return 0;
    }
    PyObject *code = (PyObject *)frame->f_code; /* the frame keeps it */
    int offset = _PyInterpreterFrame_LASTI(frame) * (int)sizeof(_Py_CODEUNIT);
#endif
    if (!PyCode_Check(code)) {
        return 0;
    }
    const site_place *place = site_of((PyCodeObject *)code, offset);
    return __builtin_expect(place->library, 0) ? site_of_user(site_number(place))
                                               : site_number(place);
}

/* The place of a site, borrowed, or NULL if it is no longer known. */
static site_place *site_find(uint32_t site) {
    site_place *place = site_at(site & 0xffff);
    return site >> 16 == site_generation && place->code ? place : NULL;
}

static PyObject *site_file(site_place *place) { return Py_NewRef(place->code->co_filename); }

static int site_line(site_place *place) { return PyCode_Addr2Line(place->code, place->offset); }

#endif
