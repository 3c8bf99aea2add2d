"""The one ownership engine of this process. Its code is C: include/cudadrv/ownership.h.

Outlives a call: all clocks and ranges (the engine's lock, and the issue locks of streams and
events).
"""

cdef extern from *:
    """
    #include <pthread.h>

    static own_engine the_engine;

    /* The forking thread takes the lock before a fork, and releases it in both processes. If
     * another thread held the lock during the fork, it would stay taken in the child, and a
     * destructor in the child would wait for it forever. */
    static void lock_the_engine(void) { own_lock(&the_engine); }
    static void unlock_the_engine(void) { own_unlock(&the_engine); }

    static void prepare_the_engine(void) {
        own_engine_prepare(&the_engine);
        pthread_atfork(lock_the_engine, unlock_the_engine, unlock_the_engine);
    }
    """
    own_engine the_engine
    void prepare_the_engine() nogil


prepare_the_engine()
engine = &the_engine


def books():
    """Return how many records of each kind the engine keeps, as a dict. Used by tests.

    The keys are ``contexts``, ``streams`` (open ones, and those that may have unfinished work) and
    ``views`` (host views of managed memory).
    """
    cdef own_books counted
    own_count(engine, &counted)
    return {"contexts": counted.domains, "streams": counted.streams, "views": counted.views}
