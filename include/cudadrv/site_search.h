/* The table of call sites: lines that are new, lines of libraries, and what a site stands for.
 *
 * Included by cudadrv._site alone. */

#ifndef CUDADRV_SITE_SEARCH_H
#define CUDADRV_SITE_SEARCH_H

#include "site.h"

enum { SITE_LIBRARIES = 2, SITE_DEPTH = 100 };
static char site_libraries[SITE_LIBRARIES][4096]; /* where they lie, with a slash at the end */

static site_table site_the_table; /* zeros: so large a table of anything else lies in a file */

/* The table is whole again before a code object dies: that can run Python, which comes here. */
static void site_start_anew(void) {
    uint32_t count = 0;
    PyCodeObject **old = malloc(site_the_table.count * sizeof *old); /* else they live for ever */
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

/* The innermost frame of the user's code, for calls that come through a library: slow, and rare. */
static uint32_t site_of_user(uint32_t innermost) {
    PyFrameObject *frame = PyEval_GetFrame();
    uint32_t site = innermost;
    Py_XINCREF(frame);
    for (int depth = 0; frame && depth < SITE_DEPTH; depth++) {
        PyCodeObject *code = PyFrame_GetCode(frame);
        PyFrameObject *back = PyFrame_GetBack(frame);
        int library = site_is_library(code);
        if (!library) {
            site = site_number(&site_the_table,
                               site_place_of((site_spot){code, PyFrame_GetLasti(frame)}));
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

/* The site of a spot that site_known does not know. */
static uint32_t site_search(site_spot spot) {
    if (!spot.code) {
        return 0;
    }
    const site_place *place = site_place_of(spot);
    uint32_t site = site_number(&site_the_table, place);
    return place->library ? site_of_user(site) : site;
}

/* The place of a site, borrowed, or NULL if it is no longer known. */
static site_place *site_find(uint32_t site) {
    site_place *place = site_at(&site_the_table, site & 0xffff);
    return site >> 16 == site_the_table.generation && place->code ? place : NULL;
}

static PyObject *site_file(site_place *place) { return Py_NewRef(place->code->co_filename); }

static int site_line(site_place *place) { return PyCode_Addr2Line(place->code, place->offset); }

#endif
