/* Copies between ordinary memory and a ring of blocks, by several threads at once.
 *
 * Knows no CUDA and no Python. A copy goes chunk by chunk, and chunk i lies in block i % ring. One
 * thread owns the copy: it says up to where the blocks may be used (par_open), and is told up to
 * where they have been (par_copied). The chunks that are open are cut into pieces, which are taken
 * by the threads of a pool, in turn from all copies that there are, and by the owner when it has
 * nothing better to do.
 *
 * The pool's threads are made when they are first needed, and sleep when nothing is open. A forked
 * child has none, and makes its own. At exit they stop before anything they could touch is gone.
 *
 * Included by cudadrv._staging alone. */

#ifndef CUDADRV_PARALLEL_COPY_H
#define CUDADRV_PARALLEL_COPY_H

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "cudadrv/streaming_copy.h"

enum { PAR_RING = 16, PAR_THREADS = 64, PAR_STACK = 1 << 18, PAR_EXIT_SECONDS = 2 };

typedef struct par_copy {
    char *ordinary;
    size_t nbytes;
    size_t chunk;
    size_t piece; /* a power of two: pieces end where the address of ordinary memory is a multiple,
                     so that no two threads are the first to touch one page */
    char *blocks[PAR_RING];
    uint32_t ring;
    uint32_t threads; /* at most so many work on it at a time, the owner among them */
    uint8_t inward;   /* from ordinary memory into the blocks */
    /* The pool's lock guards what follows. */
    size_t opened;         /* the blocks may be used up to here, */
    size_t taken;          /* pieces up to here have been taken, */
    size_t copied;         /* and all chunks up to here are complete */
    size_t left[PAR_RING]; /* bytes of the chunk in each block that are not copied yet */
    uint32_t busy;         /* threads that are at a piece of it */
    struct par_copy *following;
} par_copy;

typedef struct par_pool {
    pthread_mutex_t lock;
    pthread_cond_t work; /* something is open */
    pthread_cond_t rest; /* nobody is at a piece of some copy */
    par_copy *first, *last;
    uint32_t threads;
    uint32_t sleeping;
    uint32_t busy;
    uint8_t stopped; /* the process exits: no piece is taken any more */
} par_pool;

typedef struct par_piece {
    size_t start;
    size_t size;
} par_piece;

#define PAR_NEW_POOL                                                                               \
    {.lock = PTHREAD_MUTEX_INITIALIZER,                                                            \
     .work = PTHREAD_COND_INITIALIZER,                                                             \
     .rest = PTHREAD_COND_INITIALIZER}

static par_pool par_the_pool = PAR_NEW_POOL;

static size_t par_chunk_end(const par_copy *copy, size_t at) {
    size_t end = (at / copy->chunk + 1) * copy->chunk;
    return end < copy->nbytes ? end : copy->nbytes;
}

static uint32_t par_block_of(const par_copy *copy, size_t at) {
    return (uint32_t)(at / copy->chunk % copy->ring);
}

/* ---- the list of copies; the lock is held ---- */

static void par_append(par_copy *copy) {
    copy->following = NULL;
    if (par_the_pool.first) {
        par_the_pool.last->following = copy;
    } else {
        par_the_pool.first = copy;
    }
    par_the_pool.last = copy;
}

static void par_remove(par_copy *copy) {
    par_copy **link = &par_the_pool.first, *before = NULL;
    while (*link && *link != copy) {
        before = *link;
        link = &before->following;
    }
    if (*link) {
        *link = copy->following;
        if (par_the_pool.last == copy) {
            par_the_pool.last = before;
        }
    }
}

/* ---- pieces; the lock is held ---- */

static int par_has_piece(const par_copy *copy) {
    return !par_the_pool.stopped && copy->taken < copy->opened && copy->busy < copy->threads;
}

static par_piece par_take(par_copy *copy) {
    par_piece piece = {copy->taken, 0};
    size_t end = par_chunk_end(copy, piece.start);
    size_t to_boundary = copy->piece - ((uintptr_t)copy->ordinary + piece.start) % copy->piece;
    piece.size = to_boundary < end - piece.start ? to_boundary : end - piece.start;
    copy->taken += piece.size;
    copy->busy++;
    par_the_pool.busy++;
    return piece;
}

static void par_done(par_copy *copy, par_piece piece) {
    copy->left[par_block_of(copy, piece.start)] -= piece.size;
    while (copy->copied < copy->opened && copy->left[par_block_of(copy, copy->copied)] == 0) {
        copy->copied = par_chunk_end(copy, copy->copied);
    }
    copy->busy--;
    par_the_pool.busy--;
    if (copy->busy == 0) {
        pthread_cond_broadcast(&par_the_pool.rest);
    }
}

/* Copies a piece without the lock. */
static void par_work(par_copy *copy) {
    par_piece piece = par_take(copy);
    pthread_mutex_unlock(&par_the_pool.lock);
    char *block = copy->blocks[par_block_of(copy, piece.start)] + piece.start % copy->chunk;
    char *ordinary = copy->ordinary + piece.start;
    if (copy->inward) {
        streaming_copy(block, ordinary, piece.size);
    } else {
        memcpy(ordinary, block, piece.size); /* the host will read it: into the caches */
    }
    pthread_mutex_lock(&par_the_pool.lock);
    par_done(copy, piece);
}

/* ---- threads ---- */

static void *par_thread(void *unused) {
    prctl(PR_SET_NAME, "cudadrv-copy");
    pthread_mutex_lock(&par_the_pool.lock);
    for (;;) {
        par_copy *copy = par_the_pool.first;
        while (copy && !par_has_piece(copy)) {
            copy = copy->following;
        }
        if (copy) { /* the next piece is another copy's, if there is one */
            par_remove(copy);
            par_append(copy);
            par_work(copy);
        } else {
            par_the_pool.sleeping++;
            pthread_cond_wait(&par_the_pool.work, &par_the_pool.lock);
            par_the_pool.sleeping--;
        }
    }
    return unused;
}

/* A forked child has the memory and none of the threads. */
static void par_forget_threads(void) { par_the_pool = (par_pool)PAR_NEW_POOL; }

/* What the threads touch may be gone soon. Never waits for ever: exiting is more important. */
static void par_stop(void) {
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += PAR_EXIT_SECONDS;
    pthread_mutex_lock(&par_the_pool.lock);
    par_the_pool.stopped = 1;
    while (par_the_pool.busy &&
           pthread_cond_timedwait(&par_the_pool.rest, &par_the_pool.lock, &limit) == 0) {
    }
    pthread_mutex_unlock(&par_the_pool.lock);
}

static void par_prepare_process(void) {
    pthread_atfork(NULL, NULL, par_forget_threads);
    atexit(par_stop);
}

/* Has at least so many threads, if the system gives them; signals are for other threads. */
static void par_have_threads(uint32_t count) {
    pthread_attr_t attributes;
    sigset_t all, before;
    pthread_t thread;
    if (par_the_pool.threads >= count || pthread_attr_init(&attributes) != 0) {
        return;
    }
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, PAR_STACK);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (par_the_pool.threads < count &&
           pthread_create(&thread, &attributes, par_thread, NULL) == 0) {
        par_the_pool.threads++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
}

/* ---- what an owner does ---- */

/* Begins a copy whose first nine members are filled in. Nothing of it is open yet. */
static void par_begin(par_copy *copy) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, par_prepare_process);
    copy->opened = copy->taken = copy->copied = 0;
    copy->busy = 0;
    pthread_mutex_lock(&par_the_pool.lock);
    par_have_threads(copy->threads - 1 < PAR_THREADS ? copy->threads - 1 : PAR_THREADS);
    par_append(copy);
    pthread_mutex_unlock(&par_the_pool.lock);
}

/* Lets the blocks be used up to the end of a chunk. */
static void par_open(par_copy *copy, size_t upto) {
    pthread_mutex_lock(&par_the_pool.lock);
    for (size_t end; copy->opened < upto; copy->opened = end) {
        end = par_chunk_end(copy, copy->opened);
        copy->left[par_block_of(copy, copy->opened)] = end - copy->opened;
    }
    if (par_the_pool.sleeping && par_has_piece(copy)) {
        pthread_cond_broadcast(&par_the_pool.work);
    }
    pthread_mutex_unlock(&par_the_pool.lock);
}

/* Copies a piece. Returns 0 if there is none to take. */
static int par_help(par_copy *copy) {
    pthread_mutex_lock(&par_the_pool.lock);
    int found = par_has_piece(copy);
    if (found) {
        par_work(copy);
    }
    pthread_mutex_unlock(&par_the_pool.lock);
    return found;
}

/* Up to where all chunks are complete. */
static size_t par_copied(const par_copy *copy) {
    pthread_mutex_lock(&par_the_pool.lock);
    size_t copied = copy->copied;
    pthread_mutex_unlock(&par_the_pool.lock);
    return copied;
}

/* Ends a copy, complete or not: on return no thread touches its memory any more. */
static void par_end(par_copy *copy) {
    pthread_mutex_lock(&par_the_pool.lock);
    copy->taken = copy->opened;
    while (copy->busy) {
        pthread_cond_wait(&par_the_pool.rest, &par_the_pool.lock);
    }
    par_remove(copy);
    pthread_mutex_unlock(&par_the_pool.lock);
}

#endif
