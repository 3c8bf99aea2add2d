/* Copies between ordinary memory and a ring of page-locked blocks, by several threads. A copy to
 * the blocks may also read a file.
 *
 * Uses neither CUDA nor Python. A copy is divided into chunks, and chunk i uses block i % ring.
 * One thread owns the copy. It opens a chunk (par_open) when the block of the chunk is free, and
 * asks up to which offset all chunks are complete (par_copied). An open chunk is divided into
 * pieces. The threads of a pool take pieces from all copies in turn. The owner also takes pieces
 * (par_help) when it has nothing else to do.
 *
 * The pool's threads are created when they are first needed, and sleep while no chunk is open.
 * They look for new chunks for PAR_SPIN_NS before they sleep, because waking a thread takes time,
 * too. A forked child does not inherit them and creates its own. At exit the threads stop, because
 * the memory that they use may disappear.
 *
 * Only cudadrv._staging includes this file. */

#ifndef CUDADRV_PARALLEL_COPY_H
#define CUDADRV_PARALLEL_COPY_H

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "cudadrv/streaming_copy.h"

enum {
    PAR_RING = 16,
    PAR_THREADS = 64,
    PAR_STACK = 1 << 18,
    PAR_EXIT_SECONDS = 2,
    PAR_SPIN_NS = 50000
};

typedef struct par_copy {
    char *ordinary;
    size_t nbytes;
    size_t chunk;
    /* A power of two. A piece ends where the address in ordinary memory is a multiple of this
     * number, or where its chunk ends. So two threads seldom touch the same fresh page at once. */
    size_t piece;
    char *blocks[PAR_RING];
    uint32_t ring;
    uint32_t threads; /* the most threads that work on the copy at once, including the owner */
    uint8_t inward;   /* 1: copy from ordinary memory to the blocks; 0: the other direction */
    uint8_t cached;   /* 1: fill the blocks with ordinary stores; 0: with streaming_copy */
    int file;        /* -1, or the descriptor of the file that is read instead of ordinary memory */
    uint64_t offset; /* where to begin in the file */
    /* The lock of the pool guards the members from here on. */
    size_t opened;         /* chunks up to this offset may be copied */
    size_t taken;          /* pieces up to this offset have been taken */
    size_t copied;         /* all chunks up to this offset are complete */
    size_t left[PAR_RING]; /* for each block: bytes of its chunk that are not copied yet */
    uint32_t busy;         /* number of threads that are copying a piece of this copy */
    size_t missing;        /* offset of the first byte that could not be read, or nbytes */
    int error;             /* errno of a read that failed, or 0 */
    int64_t copied_at;     /* the time at which everything was copied, in ns */
    struct par_copy *following;
} par_copy;

typedef struct par_pool {
    pthread_mutex_t lock;
    pthread_cond_t work; /* signalled when chunks are opened */
    pthread_cond_t rest; /* signalled when the last busy thread of a copy has finished its piece */
    par_copy *first, *last;
    uint32_t threads;
    uint32_t sleeping;
    uint32_t busy;
    uint8_t stopped; /* set at exit; threads then take no more pieces */
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
static uint64_t par_openings; /* how often chunks were opened; spinning threads watch it */

static int64_t par_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static size_t par_chunk_end(const par_copy *copy, size_t at) {
    size_t end = (at / copy->chunk + 1) * copy->chunk;
    return end < copy->nbytes ? end : copy->nbytes;
}

static uint32_t par_block_of(const par_copy *copy, size_t at) {
    return (uint32_t)(at / copy->chunk % copy->ring);
}

/* ---- the list of copies; callers hold the lock ---- */

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

/* ---- pieces; callers hold the lock ---- */

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

static void par_done(par_copy *copy, par_piece piece, size_t got, int error) {
    if (got < piece.size && piece.start + got < copy->missing) {
        copy->missing = piece.start + got;
    }
    if (error && !copy->error) {
        copy->error = error;
    }
    copy->left[par_block_of(copy, piece.start)] -= piece.size;
    while (copy->copied < copy->opened && copy->left[par_block_of(copy, copy->copied)] == 0) {
        copy->copied = par_chunk_end(copy, copy->copied);
        if (copy->copied == copy->nbytes) {
            copy->copied_at = par_now();
        }
    }
    copy->busy--;
    par_the_pool.busy--;
    if (copy->busy == 0) {
        pthread_cond_broadcast(&par_the_pool.rest);
    }
}

/* Reads `size` bytes of a file, or fewer at its end. Returns how many were read, and sets *error if
 * a read failed. */
static size_t par_read(int file, char *room, size_t size, uint64_t offset, int *error) {
    size_t done = 0;
    while (done < size) {
        ssize_t got = pread(file, room + done, size - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            *error = got < 0 ? errno : 0;
            break;
        }
        done += (size_t)got;
    }
    return done;
}

/* Takes a piece and copies it. Releases the lock during the copy. */
static void par_work(par_copy *copy) {
    par_piece piece = par_take(copy);
    pthread_mutex_unlock(&par_the_pool.lock);
    char *block = copy->blocks[par_block_of(copy, piece.start)] + piece.start % copy->chunk;
    char *ordinary = copy->ordinary + piece.start;
    size_t got = piece.size;
    int error = 0;
    if (copy->file >= 0) {
        got = par_read(copy->file, block, piece.size, copy->offset + piece.start, &error);
    } else if (copy->inward && !copy->cached) {
        streaming_copy(block, ordinary, piece.size);
    } else if (copy->inward) {
        memcpy(block, ordinary, piece.size);
    } else {
        memcpy(ordinary, block, piece.size); /* the host will read the bytes, so use the caches */
    }
    pthread_mutex_lock(&par_the_pool.lock);
    par_done(copy, piece, got, error);
}

/* ---- threads ---- */

/* Waits for a short time until chunks are opened. Returns whether that has happened. */
static int par_spin(uint64_t openings) {
    int64_t end = par_now() + PAR_SPIN_NS;
    do {
        for (int turn = 0; turn < 64; turn++) {
            if (__atomic_load_n(&par_openings, __ATOMIC_RELAXED) != openings) {
                return 1;
            }
#ifdef __SSE2__
            _mm_pause();
#endif
        }
    } while (par_now() < end);
    return 0;
}

static void *par_thread(void *unused) {
    int spun = 0;
    prctl(PR_SET_NAME, "cudadrv-copy");
    pthread_mutex_lock(&par_the_pool.lock);
    for (;;) {
        par_copy *copy = par_the_pool.first;
        while (copy && !par_has_piece(copy)) {
            copy = copy->following;
        }
        if (copy) { /* move the copy to the end, so that the next piece comes from another copy */
            par_remove(copy);
            par_append(copy);
            par_work(copy);
            spun = 0;
        } else if (!spun) {
            uint64_t openings = __atomic_load_n(&par_openings, __ATOMIC_RELAXED);
            pthread_mutex_unlock(&par_the_pool.lock);
            spun = !par_spin(openings);
            pthread_mutex_lock(&par_the_pool.lock);
        } else {
            par_the_pool.sleeping++;
            pthread_cond_wait(&par_the_pool.work, &par_the_pool.lock);
            par_the_pool.sleeping--;
            spun = 0;
        }
    }
    return unused;
}

/* Runs in a forked child, which has a copy of the memory but none of the pool's threads. */
static void par_forget_threads(void) { par_the_pool = (par_pool)PAR_NEW_POOL; }

/* Runs at exit, because the memory that the threads use may disappear soon. Waits until no thread
 * is copying, but not longer than PAR_EXIT_SECONDS. */
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

/* Creates threads until there are `count` of them or the system refuses. The new threads block all
 * signals, so that the program's threads handle them. */
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

/* ---- functions for owners ---- */

/* Begins a copy that has no open chunks yet. The caller has set the members up to `offset`. */
static void par_begin(par_copy *copy) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, par_prepare_process);
    copy->opened = copy->taken = copy->copied = 0;
    copy->busy = 0;
    copy->missing = copy->nbytes;
    copy->error = 0;
    copy->copied_at = 0;
    pthread_mutex_lock(&par_the_pool.lock);
    par_have_threads(copy->threads - 1 < PAR_THREADS ? copy->threads - 1 : PAR_THREADS);
    par_append(copy);
    pthread_mutex_unlock(&par_the_pool.lock);
}

/* Opens all chunks up to the offset `upto`, which must be the end of a chunk. */
static void par_open(par_copy *copy, size_t upto) {
    pthread_mutex_lock(&par_the_pool.lock);
    for (size_t end; copy->opened < upto; copy->opened = end) {
        end = par_chunk_end(copy, copy->opened);
        copy->left[par_block_of(copy, copy->opened)] = end - copy->opened;
    }
    __atomic_fetch_add(&par_openings, 1, __ATOMIC_RELAXED);
    if (par_the_pool.sleeping && par_has_piece(copy)) {
        pthread_cond_broadcast(&par_the_pool.work);
    }
    pthread_mutex_unlock(&par_the_pool.lock);
}

/* Copies one piece in the calling thread. Returns 0 if there is no piece that it could take. */
static int par_help(par_copy *copy) {
    pthread_mutex_lock(&par_the_pool.lock);
    int found = par_has_piece(copy);
    if (found) {
        par_work(copy);
    }
    pthread_mutex_unlock(&par_the_pool.lock);
    return found;
}

/* Returns the offset up to which all chunks are complete. */
static size_t par_copied(const par_copy *copy) {
    pthread_mutex_lock(&par_the_pool.lock);
    size_t copied = copy->copied;
    pthread_mutex_unlock(&par_the_pool.lock);
    return copied;
}

/* Ends a copy, even if it is not complete. After the return no thread uses the memory of the
 * copy. */
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
