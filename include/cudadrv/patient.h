/* Calls cuCtxSynchronize in another thread, so that the calling thread can check for signals.
 *
 * Only for work that no event stands for, such as that of another thread's default stream. If the
 * calling thread stops waiting, the other thread goes on until the context's work is complete. */

#ifndef CUDADRV_PATIENT_H
#define CUDADRV_PATIENT_H

#include "driver.h"
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#define PATIENT_NS 5000000 /* how long one call of patient_wait waits */

typedef struct patient {
    CUcontext context;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    int done;
    CUresult status; /* once it is done: what the last call has returned */
    const char *call;
    int users; /* the threads that use this struct: the last one frees it */
} patient;

/* Stops using the struct. The caller has its lock. */
static void patient_leave(patient *wait) {
    int users = --wait->users;
    pthread_mutex_unlock(&wait->lock);
    if (users == 0) {
        pthread_cond_destroy(&wait->ended);
        pthread_mutex_destroy(&wait->lock);
        free(wait);
    }
}

static void *patient_run(void *argument) {
    patient *wait = (patient *)argument;
    const char *call = "cuCtxSetCurrent";
    CUresult status = cudadrv_cuCtxSetCurrent(wait->context); /* this thread has no other context */
    if (status == CUDA_SUCCESS) {
        call = "cuCtxSynchronize";
        status = cudadrv_cuCtxSynchronize();
    }
    pthread_mutex_lock(&wait->lock);
    wait->call = call;
    wait->status = status;
    wait->done = 1;
    pthread_cond_signal(&wait->ended);
    patient_leave(wait);
    return NULL;
}

/* Begins to wait for all work of a context. Returns NULL if there is no memory or no thread. */
static patient *patient_begin(CUcontext context) {
    pthread_t thread;
    pthread_condattr_t monotonic;
    patient *wait = (patient *)malloc(sizeof(patient));
    if (!wait) {
        return NULL;
    }
    wait->context = context;
    wait->done = 0;
    wait->users = 2;
    pthread_mutex_init(&wait->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&wait->ended, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (pthread_create(&thread, NULL, patient_run, wait)) {
        wait->users = 1;
        pthread_mutex_lock(&wait->lock);
        patient_leave(wait);
        return NULL;
    }
    pthread_detach(thread);
    return wait;
}

/* Waits for PATIENT_NS at most. Returns whether the work is complete, or the wait has failed. */
static int patient_wait(patient *wait) {
    struct timespec until;
    int done;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += PATIENT_NS;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec += 1;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&wait->lock);
    if (!wait->done) {
        pthread_cond_timedwait(&wait->ended, &wait->lock, &until);
    }
    done = wait->done;
    pthread_mutex_unlock(&wait->lock);
    return done;
}

/* Returns the status, after patient_wait has returned 1. It failed in another thread, so the name
 * of the failed call is noted in this one. */
static CUresult patient_status(const patient *wait) {
    if (wait->status != CUDA_SUCCESS) {
        cudadrv_table->note_failure(wait->call);
    }
    return wait->status;
}

/* Ends the use of the struct, even if the work is not complete. */
static void patient_end(patient *wait) {
    pthread_mutex_lock(&wait->lock);
    patient_leave(wait);
}

#endif
