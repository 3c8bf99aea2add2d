/* Whether another thread could take the GIL if it were released. */

#ifndef CUDADRV_ONLY_THREAD_H
#define CUDADRV_ONLY_THREAD_H

#include <Python.h>
#include <stdint.h>

/* Whether the caller, which has the GIL and this state, is the interpreter's only thread. Native
 * threads that never ran Python do not count, although they may take the GIL at any time. */
static inline int is_only_thread(const PyThreadState *own) {
    return !((uintptr_t)own->prev | (uintptr_t)own->next);
}

#endif
