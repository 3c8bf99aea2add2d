/* A libcuda.so.1 for tests: it passes each call on to a driver (DRIVER, a path), and lets another
 * thread run at the moments before and after a call. It works with the software driver and on a
 * GPU.
 *
 * A thread calls `watch_from_here(n, 0)`; then its nth moment (before its first call, after it,
 * before its second call, ...) wakes the thread that waits in `wait_for_moment`, and waits until that
 * thread calls `end_moment` or waits for a lock. */

#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static enum { NOT_YET, NOW, OVER } moment = NOT_YET;
static const char *where = ""; /* the function at whose call the moment was */
static pid_t other;            /* the thread that waits for the moment */
static __thread long left;     /* how many moments of this thread are to pass; 0: not watched */
static __thread int collections; /* collections are the moments, and not driver calls */

static void set_moment(int to) {
    pthread_mutex_lock(&lock);
    moment = to;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

/* Whether the other thread sleeps, because it waits for a lock. */
static int sleeps(void) {
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", other);
    FILE *file = fopen(path, "r");
    if (file) {
        text[fread(text, 1, sizeof text - 1, file)] = 0;
        fclose(file);
    }
    const char *name_end = strrchr(text, ')');
    return !name_end || name_end[2] == 'S';
}

static void at_moment(const char *name, int collection) {
    if (left == 0 || collection != collections || --left) {
        return;
    }
    pthread_mutex_lock(&lock);
    where = name;
    moment = NOW;
    pthread_cond_broadcast(&changed);
    for (int asleep = 0, waited = 0; moment == NOW && asleep < 20 && waited < 500; ++waited) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 1000000; /* a millisecond */
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&changed, &lock, &until);
        asleep = sleeps() ? asleep + 1 : 0;
    }
    pthread_mutex_unlock(&lock);
}

void at_collection(void) { at_moment("a collection", 1); }

/* A moment inside a block. */
void pause_here(void) { at_moment("inside a block", 0); }

void watch_from_here(long number, int of_collections) {
    left = number;
    collections = of_collections;
    where = "";
    set_moment(NOT_YET);
}

/* Wakes the other thread if its moment has not come. */
void watch_no_more(void) {
    left = 0;
    pthread_mutex_lock(&lock);
    if (moment == NOT_YET) {
        moment = OVER;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
}

/* Returns the name of the driver function; an empty string if the moment has not come. */
const char *wait_for_moment(void) {
    other = (pid_t)syscall(SYS_gettid);
    pthread_mutex_lock(&lock);
    while (moment == NOT_YET) {
        pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
    return where;
}

void end_moment(void) { set_moment(OVER); }

#define CUDADRV_FUNCTION(name, abi, parameters, arguments)                                         \
    static CUresult(CUDAAPI *real_##name) parameters;                                              \
    static CUresult CUDAAPI between_##name parameters {                                            \
        at_moment(#name, 0);                                                                          \
        CUresult answer = real_##name arguments;                                                   \
        at_moment(#name, 0);                                                                          \
        return answer;                                                                             \
    }
#include <cudadrv/driver_functions.h>
#undef CUDADRV_FUNCTION

static const struct {
    const char *name;
    void **real;
    void *between;
} functions[] = {
#define CUDADRV_FUNCTION(name, abi, parameters, arguments)                                         \
    {#name, (void **)&real_##name, (void *)between_##name},
#include <cudadrv/driver_functions.h>
#undef CUDADRV_FUNCTION
};

#undef cuGetProcAddress
#undef cuGetProcAddress_v2
CUresult CUDAAPI cuGetProcAddress_v2(const char *name, void **address, int version,
                                     cuuint64_t flags, CUdriverProcAddressQueryResult *found) {
    static CUresult(CUDAAPI * real)(const char *, void **, int, cuuint64_t,
                                    CUdriverProcAddressQueryResult *);
    if (!real) {
        *(void **)&real = dlsym(dlopen(DRIVER, RTLD_NOW), "cuGetProcAddress_v2");
    }
    CUresult answer = real(name, address, version, flags, found);
    for (size_t i = 0; answer == CUDA_SUCCESS && i < sizeof functions / sizeof *functions; ++i) {
        if (strcmp(functions[i].name, name) == 0) {
            *functions[i].real = *address;
            *address = functions[i].between;
        }
    }
    return answer;
}
