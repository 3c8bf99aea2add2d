/* What the driver's own log says about a failed call. Drivers since 12.9 log errors in English, by
 * a callback that runs in the thread of the call. Only cudadrv._driver includes this file.
 *
 * The lines of a thread are kept in the thread, without locks: the callback must not call the
 * driver, and does not wait. */

#ifndef CUDADRV_DRIVER_LOG_H
#define CUDADRV_DRIVER_LOG_H

#include <stddef.h>
#include <string.h>

#define CUDADRV_LOG_LINES 8
#define CUDADRV_LOG_LENGTH 512 /* longer lines are cut */

static __thread struct {
    int count;    /* number of lines */
    int complete; /* the lines belong to the call that failed last; a new line begins the next */
    size_t length[CUDADRV_LOG_LINES];
    char text[CUDADRV_LOG_LINES][CUDADRV_LOG_LENGTH];
} cudadrv_log;

/* Of too many lines, the last ones stay. Only errors (level 0) are kept. */
static void cudadrv_hear(void *data, int level, char *message, size_t length) {
    (void)data;
    if (level != 0) {
        return;
    }
    if (cudadrv_log.complete) {
        cudadrv_log.complete = cudadrv_log.count = 0;
    }
    if (cudadrv_log.count == CUDADRV_LOG_LINES) {
        cudadrv_log.count--;
        memmove(cudadrv_log.text[0], cudadrv_log.text[1],
                sizeof cudadrv_log.text[0] * cudadrv_log.count);
        memmove(cudadrv_log.length, cudadrv_log.length + 1, sizeof(size_t) * cudadrv_log.count);
    }
    length = length < CUDADRV_LOG_LENGTH ? length : CUDADRV_LOG_LENGTH;
    memcpy(cudadrv_log.text[cudadrv_log.count], message, length);
    cudadrv_log.length[cudadrv_log.count++] = length;
}

/* Call this when a call of this thread has failed: the lines since the last failure are its. */
static inline void cudadrv_log_failure(void) {
    if (cudadrv_log.complete) {
        cudadrv_log.count = 0;
    }
    cudadrv_log.complete = 1;
}

/* Returns the number of lines about the call that failed last in this thread. */
static inline int cudadrv_log_count(void) { return cudadrv_log.complete ? cudadrv_log.count : 0; }

static inline const char *cudadrv_log_line(int i, size_t *length) {
    *length = cudadrv_log.length[i];
    return cudadrv_log.text[i];
}

#endif
