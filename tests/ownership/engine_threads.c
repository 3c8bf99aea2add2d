/* Tests the engine with the thread sanitizer. Several threads use it in C as the library does.
 *
 * The code between own_begin and own_settle plays the driver. It uses the memory's data without
 * any lock, so two conflicting operations that are accepted at the same time are a data race. A
 * host view uses the data in the same way while it is alive.
 *
 *     engine_threads SEED ROUNDS */

#include "cudadrv/ownership.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>

enum { THREADS = 8, STREAMS = 4, EVENTS = 4, MEMORIES = 3, BYTES = 32 };

typedef struct place {
    pthread_rwlock_t lock; /* held while the stream is used, so that it is not released */
    own_stream *stream;
} place;

static own_engine engine;
static own_domain domain;
static own_stream *legacy;
static place places[STREAMS];
static own_event events[EVENTS];
static own_memory memories[MEMORIES];
static int data[MEMORIES][BYTES];
static uint64_t seed, rounds;
static uint64_t accepted, refused; /* atomic */

static uint32_t below(uint64_t *state, uint32_t limit) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33) % limit;
}

static void fail(const char *what) {
    fprintf(stderr, "engine_threads: %s\n", what);
    abort();
}

static own_access some_bytes(uint64_t *random, uint32_t *memory) {
    uint32_t start = below(random, BYTES), stop = start + 1 + below(random, BYTES - start);
    *memory = below(random, MEMORIES);
    return (own_access){.memory = &memories[*memory],
                        .start = start,
                        .stop = stop,
                        .mode = below(random, 2) ? OWN_WRITE : OWN_READ,
                        .policy = OWN_STRICT};
}

/* Uses the bytes of an access, as the driver or the host does. */
static void use(const own_access *access, uint32_t memory) {
    int sum = 0;
    for (uint64_t i = access->start; i < access->stop; i++) {
        if (access->mode == OWN_WRITE) {
            data[memory][i]++;
        } else {
            sum += data[memory][i];
        }
    }
    sched_yield();
    if (sum < 0) {
        fail("a sum of counts is negative");
    }
}

static void issue(own_stream *stream, uint64_t *random) {
    uint32_t memory;
    own_access access = some_bytes(random, &memory);
    own_request request = {.stream = stream, .accesses = &access, .count = 1, .site = 1};
    own_mutex_take(stream->issue);
    int answer = own_begin(&engine, &request);
    if (answer == OWN_OK) {
        use(&access, memory);
        if (below(random, 8) == 0) {
            own_undo(&engine, &request);
        } else {
            own_settle(&engine, &request);
            if (below(random, 4) == 0) { /* as if somebody had waited for its token */
                own_join_host(&engine, &request.issued);
            }
            own_snapshot_drop(&engine, &request.issued);
        }
    }
    own_mutex_give(stream->issue);
    __atomic_add_fetch(answer == OWN_OK ? &accepted : &refused, 1, __ATOMIC_RELAXED);
}

static void host_access(uint64_t *random) {
    uint32_t memory;
    own_access access = some_bytes(random, &memory);
    own_export view;
    own_conflict conflict;
    if (own_export_open(&engine, &access, 1, &view, &conflict) == OWN_OK) {
        if (access.mode == OWN_READ) { /* the engine does not order two host writers */
            use(&access, memory);
        }
        own_export_close(&engine, &view);
    }
}

static void record_or_wait(own_stream *stream, own_event *event, int record) {
    own_lock_both(stream->issue, &event->issue);
    if (record) {
        own_record(&engine, stream, event);
    } else if (event->recorded) {
        own_wait(&engine, stream, &event->snapshot);
    }
    own_unlock_both(stream->issue, &event->issue);
}

static void synchronize(own_stream *stream, int all) {
    own_snapshot snapshot;
    if (all) {
        if (!own_domain_snapshot(&engine, &domain, &snapshot)) {
            fail("no memory");
        }
    } else {
        own_snapshot_take(&engine, stream, &snapshot);
    }
    sched_yield();
    own_join_host(&engine, &snapshot);
    if (!own_snapshot_known(&engine, &snapshot)) {
        fail("what the host has seen is not known");
    }
    own_snapshot_drop(&engine, &snapshot);
}

static void replace(place *at, uint64_t *random) {
    own_stream *stream = at->stream;
    own_mutex_take(stream->issue);
    own_stream_close(&engine, stream);
    own_mutex_give(stream->issue);
    own_stream_release(&engine, stream);
    at->stream = own_stream_open(&engine, &domain, (int)below(random, 2));
}

static void look(uint64_t *random) {
    own_borrow borrows[8];
    own_suspect suspects[8];
    own_conflict conflict;
    own_books books;
    own_memory *memory = &memories[below(random, MEMORIES)];
    own_borrows(&engine, memory, 0, BYTES, borrows, 8);
    own_suspects(&engine, &domain, suspects, 8);
    own_memory_free(&engine, memory, 0, &conflict);
    own_count(&engine, &books);
    own_unfinished(&engine, &domain);
}

static void *work(void *number) {
    uint64_t random = seed * 1000 + (uint64_t)(size_t)number;
    for (uint64_t round = 0; round < rounds; round++) {
        place *at = &places[below(&random, STREAMS)];
        uint32_t what = below(&random, 24);
        if (what < 4) {
            host_access(&random);
        } else if (what == 4) {
            look(&random);
        } else if (what == 5) {
            issue(legacy, &random);
        } else {
            if (what == 6) {
                pthread_rwlock_wrlock(&at->lock);
                replace(at, &random);
            } else {
                pthread_rwlock_rdlock(&at->lock);
            }
            own_stream *stream = at->stream;
            if (what < 10) {
                record_or_wait(stream, &events[below(&random, EVENTS)], what % 2);
            } else if (what < 12) {
                synchronize(stream, what == 11);
            } else {
                issue(stream, &random);
            }
            pthread_rwlock_unlock(&at->lock);
        }
    }
    return NULL;
}

int main(int count, char **arguments) {
    pthread_t threads[THREADS];
    own_conflict conflict;
    own_books books;
    seed = count > 1 ? strtoull(arguments[1], NULL, 10) : 1;
    rounds = count > 2 ? strtoull(arguments[2], NULL, 10) : 1000;
    own_engine_prepare(&engine);
    own_domain_open(&engine, &domain, 0);
    legacy = own_stream_open(&engine, &domain, OWN_LEGACY);
    for (int i = 0; i < STREAMS; i++) {
        pthread_rwlock_init(&places[i].lock, NULL);
        places[i].stream = own_stream_open(&engine, &domain, i % 2);
    }
    for (int i = 0; i < MEMORIES; i++) {
        own_memory_prepare(&memories[i], BYTES);
        memories[i].managed = i == 0;
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_create(&threads[i], NULL, work, (void *)i);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    synchronize(legacy, 1);
    for (int i = 0; i < STREAMS; i++) {
        own_stream_close(&engine, places[i].stream);
        own_stream_release(&engine, places[i].stream);
    }
    own_stream_close(&engine, legacy);
    own_stream_release(&engine, legacy);
    for (int i = 0; i < EVENTS; i++) {
        own_snapshot_drop(&engine, &events[i].snapshot);
    }
    for (int i = 0; i < MEMORIES; i++) {
        if (own_memory_free(&engine, &memories[i], 1, &conflict) != OWN_OK) {
            fail("memory is still borrowed");
        }
        own_memory_clear(&memories[i]);
    }
    own_lock(&engine);
    own_retire_finished_(&engine);
    own_unlock(&engine);
    if (!own_domain_close(&engine, &domain)) {
        fail("the domain still has streams");
    }
    own_count(&engine, &books);
    if (books.domains || books.streams || books.views) {
        fail("the books are not empty");
    }
    free(engine.slots);
    printf("%llu accepted, %llu refused\n", (unsigned long long)accepted,
           (unsigned long long)refused);
    return 0;
}
