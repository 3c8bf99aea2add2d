/* Guards an object that a thread may close while others use it.
 *
 * A use lasts from own_guard_enter to own_guard_leave. An object closes only while nobody uses it,
 * and from then on no use can begin. Nobody waits: whoever comes second is refused. Zeroed memory
 * is the guard of an open object that nobody uses.
 *
 * Operations need no guard: the engine knows what they use. Guards are for all other calls, such as
 * lookups and queries, and for loans, whose users are the arrays of other libraries. */

#ifndef CUDADRV_GUARD_H
#define CUDADRV_GUARD_H

enum { OWN_SHUT = -1 };

typedef struct own_guard {
    int users; /* OWN_SHUT: the object is closed, or a thread is closing it */
} own_guard;

/* Begins a use. Returns 0 if the object is closed, or is being closed. */
static inline int own_guard_enter(own_guard *guard) {
    int users = __atomic_load_n(&guard->users, __ATOMIC_RELAXED);
    while (users != OWN_SHUT) {
        if (__atomic_compare_exchange_n(&guard->users, &users, users + 1, 1, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED)) {
            return 1;
        }
    }
    return 0;
}

static inline void own_guard_leave(own_guard *guard) {
    __atomic_fetch_sub(&guard->users, 1, __ATOMIC_RELEASE);
}

/* Ends a use. If it was the last one, also closes, and returns 1. */
static inline int own_guard_leave_last(own_guard *guard) {
    int users = __atomic_load_n(&guard->users, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&guard->users, &users, users == 1 ? OWN_SHUT : users - 1, 1,
                                        __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
    }
    return users == 1;
}

/* Begins to close, if the only users are the caller's own, whose number is `users`. Returns 0 if
 * there are others, or if a thread has closed the object already. */
static inline int own_guard_shut(own_guard *guard, int users) {
    return __atomic_compare_exchange_n(&guard->users, &users, OWN_SHUT, 0, __ATOMIC_ACQUIRE,
                                       __ATOMIC_RELAXED);
}

/* Opens again, after closing has failed. */
static inline void own_guard_reopen(own_guard *guard) {
    __atomic_store_n(&guard->users, 0, __ATOMIC_RELEASE);
}

static inline int own_guard_is_shut(const own_guard *guard) {
    return __atomic_load_n(&guard->users, __ATOMIC_RELAXED) == OWN_SHUT;
}

#endif
