/* A random program in several threads, which use the engine in C as the library does.
 *
 *     engine_threads SEED ROUNDS [THREADS]
 *
 * The code between own_begin and own_settle plays the driver. It uses the memory's data without
 * any lock, so two conflicting operations that are accepted at the same time are a data race, which
 * the thread sanitizer reports. A host view uses the data in the same way while it is alive.
 *
 * Compiled with recorded.h, the program writes a record of all decisions, for replay.py:
 *
 *     engine_threads SEED ROUNDS THREADS RECORD [scheduled] */

#include "cudadrv/ownership.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>

enum {
    MOST_THREADS = 8,
    DOMAINS = 2,
    STREAMS = 4,
    EVENTS = 4,
    MEMORIES = 3,
    BYTES = 8,
    MOST_ACCESSES = 3,
    LOANS = 2 /* of each thread; a host view is one, too */
};

typedef struct place {
    pthread_rwlock_t lock; /* held while the stream is used, so that it is not released */
    own_stream *stream;
} place;

/* Memory, and the data that stand for what the driver does with it. Both live until the end. */
typedef struct block {
    own_memory memory;
    int data[BYTES];
    struct block *former;
} block;

/* A host view or a loan, which its thread ends. */
typedef struct loan {
    own_export view;
    own_access access;
    own_stream *stream; /* NULL: a view of the host, or a loan to nobody */
    int open;
} loan;

typedef struct thread {
    pthread_t thread;
    int number;
    uint64_t random;
    uint32_t site; /* call site of the last call; no two calls have the same one */
    loan loans[LOANS];
} thread;

static own_engine engine;
static own_domain domains[DOMAINS];
static own_stream *legacy[DOMAINS], *nobody;
static place places[STREAMS];
static own_event events[EVENTS];
static block *blocks[MEMORIES]; /* atomic: closed memory is replaced */
static thread threads[MOST_THREADS];
static uint64_t rounds;
static uint64_t accepted, refused; /* atomic */

static uint32_t below(thread *self, uint32_t limit) {
    self->random = self->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(self->random >> 33) % limit;
}

static void fail(const char *what) {
    fprintf(stderr, "engine_threads: %s\n", what);
    abort();
}

static block *new_block(int managed) {
    block *made = calloc(1, sizeof *made);
    if (!made) {
        fail("no memory");
    }
    own_memory_prepare(&made->memory, BYTES);
    made->memory.managed = (uint8_t)managed;
    return made;
}

static block *some_block(thread *self) {
    return __atomic_load_n(&blocks[below(self, MEMORIES)], __ATOMIC_ACQUIRE);
}

static own_access some_bytes(thread *self, uint32_t modes) {
    uint32_t start = below(self, BYTES), stop = start + 1 + below(self, BYTES - start);
    if (below(self, 3) == 0) {
        start = 0, stop = BYTES; /* the fast path */
    }
    return (own_access){.memory = &some_block(self)->memory,
                        .start = start,
                        .stop = stop,
                        .mode = (uint8_t)below(self, modes),
                        .policy = OWN_STRICT};
}

/* Makes a box of an access to several bytes, if it can be one: two or more rows of a byte or more,
 * with a gap between them. */
static void make_box(own_access *access, thread *self) {
    const uint64_t length = access->stop - access->start;
    if (length < 3 || below(self, 2)) {
        return;
    }
    const uint64_t pitch = 2 + below(self, (uint32_t)length - 2), rows = (length - 1) / pitch + 1;
    const uint64_t left = length - (rows - 1) * pitch;
    access->boxed = 1;
    access->box = (own_box){left < pitch ? left : pitch - 1, pitch, rows, 0, 1};
    access->stop = access->start + own_box_bytes(&access->box);
    if (rows == 4) { /* two slices */
        access->box.rows = access->box.slices = 2;
        access->box.slice = 2 * pitch;
    }
}

/* Uses the bytes of an access, as the driver or the host does. The engine does not order
 * unchecked accesses, and does not order two accesses of the mode OWN_REACH. */
static void use(const own_access *access) {
    int *data = ((block *)access->memory)->data, sum = 0;
    int checked = access->policy != OWN_UNCHECKED && access->effect == OWN_STAYS;
    own_rows_ rows = own_rows_of_(access);
    for (; checked && own_has_row_(&rows); own_next_row_(&rows)) {
        for (uint64_t i = rows.start; i < rows.stop; i++) {
            if (access->mode == OWN_WRITE) {
                data[i]++;
            } else if (access->mode == OWN_READ) {
                sum += data[i];
            }
        }
    }
    sched_yield();
    if (sum < 0) {
        fail("a sum of counts is negative");
    }
}

static void count(int answer) {
    __atomic_add_fetch(answer == OWN_OK ? &accepted : &refused, 1, __ATOMIC_RELAXED);
}

/* Returns whether the oracle knows which bytes own_undo leaves recorded. If it restores a part of a
 * box only, the bytes of that part are still recorded where the box has other ranges. */
static int undoes(const own_request *request) {
    int boxes = 0;
    for (uint32_t i = 0; i < request->count; i++) {
        boxes += request->accesses[i].boxed;
    }
    return !request->returns && (request->count == 1 || !boxes);
}

static void finish(own_request *request, thread *self) {
    for (uint32_t i = 0; i < request->count; i++) {
        use(&request->accesses[i]);
    }
    if (undoes(request) && below(self, 8) == 0) {
        if (request->loan) {
            ((loan *)request->loan)->open = 0;
        }
        own_undo(&engine, request);
    } else {
        own_settle(&engine, request, NULL, 0);
        if (below(self, 4) == 0) { /* as if somebody had waited for its token */
            own_join_host(&engine, &request->issued);
        }
        own_snapshot_drop(&engine, &request->issued);
    }
}

static void submit(own_request *request, thread *self) {
    own_mutex_take(request->stream->issue);
    int answer = own_begin(&engine, request, NULL, 0, 0);
    if (answer == OWN_OK) {
        if (request->loan) {
            ((loan *)request->loan)->open = 1;
        }
        finish(request, self);
    }
    own_mutex_give(request->stream->issue);
    count(answer);
}

static own_request request_of(own_stream *stream, own_access *accesses, uint32_t accesses_count,
                              thread *self) {
    return (own_request){
        .stream = stream, .accesses = accesses, .count = accesses_count, .site = ++self->site};
}

static void issue(own_stream *stream, thread *self) {
    own_access accesses[MOST_ACCESSES];
    static const uint8_t policies[] = {OWN_STRICT, OWN_STRICT, OWN_WAIT, OWN_UNCHECKED};
    uint32_t accesses_count = 1 + below(self, 2) * below(self, MOST_ACCESSES);
    uint8_t policy = policies[below(self, 4)];
    for (uint32_t i = 0; i < accesses_count; i++) {
        accesses[i] = some_bytes(self, below(self, 4) ? 2 : 4);
        accesses[i].policy = policy;
        make_box(&accesses[i], self);
    }
    own_request request = request_of(stream, accesses, accesses_count, self);
    request.passive = below(self, 8) == 0;
    submit(&request, self);
}

/* Discards, moves or attaches memory. */
static void change(own_stream *stream, thread *self) {
    static const uint8_t effects[] = {OWN_DISCARDS, OWN_DISCARDS, OWN_MOVES, OWN_ATTACHES};
    own_access access = some_bytes(self, 1);
    own_request request = request_of(stream, &access, 1, self);
    access.effect = effects[below(self, 4)];
    access.mode = access.effect == OWN_MOVES ? OWN_SHARED : OWN_WRITE;
    access.policy = below(self, 4) ? OWN_STRICT : OWN_UNCHECKED;
    if (access.effect == OWN_ATTACHES) {
        access.start = 0, access.stop = BYTES;
        request.attachment.stream = below(self, 2) ? 0 : own_tag(stream);
        request.attachment.site = request.site;
    }
    submit(&request, self);
}

static void end_loan(loan *ended, thread *self) {
    if (ended->stream && below(self, 2)) {
        own_request request = request_of(ended->stream, &ended->access, 1, self);
        request.returns = 1;
        submit(&request, self);
    }
    own_export_close(&engine, &ended->view);
    ended->open = 0;
}

/* Ends a loan or a view of this thread, or begins one. `stream` may be NULL. */
static void lend(own_stream *stream, thread *self) {
    loan *one = &self->loans[below(self, LOANS)];
    own_conflict conflict;
    if (one->open) {
        end_loan(one, self);
        return;
    }
    *one = (loan){.access = some_bytes(self, 2), .stream = stream};
    own_access *access = &one->access;
    make_box(access, self);
    if (stream) {
        own_request request = request_of(stream, access, 1, self);
        access->effect = OWN_USES;
        request.loan = &one->view;
        submit(&request, self);
        return;
    }
    int answer;
    if (below(self, 4) == 0) {
        access->effect = OWN_USES;
        answer = own_lend_open(&engine, access, ++self->site, nobody, &one->view, &conflict);
    } else {
        access->policy = below(self, 4) ? OWN_STRICT : OWN_WAIT;
        answer = own_export_open(&engine, access, ++self->site, &one->view, &conflict);
        if (answer == OWN_OK && access->mode == OWN_READ) {
            use(access); /* the engine does not order two writers of the host */
        }
    }
    one->open = answer == OWN_OK;
    count(answer);
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

static void synchronize(own_stream *stream, const own_domain *domain) {
    own_snapshot snapshot;
    if (domain) {
        if (!own_domain_snapshot(&engine, domain, &snapshot)) {
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

static own_stream *new_stream(uint32_t random) {
    return own_stream_open(&engine, &domains[random % 4 == 3], random / 4 % 2);
}

/* Closes a stream to which nothing is lent, and opens another one. */
static void replace_stream(place *at, thread *self) {
    own_stream *stream = at->stream;
    own_lock(&engine);
    int lent = stream->loans > 0;
    own_unlock(&engine);
    if (lent) {
        return;
    }
    own_mutex *issue = stream->issue;
    own_mutex_take(issue);
    own_stream_close(&engine, stream);
    own_mutex_give(issue);
    own_stream_release(&engine, stream);
    at->stream = new_stream(below(self, 8));
}

/* Closes memory, if nobody uses it, and replaces it. Others may still try to use it. */
static void replace_memory(thread *self) {
    uint32_t at = below(self, MEMORIES);
    block *former = __atomic_load_n(&blocks[at], __ATOMIC_ACQUIRE);
    own_conflict conflict;
    if (own_memory_free(&engine, &former->memory, 1, &conflict) == OWN_OK) {
        block *made = new_block(former->memory.managed);
        made->former = former;
        __atomic_store_n(&blocks[at], made, __ATOMIC_RELEASE);
    }
}

static void look(own_stream *stream, thread *self) {
    own_borrow borrows[8];
    own_suspect suspects[8];
    own_conflict conflict;
    own_discard discard = {0};
    own_books books;
    own_access bytes = some_bytes(self, 1);
    switch (below(self, 6)) {
    case 0:
        own_borrows(&engine, bytes.memory, own_bytes_of(&bytes), borrows, 8);
        break;
    case 1:
        own_suspects(&engine, &domains[0], suspects, 8);
        own_count(&engine, &books);
        own_unfinished(&engine, &domains[0]);
        break;
    case 2:
        own_memory_free(&engine, bytes.memory, 0, &conflict);
        break;
    case 3:
        own_bytes_free(&engine, bytes.memory, bytes.start, bytes.stop, &conflict);
        break;
    case 4:
        own_discarded(&engine, bytes.memory, own_bytes_of(&bytes), &discard);
        break;
    default:
        own_stream_known(&engine, stream);
    }
}

/* Lets other threads run. */
static void pause_thread(void) {
#ifdef CUDADRV_RECORDED_H
    if (scheduled_thread) {
        scheduled_pause();
        return;
    }
#endif
    sched_yield();
}

/* Takes the lock of a place, to use its stream or to replace it. */
static void enter(place *at, int replaces) {
    while (replaces ? pthread_rwlock_trywrlock(&at->lock) : pthread_rwlock_tryrdlock(&at->lock)) {
        pause_thread();
    }
}

/* Makes one call. */
static void step(thread *self) {
    place *at = &places[below(self, STREAMS)];
    uint32_t what = below(self, 32);
    if (what == 0) {
        issue(legacy[below(self, DOMAINS)], self);
        return;
    }
    if (what == 1) {
        replace_memory(self);
        return;
    }
    if (what < 6) {
        lend(NULL, self);
        return;
    }
    enter(at, what == 6);
    own_stream *stream = at->stream;
    if (what == 6) {
        replace_stream(at, self);
    } else if (what < 12) {
        record_or_wait(stream, &events[below(self, EVENTS)], what % 2);
    } else if (what < 14) {
        synchronize(stream, what == 12 ? &domains[below(self, DOMAINS)] : NULL);
    } else if (what < 16) {
        look(stream, self);
    } else if (what < 18) {
        lend(stream, self);
    } else if (what < 20) {
        change(stream, self);
    } else {
        issue(stream, self);
    }
    pthread_rwlock_unlock(&at->lock);
}

static void *work(void *argument) {
    thread *self = argument;
#ifdef CUDADRV_RECORDED_H
    scheduled_enter(self->number);
#endif
    for (uint64_t round = 0; round < rounds; round++) {
        step(self);
    }
    for (int i = 0; i < LOANS; i++) {
        if (self->loans[i].open) {
            end_loan(&self->loans[i], self);
        }
    }
#ifdef CUDADRV_RECORDED_H
    scheduled_leave();
#endif
    return NULL;
}

static void begin(uint64_t seed) {
    own_engine_prepare(&engine);
    for (uint32_t i = 0; i < DOMAINS; i++) {
        own_domain_open(&engine, &domains[i], i == 1 && seed % 2);
        legacy[i] = own_stream_open(&engine, &domains[i], OWN_LEGACY);
    }
    nobody = own_stream_open(&engine, &domains[0], OWN_NON_BLOCKING);
    for (uint32_t i = 0; i < STREAMS; i++) {
        pthread_rwlock_init(&places[i].lock, NULL);
        places[i].stream = new_stream(i % 2 ? 3 * i : 4 * i);
    }
    for (int i = 0; i < MEMORIES; i++) {
        blocks[i] = new_block(i == 0);
    }
}

static void close_stream(own_stream *stream) {
    own_stream_close(&engine, stream);
    own_stream_release(&engine, stream);
}

static void close_memory(block *last) {
    own_conflict conflict;
    if (own_memory_free(&engine, &last->memory, 1, &conflict) != OWN_OK) {
        fail("memory is still borrowed");
    }
    while (last) {
        block *former = last->former;
        own_memory_clear(&last->memory);
        free(last);
        last = former;
    }
}

/* Closes everything, and checks that the engine has forgotten it. */
static void end(void) {
    own_books books;
    for (int i = 0; i < DOMAINS; i++) {
        synchronize(legacy[i], &domains[i]);
    }
    for (int i = 0; i < STREAMS; i++) {
        close_stream(places[i].stream);
    }
    close_stream(nobody);
    for (int i = 0; i < EVENTS; i++) {
        own_snapshot_drop(&engine, &events[i].snapshot);
    }
    for (int i = 0; i < MEMORIES; i++) {
        close_memory(blocks[i]);
    }
    own_lock(&engine);
    own_retire_finished_(&engine);
    own_unlock(&engine);
    for (int i = 0; i < DOMAINS; i++) {
        close_stream(legacy[i]);
        if (!own_domain_close(&engine, &domains[i])) {
            fail("the domain still has streams");
        }
    }
    own_count(&engine, &books);
    if (books.domains || books.streams || books.views) {
        fail("the books are not empty");
    }
    free(engine.slots);
}

int main(int count, char **arguments) {
    uint64_t seed = count > 1 ? strtoull(arguments[1], NULL, 10) : 1;
    int number = count > 3 ? atoi(arguments[3]) : MOST_THREADS;
    rounds = count > 2 ? strtoull(arguments[2], NULL, 10) : 1000;
#ifdef CUDADRV_RECORDED_H
    recorded_begin_log(1000 + 50 * rounds * (uint64_t)number);
#endif
    begin(seed);
#ifdef CUDADRV_RECORDED_H
    scheduled_begin(seed, count > 5 ? number : 0);
#endif
    for (int i = 0; i < number; i++) {
        thread *self = &threads[i];
        *self = (thread){
            .number = i, .random = seed * 1000 + (uint64_t)i, .site = (uint32_t)(i + 1) * 10000000};
        below(self, 1);
        pthread_create(&self->thread, NULL, work, self);
    }
    for (int i = 0; i < number; i++) {
        pthread_join(threads[i].thread, NULL);
    }
    end();
#ifdef CUDADRV_RECORDED_H
    recorded_write(arguments[4]);
#endif
    printf("%llu accepted, %llu refused\n", (unsigned long long)accepted,
           (unsigned long long)refused);
    return 0;
}
