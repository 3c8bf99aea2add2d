/* Decides which of several threads runs, so that a random program can be repeated.
 *
 * One thread runs at a time. Wherever it takes a mutex, it lets another thread run, which is chosen
 * at random. What the mutexes guard can change nowhere else. Without a schedule the threads run at
 * once, and give way at these places. */

#ifndef CUDADRV_SCHEDULED_H
#define CUDADRV_SCHEDULED_H

#include <sched.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* All modules of an extension share these variables. */
#define SCHEDULED_SHARED __attribute__((weak, visibility("default")))

enum { SCHEDULED_MOST_THREADS = 8, SCHEDULED_PATIENCE = 1000000 };

typedef struct scheduled_threads {
    int threads;     /* 0: no schedule, so that the threads run at once */
    uint64_t random; /* only the thread that runs uses it */
    int ended[SCHEDULED_MOST_THREADS];
    sem_t turns[SCHEDULED_MOST_THREADS]; /* a thread waits here until it is chosen */
} scheduled_threads;

SCHEDULED_SHARED scheduled_threads scheduled_plan;
/* Number of this thread in the schedule, from 1 on; 0 for others. */
SCHEDULED_SHARED _Thread_local int scheduled_thread;

static inline uint32_t scheduled_random_(void) {
    scheduled_plan.random = scheduled_plan.random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(scheduled_plan.random >> 33);
}

/* Chooses a thread at random. Returns its number, or 0 if all threads have ended. */
static inline int scheduled_choose_(void) {
    int first = (int)(scheduled_random_() % (uint32_t)scheduled_plan.threads);
    for (int i = 0; i < scheduled_plan.threads; i++) {
        int at = (first + i) % scheduled_plan.threads;
        if (!scheduled_plan.ended[at]) {
            return at + 1;
        }
    }
    return 0;
}

static inline void scheduled_await_(int thread) {
    while (sem_wait(&scheduled_plan.turns[thread - 1])) {
    }
}

/* Passes the turn to the chosen thread, which may be this one. */
static inline void scheduled_pause(void) {
    int next = scheduled_choose_();
    if (next != scheduled_thread) {
        sem_post(&scheduled_plan.turns[next - 1]);
        scheduled_await_(scheduled_thread);
    }
}

/* Begins a schedule of so many threads, each of which then calls scheduled_enter. Without threads,
 * there is no schedule. */
static inline void scheduled_begin(uint64_t seed, int threads) {
    scheduled_plan = (scheduled_threads){.threads = threads, .random = seed};
    for (int i = 0; i < threads; i++) {
        sem_init(&scheduled_plan.turns[i], 0, i == 0);
    }
}

/* Waits until the schedule chooses this thread for the first time. Numbers begin with 0. */
static inline void scheduled_enter(int number) {
    if (scheduled_plan.threads) {
        scheduled_thread = number + 1;
        scheduled_await_(scheduled_thread);
    }
}

/* Call this at the end of a thread. */
static inline void scheduled_leave(void) {
    if (scheduled_plan.threads) {
        scheduled_plan.ended[scheduled_thread - 1] = 1;
        int next = scheduled_choose_();
        if (next) {
            sem_post(&scheduled_plan.turns[next - 1]);
        }
    }
}

/* Called before a thread takes the mutex with this state. In a schedule, returns when it is free:
 * nobody can take it before this thread does. */
static inline void scheduled_before_take(const int *state) {
    if (!scheduled_thread) {
        if (!scheduled_plan.threads) {
            sched_yield();
        }
        return;
    }
    int tries = 0;
    do {
        scheduled_pause();
        if (++tries == SCHEDULED_PATIENCE) {
            fprintf(stderr, "scheduled.h: the threads wait for each other\n");
            abort();
        }
    } while (*state != 0);
}

#endif
