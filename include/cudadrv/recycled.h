/* Recycled tokens.
 *
 * Every operation creates a token, and most tokens are dropped at once. Creating and
 * deallocating a Python object costs several calls and a dozen stores, more than everything else
 * that a token needs. So a token that nobody has queried is stored instead of deallocated, and
 * used again for a later operation. */

#ifndef CUDADRV_RECYCLED_H
#define CUDADRV_RECYCLED_H

#include <Python.h>
#include <stddef.h>

enum { RECYCLED_TOKENS = 64 };

/* The first fields of a Token, as declared in _token.pxd. */
typedef struct {
    PyObject_HEAD PyObject *stream, *source, *target;
    PyObject *asked; /* None if the token was never queried and its stream had waited for nothing */
} token_fields;

typedef struct {
    uint32_t count;
    PyObject *tokens[RECYCLED_TOKENS]; /* with reference count 0 and invalid fields */
} token_store;

/* Takes a token from the store, which must not be empty, and sets its fields. */
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

/* Puts a token without references into the store. Returns 0 if the token must be deallocated
 * normally. The token's own references are dropped last, because dropping them can run any code,
 * even code that creates tokens. */
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
