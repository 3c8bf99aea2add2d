/* The mutex of the engine: like pthread_mutex_t, but much cheaper without contention.
 *
 * An operation takes three of them if there is another Python thread. Zeroed memory is a free
 * mutex, and nothing has to be destroyed. Threads that wait sleep in the kernel. The memory of a
 * mutex must outlive the threads that wait for it.
 *
 * own_mutex_give is a load and a store, which are cheaper than one atomic exchange. A thread
 * that begins to wait between the two is not woken, so nobody sleeps for longer than OWN_NAP at
 * once. */

#ifndef CUDADRV_MUTEX_H
#define CUDADRV_MUTEX_H

#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "library.h"

/* A test build defines these two: what a thread does before it takes a mutex, and before it gives
 * one back (tests/ownership/recorded.h). */
#ifndef OWN_BEFORE_TAKE
#define OWN_BEFORE_TAKE(mutex)
#define OWN_BEFORE_GIVE(mutex)
#endif

enum own_mutex_state { OWN_FREE, OWN_TAKEN, OWN_AWAITED };
enum { OWN_NAP = 1000000 }; /* nanoseconds */

typedef struct own_mutex {
    int state;
} own_mutex;

OWN_ONCE void own_mutex_await_(own_mutex *mutex);

#if OWN_BODIES
void own_mutex_await_(own_mutex *mutex) {
    const struct timespec nap = {0, OWN_NAP};
    while (__atomic_exchange_n(&mutex->state, OWN_AWAITED, __ATOMIC_ACQUIRE) != OWN_FREE) {
        syscall(SYS_futex, &mutex->state, FUTEX_WAIT_PRIVATE, OWN_AWAITED, &nap, NULL, 0);
    }
}
#endif

OWN_ONCE void own_mutex_wake_(own_mutex *mutex);

#if OWN_BODIES
void own_mutex_wake_(own_mutex *mutex) {
    syscall(SYS_futex, &mutex->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
#endif

/* Takes the mutex if it is free. Returns whether it was taken. */
static inline int own_mutex_try(own_mutex *mutex) {
    int free = OWN_FREE;
    return __atomic_compare_exchange_n(&mutex->state, &free, OWN_TAKEN, 0, __ATOMIC_ACQUIRE,
                                       __ATOMIC_RELAXED);
}

/* Does own_mutex_try for a caller who knows that no other thread can take the mutex meanwhile.
 * Uses no atomic instruction, because that would wait for all earlier stores. */
static inline int own_mutex_try_alone(own_mutex *mutex) {
    int free = mutex->state == OWN_FREE;
    mutex->state = free ? OWN_TAKEN : mutex->state;
    return free;
}

static inline void own_mutex_take(own_mutex *mutex) {
    OWN_BEFORE_TAKE(mutex);
    if (__builtin_expect(!own_mutex_try(mutex), 0)) {
        own_mutex_await_(mutex);
    }
}

static inline void own_mutex_give(own_mutex *mutex) {
    OWN_BEFORE_GIVE(mutex);
    int before = __atomic_load_n(&mutex->state, __ATOMIC_RELAXED);
    __atomic_store_n(&mutex->state, OWN_FREE, __ATOMIC_RELEASE);
    if (__builtin_expect(before == OWN_AWAITED, 0)) {
        own_mutex_wake_(mutex);
    }
}

#endif
