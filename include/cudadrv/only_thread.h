/* Finds out whether the process may have a second Python thread. */

#ifndef CUDADRV_ONLY_THREAD_H
#define CUDADRV_ONLY_THREAD_H

#include <Python.h>
#include <stdint.h>

/* Returns whether the caller is the interpreter's only thread. The caller has the GIL, and `own`
 * is its state. Native threads that never ran Python do not count, although they may take the
 * GIL at any time. */
static inline int is_only_thread(const PyThreadState *own) {
    return !((uintptr_t)own->prev | (uintptr_t)own->next);
}

#endif
