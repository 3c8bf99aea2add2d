/* What the library of the Cython modules has once: the table of driver functions, the engine, and
 * the bodies of the engine's slow paths. */

#include <pthread.h>

#define OWN_BODIES 1
#include "cudadrv/driver.h"
#include "cudadrv/process.h"

cudadrv_driver cudadrv_the_table;
own_engine cudadrv_the_engine; /* zeroed memory is an engine without streams */

/* The forking thread takes the lock before a fork, and releases it in both processes. If another
 * thread held the lock during the fork, it would stay taken in the child, and a destructor in the
 * child would wait for it forever. */
static void lock_the_engine(void) { own_lock(&cudadrv_the_engine); }
static void unlock_the_engine(void) { own_unlock(&cudadrv_the_engine); }

/* Runs when the library is loaded, and not with a module: no module has to be imported for it. */
__attribute__((constructor)) static void watch_forks(void) {
    pthread_atfork(lock_the_engine, unlock_the_engine, unlock_the_engine);
}
