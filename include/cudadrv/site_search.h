/* The table of call sites. The functions here add sites to it, skip the lines of libraries, and
 * look up a site.
 *
 * Only cudadrv._site includes this file. */

#ifndef CUDADRV_SITE_SEARCH_H
#define CUDADRV_SITE_SEARCH_H

#include <stdio.h>
#include <unistd.h>

#include "site.h"

enum { SITE_LIBRARIES = 2, SITE_DEPTH = 100 };
static char site_libraries[SITE_LIBRARIES][4096]; /* folders of libraries, with a final slash */
static PyObject *site_prefixes; /* more prefixes of files to skip: a tuple of str, or NULL */

/* Has no initializer, so that this large table does not enlarge the compiled file. */
static site_table site_the_table;

/* Clears the table. Drops the code objects only when the table is consistent again, because
 * dropping one can run Python code that uses the table. */
static void site_start_anew(void) {
    uint32_t count = 0;
    /* If malloc fails, the code objects are never freed. */
    PyCodeObject **old = malloc(site_the_table.count * sizeof *old);
    for (uint32_t i = 0; old && i < SITE_PLACES; i++) {
        if (site_the_table.places[i].code) {
            old[count++] = site_the_table.places[i].code;
        }
    }
    site_the_table.count = 0;
    site_the_table.generation =
        site_the_table.generation == UINT16_MAX ? 1 : site_the_table.generation + 1;
    memset(site_the_table.places, 0, sizeof site_the_table.places);
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

static int site_is_skipped(PyCodeObject *code) {
    for (Py_ssize_t i = 0; site_prefixes && i < PyTuple_GET_SIZE(site_prefixes); i++) {
        PyObject *prefix = PyTuple_GET_ITEM(site_prefixes, i);
        if (PyUnicode_Tailmatch(code->co_filename, prefix, 0, PY_SSIZE_T_MAX, -1) == 1) {
            return 1;
        }
    }
    return 0;
}

static int site_is_library(PyCodeObject *code) {
    const char *file = PyUnicode_AsUTF8(code->co_filename);
    if (site_is_skipped(code)) {
        return 1;
    }
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

static site_place *site_place_of(site_spot spot) {
    uintptr_t hash = site_hash(spot);
    while (site_at(&site_the_table, hash)->code && !site_is(site_at(&site_the_table, hash), spot)) {
        hash++;
    }
    site_place *place = site_at(&site_the_table, hash);
    if (place->code) {
        return place;
    }
    if (site_the_table.count == SITE_LIMIT) {
        site_start_anew();
        return site_place_of(spot);
    }
    int library = site_is_library(spot.code);
    *place = (site_place){(PyCodeObject *)Py_NewRef((PyObject *)spot.code), spot.offset, library};
    site_the_table.count++;
    return place;
}

/* Makes files with these prefixes count as libraries. Call sites that operations have recorded stay
 * as they are. */
static void site_skip(PyObject *prefixes) {
    Py_XSETREF(site_prefixes, Py_NewRef(prefixes));
    for (uint32_t i = 0; i < SITE_PLACES; i++) {
        site_place *place = &site_the_table.places[i];
        if (place->code) {
            place->library = site_is_library(place->code);
        }
    }
}

/* Returns the site of an instruction, or 0 if its code belongs to a library. Whether it does is
 * cached for the whole code object, in an entry with the offset -2, which no instruction has. */
static uint32_t site_if_users(site_spot spot) {
    if (site_place_of((site_spot){spot.code, -2})->library) {
        return 0;
    }
    return site_number(&site_the_table, site_place_of(spot));
}

/* Returns the site of the innermost frame that runs the user's code, or 0 if there is none. Calls
 * that come through a library need this. */
static uint32_t site_of_user(void) {
    uint32_t site = 0;
#if PY_VERSION_HEX >= 0x030D0000
    PyFrameObject *frame = PyEval_GetFrame();
    Py_XINCREF(frame);
    for (int depth = 0; frame && !site && depth < SITE_DEPTH; depth++) {
        PyCodeObject *code = PyFrame_GetCode(frame);
        PyFrameObject *back = PyFrame_GetBack(frame);
        site = site_if_users((site_spot){code, PyFrame_GetLasti(frame)});
        Py_DECREF(code);
        Py_DECREF(frame);
        frame = back;
    }
    Py_XDECREF(frame);
#else
    _PyInterpreterFrame *frame = PyThreadState_Get()->cframe->current_frame;
    for (int depth = 0; !site && depth < SITE_DEPTH; depth++) {
        site_spot spot = site_spot_of_frame(&frame);
        if (!spot.code) {
            break;
        }
        site = site_if_users(spot);
        frame = frame->previous;
    }
#endif
    return site;
}

/* Returns the site of an instruction for which site_known returned 0. */
static uint32_t site_search(site_spot spot) {
    if (!spot.code) {
        return 0;
    }
    uint32_t site = site_place_of(spot)->library ? site_of_user() : 0;
    return site ? site : site_number(&site_the_table, site_place_of(spot));
}

/* Returns the table's entry for a site, or NULL if the site is no longer known. */
static site_place *site_find(uint32_t site) {
    site_place *place = site_at(&site_the_table, site & 0xffff);
    return site >> 16 == site_the_table.generation && place->code ? place : NULL;
}

/* Writes the name of the file and the line of a spot. Returns 0 if there is none. */
static int site_write(site_spot spot, char *text, int size) {
    const char *file = spot.code ? PyUnicode_AsUTF8(spot.code->co_filename) : NULL;
    char folder[4096];
    if (!file) {
        return 0;
    }
    const size_t length = getcwd(folder, sizeof folder) ? strlen(folder) : 0;
    if (length && strncmp(file, folder, length) == 0 && file[length] == '/') {
        file += length + 1;
    }
    snprintf(text, (size_t)size, "%s:%d", file, PyCode_Addr2Line(spot.code, spot.offset));
    return 1;
}

/* Writes the line that a thread runs, without those of libraries. For a signal handler, in a
 * process that is about to end: it changes no table, and the thread need not have the GIL. */
static int site_describe_line(char *text, int size) {
    PyThreadState *thread = Py_IsInitialized() ? PyGILState_GetThisThreadState() : NULL;
    if (!thread) {
        return 0;
    }
    const site_spot innermost = site_spot_of(thread);
    site_spot spot = innermost;
#if PY_VERSION_HEX >= 0x030D0000
    /* Python has no function for the outer frames that needs no memory and no GIL. */
    PyFrameObject *frame = PyGILState_Check() ? PyThreadState_GetFrame(thread) : NULL;
    for (int depth = 0; frame && spot.code && site_is_library(spot.code) && depth < SITE_DEPTH;
         depth++) {
        frame = PyFrame_GetBack(frame);
        spot = frame ? (site_spot){PyFrame_GetCode(frame), PyFrame_GetLasti(frame)}
                     : (site_spot){NULL, 0};
    }
#else
    _PyInterpreterFrame *frame = thread->cframe->current_frame;
    for (int depth = 0; spot.code && site_is_library(spot.code) && depth < SITE_DEPTH; depth++) {
        spot = site_spot_of_frame(&frame);
        frame = frame ? frame->previous : NULL;
    }
#endif
    return site_write(spot.code ? spot : innermost, text, size);
}

static PyObject *site_file(site_place *place) { return Py_NewRef(place->code->co_filename); }

static int site_line(site_place *place) { return PyCode_Addr2Line(place->code, place->offset); }

#endif
