/* What the Cython modules share. They are linked into one library, cudadrv._compiled, whose build
 * defines CUDADRV_LIBRARY. pyx/library.c contains what the library has once.
 *
 * Other programs that include the engine's headers, such as the engine's tests, get separate
 * copies. */

#ifndef CUDADRV_LIBRARY_H
#define CUDADRV_LIBRARY_H

/* OWN_ONCE is for functions that are called rarely. A header declares such a function, and defines
 * it if OWN_BODIES is 1. A build that changes the engine's functions defines OWN_COPIES, and each
 * module then has its own copy (tests/ownership/recorded.h). */
#define CUDADRV_HIDDEN __attribute__((visibility("hidden")))
#if defined(CUDADRV_LIBRARY) && !defined(OWN_COPIES)
#define OWN_ONCE CUDADRV_HIDDEN __attribute__((noinline))
#ifndef OWN_BODIES
#define OWN_BODIES 0
#endif
#else
#define OWN_ONCE static __attribute__((noinline, unused))
#define OWN_BODIES 1
#endif

/* A function that is always inlined: its constant arguments choose the code that is left. */
#define OWN_INLINE static inline __attribute__((always_inline))

#endif
