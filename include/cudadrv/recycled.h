/* Tokens that are used again.
 *
 * Every operation makes a token, and most are dropped at once. To make an object and to end it
 * takes Python several calls and a dozen stores, more than all else that a token needs. One that
 * nobody asked anything is put aside as it is when it ends, and set anew. */

#ifndef CUDADRV_RECYCLED_H
#define CUDADRV_RECYCLED_H

#include <Python.h>
#include <stddef.h>

enum { RECYCLED_TOKENS = 64 };

/* The beginning of a Token, as _token.pxd declares it. */
typedef struct {
    PyObject_HEAD PyObject *stream, *source, *target;
    PyObject *asked; /* None: nobody did, and its stream had waited for nothing */
} token_fields;

typedef struct {
    uint32_t count;
    PyObject *tokens[RECYCLED_TOKENS]; /* without references; their fields stand for nothing */
} token_store;

/* One from the store, which is not empty. */
static inline PyObject *token_anew(token_store *store, PyObject *stream, PyObject *source,
                                   PyObject *target) {
    PyObject *token = store->tokens[--store->count];
    token_fields *fields = (token_fields *)token;
    Py_SET_REFCNT(token, 1);
    fields->stream = Py_NewRef(stream);
    fields->source = Py_NewRef(source);
    fields->target = Py_NewRef(target);
    return token;
}

/* Puts one that has no references into the store, unless it needs an ordinary end. What it kept is
 * let go last: that can run anything, and make tokens. */
static inline int token_put_aside(token_store *store, PyObject *token) {
    token_fields *fields = (token_fields *)token;
    PyObject *stream = fields->stream, *source = fields->source, *target = fields->target;
    PyObject *references = *(PyObject **)((char *)token + Py_TYPE(token)->tp_weaklistoffset);
    if (fields->asked != Py_None || references || store->count == RECYCLED_TOKENS) {
        return 0;
    }
    store->tokens[store->count++] = token;
    Py_DECREF(stream);
    Py_DECREF(source);
    Py_DECREF(target);
    return 1;
}

#endif
