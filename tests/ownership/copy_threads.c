/* Tests the threads of large copies (parallel_copy.h) with a sanitizer. They are used in C as the
 * library uses them.
 *
 * The owner of a copy plays the driver: it moves blocks to and from a "device", which is an
 * array, late and without any lock. Some copies are ended before they are complete. Their arrays
 * are overwritten at once, which is a data race if a thread still uses them.
 *
 *     copy_threads SEED ROUNDS */

#include "cudadrv/parallel_copy.h"

#include <sched.h>
#include <stdio.h>

enum { OWNERS = 5, MOST_BYTES = 40000, MOST_CHUNK = 5000 };

static uint64_t seed, rounds;
static uint64_t complete, ended; /* atomic */

static uint32_t below(uint64_t *state, uint32_t limit) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33) % limit;
}

static void fail(const char *what) {
    fprintf(stderr, "copy_threads: %s\n", what);
    abort();
}

typedef struct owner {
    uint64_t random;
    par_copy copy;
    char array[MOST_BYTES + 64];
    char device[MOST_BYTES];
    char blocks[PAR_RING][MOST_CHUNK];
    size_t issued, finished;
} owner;

/* Copies the next chunk between its block and the device. */
static void move_chunk(owner *self) {
    par_copy *copy = &self->copy;
    size_t end = par_chunk_end(copy, self->issued);
    char *block = copy->blocks[par_block_of(copy, self->issued)];
    char *device = self->device + self->issued;
    memcpy(copy->inward ? device : block, copy->inward ? block : device, end - self->issued);
    self->issued = end;
}

static void open_more(owner *self) {
    par_copy *copy = &self->copy;
    size_t upto = self->finished + (copy->inward ? copy->ring * copy->chunk : 0);
    par_open(copy, upto < copy->nbytes ? upto : copy->nbytes);
}

/* Does one step, as cudadrv._staging does. Returns 0 when everything is copied. */
static int advance(owner *self) {
    par_copy *copy = &self->copy;
    int moved = 0;
    size_t copied = par_copied(copy);
    if (self->issued < copy->nbytes &&
        (copy->inward ? copied > self->issued : self->issued < copied + copy->ring * copy->chunk)) {
        move_chunk(self);
        moved = 1;
    }
    if (self->finished < self->issued && below(&self->random, 3)) {
        self->finished = par_chunk_end(copy, self->finished);
        open_more(self);
        moved = 1;
    }
    if (self->finished == copy->nbytes && (copy->inward || par_copied(copy) == copy->nbytes)) {
        return 0;
    }
    if (!moved && !(below(&self->random, 2) && par_help(copy))) {
        sched_yield();
    }
    return 1;
}

static void one_copy(owner *self) {
    par_copy *copy = &self->copy;
    uint64_t *random = &self->random;
    copy->ordinary = self->array + below(random, 64);
    copy->nbytes = 1 + below(random, MOST_BYTES);
    copy->chunk = 1 + below(random, MOST_CHUNK);
    copy->piece = (size_t)64 << below(random, 7);
    copy->ring = 1 + below(random, PAR_RING);
    copy->threads = 1 + below(random, 4);
    copy->inward = below(random, 2);
    copy->file = -1;
    for (uint32_t i = 0; i < copy->ring; i++) {
        copy->blocks[i] = self->blocks[i];
    }
    uint32_t give_up = below(random, 4) ? UINT32_MAX : below(random, 20);
    char *source = copy->inward ? copy->ordinary : self->device;
    for (size_t i = 0; i < copy->nbytes; i++) {
        source[i] = (char)below(random, 256);
    }
    self->issued = self->finished = 0;
    par_begin(copy);
    open_more(self);
    while (give_up-- && advance(self)) {
    }
    int all = self->finished == copy->nbytes && par_copied(copy) == copy->nbytes;
    par_end(copy);
    if (all && memcmp(self->device, copy->ordinary, copy->nbytes) != 0) {
        fail("other bytes have arrived");
    }
    memset(copy->ordinary, 0, copy->nbytes);
    for (uint32_t i = 0; i < copy->ring; i++) {
        memset(self->blocks[i], 0, MOST_CHUNK);
    }
    __atomic_add_fetch(all ? &complete : &ended, 1, __ATOMIC_RELAXED);
}

static void *own(void *argument) {
    owner *self = argument;
    for (uint64_t i = 0; i < rounds; i++) {
        one_copy(self);
    }
    return NULL;
}

int main(int count, char **arguments) {
    static owner owners[OWNERS];
    pthread_t threads[OWNERS];
    if (count != 3) {
        fail("SEED ROUNDS");
    }
    seed = strtoull(arguments[1], NULL, 10);
    rounds = strtoull(arguments[2], NULL, 10) / 20;
    for (int i = 0; i < OWNERS; i++) {
        owners[i].random = seed * OWNERS + (uint64_t)i;
        if (pthread_create(&threads[i], NULL, own, &owners[i]) != 0) {
            fail("no thread");
        }
    }
    for (int i = 0; i < OWNERS; i++) {
        pthread_join(threads[i], NULL);
    }
    if (par_the_pool.first || par_the_pool.busy || !complete || !ended) {
        fail("the books are not empty");
    }
    printf("%llu complete, %llu ended\n", (unsigned long long)complete, (unsigned long long)ended);
    return 0;
}
