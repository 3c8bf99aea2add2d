/* Functions of the program that streams call, and the thread that runs them.
 *
 * Each call in flight has a slot. The driver calls hf_reached() in a thread of its own when the
 * stream comes to the call. That function only puts the slot into a queue, so no thread of the
 * driver ever runs Python. Our thread takes the slot from the queue, runs the function, and writes
 * a number to the slot's word in page-locked memory, for which the stream waits. The numbers of a
 * word only grow: a wait that was satisfied stays satisfied, so a slot is used again at once.
 *
 * A driver that cannot wait for such a word is kept in hf_reached() until the function has run
 * (`blocks`).
 *
 * The calls of a graph have a slot for each node of each executable graph (hf_node), because the
 * driver runs one launch of an executable at a time. In these calls the driver's thread always
 * waits: all launches of an executable have the same nodes, so no number could be different for
 * each launch.
 *
 * Between two functions our thread has no state of a Python thread. So the program has one Python
 * thread while no function runs, and its operations take the fast path (only_thread.h).
 *
 * Only cudadrv._host_function includes this file. */

#ifndef CUDADRV_HOST_FUNCTIONS_H
#define CUDADRV_HOST_FUNCTIONS_H

#include "driver.h"
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

typedef struct hf_slot {
    struct hf_slot *next;  /* in the list of free slots, or in the queue */
    struct hf_chunk *home; /* the chunk that has this slot; NULL: it is in an hf_node */
    uint64_t *word;        /* the stream waits until it is `number`; in page-locked memory */
    uint64_t number;
    /* In a chunk: a reference to the Call, until the function runs. In an hf_node: the NodeCall,
     * which lives as long as the slot is in use. The GIL guards this field. */
    void *call;
    uint8_t in_use;   /* from hf_use() until the word has the number */
    uint8_t armed;    /* the driver has accepted the call */
    uint8_t reached;  /* the stream has come to the call */
    uint8_t blocks;   /* the driver's thread waits */
    uint8_t given_up; /* the driver will come to a call that failed, and nothing is to run */
} hf_slot;

/* The slots of one block of page-locked memory. */
typedef struct hf_chunk {
    struct hf_chunk *next; /* of all contexts */
    struct hf_chunk *more; /* of the same context */
    hf_slot *free;
    uint32_t count, used;
    hf_slot slots[];
} hf_chunk;

/* The calls by one node of an executable graph. */
typedef struct hf_node {
    hf_slot slot;   /* `number` is the number of the launch */
    uint64_t done;  /* the slot's word: the last launch whose function has returned */
    uint8_t inside; /* a thread of the driver is in hf_node_reached() */
    uint8_t ended;  /* the NodeCall is gone */
} hf_node;

typedef void (*hf_serve_function)(hf_slot *slot);

/* All slots, and the thread. `lock` guards them; nothing that blocks is called with it. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t work; /* our thread waits for a slot in the queue */
    pthread_cond_t news; /* other threads wait for a word, or for our thread to attach */
    hf_chunk *chunks;
    hf_slot *first, **last; /* the queue: slots whose functions can run */
    hf_serve_function serve;
    int started;
    int stays;     /* our thread keeps its state of a Python thread */
    int attaching; /* it is about to make one */
    int attached;
    int ending; /* Python ends: no function runs any more */
} hf = {.lock = PTHREAD_MUTEX_INITIALIZER,
        .work = PTHREAD_COND_INITIALIZER,
        .news = PTHREAD_COND_INITIALIZER};

/* Makes a chunk over page-locked memory of `count` words. Returns NULL if malloc fails. */
static hf_chunk *hf_make_chunk(uint64_t *words, uint32_t count) {
    hf_chunk *chunk = (hf_chunk *)calloc(1, sizeof *chunk + count * sizeof(hf_slot));
    if (!chunk) {
        return NULL;
    }
    chunk->count = count;
    for (uint32_t i = count; i-- > 0;) {
        hf_slot *slot = &chunk->slots[i];
        words[i] = 0;
        slot->home = chunk;
        slot->word = &words[i];
        slot->next = chunk->free;
        chunk->free = slot;
    }
    pthread_mutex_lock(&hf.lock);
    chunk->next = hf.chunks;
    hf.chunks = chunk;
    pthread_mutex_unlock(&hf.lock);
    return chunk;
}

/* Frees a chunk, and returns 1, if no call uses it. Its memory is the caller's. */
static int hf_free_chunk(hf_chunk *chunk) {
    hf_chunk **link = &hf.chunks;
    pthread_mutex_lock(&hf.lock);
    int unused = chunk->used == 0;
    while (unused && *link != chunk) {
        link = &(*link)->next;
    }
    if (unused) {
        *link = chunk->next;
    }
    pthread_mutex_unlock(&hf.lock);
    if (unused) {
        free(chunk);
    }
    return unused;
}

/* Takes a free slot for a call. Returns NULL if the chunk has none. */
static hf_slot *hf_use(hf_chunk *chunk, int blocks) {
    pthread_mutex_lock(&hf.lock);
    hf_slot *slot = chunk->free;
    if (slot) {
        chunk->free = slot->next;
        chunk->used++;
        slot->number++;
        slot->in_use = 1;
        slot->armed = slot->reached = slot->given_up = 0;
        slot->blocks = (uint8_t)blocks;
    }
    pthread_mutex_unlock(&hf.lock);
    return slot;
}

/* Lets the stream go on. The caller has the lock. */
static void hf_write_word(hf_slot *slot) {
    __atomic_store_n(slot->word, slot->number, __ATOMIC_RELEASE);
    slot->in_use = 0;
    if (slot->blocks) {
        pthread_cond_broadcast(&hf.news);
    }
}

static void hf_put_back(hf_slot *slot) {
    hf_write_word(slot);
    slot->next = slot->home->free;
    slot->home->free = slot;
    slot->home->used--;
}

static void hf_enqueue(hf_slot *slot) {
    slot->next = NULL;
    if (!hf.first) {
        hf.last = &hf.first;
    }
    *hf.last = slot;
    hf.last = &slot->next;
    pthread_cond_signal(&hf.work);
}

/* The driver calls this in a thread of its own, when the stream has come to the call. */
static void CUDA_CB hf_reached(void *argument) {
    hf_slot *slot = (hf_slot *)argument;
    pthread_mutex_lock(&hf.lock);
    if (slot->given_up) {
        hf_put_back(slot);
    } else if (slot->in_use && !hf.ending) {
        const uint64_t number = slot->number;
        slot->reached = 1;
        if (slot->armed) {
            hf_enqueue(slot);
        }
        while (slot->blocks && slot->number == number && *slot->word < number) {
            pthread_cond_wait(&hf.news, &hf.lock);
        }
    }
    pthread_mutex_unlock(&hf.lock);
}

/* Lets the function run when the stream comes to the call. Before, all driver calls of the
 * operation have succeeded. */
static void hf_arm(hf_slot *slot) {
    pthread_mutex_lock(&hf.lock);
    slot->armed = 1;
    if (slot->reached && slot->in_use) {
        hf_enqueue(slot);
    }
    pthread_mutex_unlock(&hf.lock);
}

/* Gives a slot back whose operation has failed. If the driver has accepted a part of the operation,
 * the slot is free only when the stream has come to it. */
static void hf_give_up(hf_slot *slot, int queued) {
    pthread_mutex_lock(&hf.lock);
    if (slot->in_use && queued && !slot->reached) {
        slot->given_up = 1;
    } else if (slot->in_use) {
        hf_put_back(slot);
    }
    pthread_mutex_unlock(&hf.lock);
}

/* Lets the stream go on: the function has run. */
static void hf_finish(hf_slot *slot) {
    pthread_mutex_lock(&hf.lock);
    if (slot->in_use && slot->home) {
        hf_put_back(slot);
    } else if (slot->in_use) {
        hf_write_word(slot);
    }
    pthread_mutex_unlock(&hf.lock);
}

/* Makes the slot of a node, whose executable was launched `launches` times before. Returns NULL if
 * malloc fails. */
static hf_node *hf_make_node(void *call, uint64_t launches) {
    hf_node *node = (hf_node *)calloc(1, sizeof *node);
    if (node) {
        node->slot.word = &node->done;
        node->slot.number = node->done = launches;
        node->slot.call = call;
        node->slot.blocks = node->slot.armed = 1;
    }
    return node;
}

/* The driver calls this in a thread of its own, when a launch has come to the node. */
static void CUDA_CB hf_node_reached(void *argument) {
    hf_node *node = (hf_node *)argument;
    int frees = 0;
    pthread_mutex_lock(&hf.lock);
    if (!hf.ending && !node->ended) {
        const uint64_t number = ++node->slot.number;
        node->inside = node->slot.in_use = 1;
        hf_enqueue(&node->slot);
        while (!hf.ending && node->done < number) {
            pthread_cond_wait(&hf.news, &hf.lock);
        }
        node->inside = 0;
        frees = node->ended;
    }
    pthread_mutex_unlock(&hf.lock);
    if (frees) {
        free(node);
    }
}

/* Whether no launch has come to the node without its function having returned. */
static int hf_is_idle(hf_node *node) {
    pthread_mutex_lock(&hf.lock);
    int idle = !node->slot.in_use;
    pthread_mutex_unlock(&hf.lock);
    return idle;
}

/* Ends a node, to which no launch comes any more. After an error that loses the context a thread of
 * the driver may still do so: then the node is not freed (`stays`). */
static void hf_end_node(hf_node *node, int stays) {
    pthread_mutex_lock(&hf.lock);
    int frees = !stays && !node->inside;
    node->ended = 1;
    pthread_mutex_unlock(&hf.lock);
    if (frees) {
        free(node);
    }
}

/* Lets the streams of a lost context go on. Their slots are never used again. */
static void hf_abandon(hf_chunk *chunk) {
    pthread_mutex_lock(&hf.lock);
    chunk->free = NULL;
    for (uint32_t i = 0; i < chunk->count; i++) {
        if (chunk->slots[i].in_use) {
            hf_write_word(&chunk->slots[i]);
        }
    }
    pthread_mutex_unlock(&hf.lock);
}

/* Takes the next slot from the queue. If there is none, waits if `waits`, and else returns NULL.
 * Also returns NULL if our thread has to attach. */
static hf_slot *hf_take(int waits) {
    hf_slot *slot = NULL;
    pthread_mutex_lock(&hf.lock);
    while (waits && (hf.ending || (!hf.first && (!hf.stays || hf.attached)))) {
        pthread_cond_wait(&hf.work, &hf.lock);
    }
    if (hf.first && !hf.ending) {
        slot = hf.first;
        hf.first = slot->next;
    }
    hf.attaching = waits && !hf.attached;
    pthread_mutex_unlock(&hf.lock);
    return slot;
}

/* Says whether our thread has a state of a Python thread now. */
static void hf_attach(int attached) {
    pthread_mutex_lock(&hf.lock);
    hf.attached = attached;
    hf.attaching = 0;
    pthread_cond_broadcast(&hf.news);
    pthread_mutex_unlock(&hf.lock);
}

static void *hf_thread(void *unused) {
    (void)unused;
    while (!cudadrv_table->forked) { /* a function may have forked the process */
        hf.serve(hf_take(1));
    }
    return NULL;
}

/* Starts our thread, unless it runs already. Returns 0 if there is no thread to be had. */
static int hf_start(hf_serve_function serve) {
    pthread_t thread;
    pthread_mutex_lock(&hf.lock);
    if (!hf.started) {
        hf.serve = serve;
        hf.started = pthread_create(&thread, NULL, hf_thread, NULL) == 0;
        if (hf.started) {
            pthread_detach(thread);
        }
    }
    int started = hf.started;
    pthread_mutex_unlock(&hf.lock);
    return started;
}

/* Lets our thread keep its state of a Python thread from now on, so that other threads release the
 * GIL in all calls of the driver. The caller does not have the GIL. */
static void hf_stay_attached(void) {
    pthread_mutex_lock(&hf.lock);
    hf.stays = 1;
    pthread_cond_signal(&hf.work);
    while (!hf.attached && !hf.ending) {
        pthread_cond_wait(&hf.news, &hf.lock);
    }
    pthread_mutex_unlock(&hf.lock);
}

/* Lets all streams go on, because Python ends: no function runs any more. Returns when our thread
 * is not about to make a state of a Python thread. The caller does not have the GIL. */
static void hf_end(void) {
    pthread_mutex_lock(&hf.lock);
    hf.ending = 1;
    for (hf_chunk *chunk = hf.chunks; chunk; chunk = chunk->next) {
        for (uint32_t i = 0; i < chunk->count; i++) {
            if (chunk->slots[i].in_use) {
                hf_write_word(&chunk->slots[i]);
            }
        }
    }
    pthread_cond_broadcast(&hf.news); /* for the threads in hf_node_reached() */
    while (hf.attaching) {
        pthread_cond_wait(&hf.news, &hf.lock);
    }
    pthread_mutex_unlock(&hf.lock);
}

#endif
