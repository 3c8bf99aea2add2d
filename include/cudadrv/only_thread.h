/* Finds out whether the process may have a second Python thread. */

#ifndef CUDADRV_ONLY_THREAD_H
#define CUDADRV_ONLY_THREAD_H

#include <Python.h>
#include <stdint.h>

/* Returns whether the caller is the only Python thread. The caller holds the GIL, and `own` is its
 * thread state. Threads that never ran Python do not count, although they may take the GIL at any
 * time. */
static inline int is_only_thread(const PyThreadState *own) {
    return !((uintptr_t)own->prev | (uintptr_t)own->next);
}

#endif
