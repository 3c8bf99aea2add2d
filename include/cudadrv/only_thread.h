/* Whether anybody could take the GIL if it were let go. */

#ifndef CUDADRV_ONLY_THREAD_H
#define CUDADRV_ONLY_THREAD_H

#include <Python.h>
#include <stdint.h>

/* Whether the caller, who has the GIL and this state, is the interpreter's only thread. Native
 * threads that never ran Python do not count: they may want the GIL at any time. */
static inline int is_only_thread(const PyThreadState *own) {
    return !((uintptr_t)own->prev | (uintptr_t)own->next);
}

#endif
