/* Page guards protect pages of page-locked memory from the host while operations use them.
 * Devices do not use the protection of the processor's page tables.
 *
 * The engine decides what the host may do with a page (rights.h). Here these rights become the
 * protection of the system's pages, and change with it. `page_lock` is taken before the engine's
 * lock, and is held while mprotect() runs, so that rights and protection are the same when it is
 * released. No code that holds it touches a protected page, takes the GIL or calls the driver.
 *
 * Only cudadrv._guard includes this file. */

#ifndef CUDADRV_PAGES_H
#define CUDADRV_PAGES_H

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver.h"
#include "lift.h"
#include "process.h"

/* What an operation that may be unfinished is called in messages. */
typedef struct page_user {
    struct page_user *next;
    uint64_t seq;
    uint32_t slot;
    uint8_t mode;
    char text[];
} page_user;

/* One allocation whose pages can be protected. */
typedef struct page_piece {
    struct page_piece *next;
    uintptr_t address;
    uintptr_t first; /* address of the first whole page */
    uint64_t count;  /* of whole pages */
    own_memory *state;
    const own_domain *domain;
    uint8_t *rights; /* of each page now, as the system has it: an own_right */
    uint8_t *wanted; /* room for the next rights */
    uint8_t lowered; /* a right is less than OWN_MAY_ALL */
    uint8_t failed;  /* mprotect() has failed, so the memory is not protected any more */
    uint8_t dropped; /* the buffer's object is gone, and its work may be unfinished */
    /* Managed memory where work excludes the host: the driver itself protects it. */
    uint8_t managed;
    page_user *users;
    char name[];
} page_piece;

static pthread_mutex_t page_lock = PTHREAD_MUTEX_INITIALIZER;
static page_piece *page_pieces;
static page_lift *page_lifts;
/* For each stream whose work excludes the host from managed memory: its last operation. */
static page_user *page_excluders;
static int page_error; /* errno of an mprotect() of which the program was not warned yet */

static uint64_t page_size(void) {
    static uint64_t size;
    if (!size) {
        size = (uint64_t)sysconf(_SC_PAGESIZE);
    }
    return size;
}

static int page_protect(uintptr_t start, uint64_t bytes, uint8_t right) {
    static const int protection[] = {PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE};
    return mprotect((void *)start, bytes, protection[right]);
}

/* Gives the host all rights to a piece. */
static void page_open(page_piece *piece) {
    if (piece->lowered) {
        page_protect(piece->first, piece->count * page_size(), OWN_MAY_ALL);
    }
    memset(piece->rights, OWN_MAY_ALL, piece->count);
    piece->lowered = 0;
}

/* Changes the protection where `wanted` differs from `rights`. */
static void page_apply(page_piece *piece) {
    const uint64_t size = page_size();
    for (uint64_t i = 0; i < piece->count;) {
        const uint8_t right = piece->wanted[i];
        uint64_t end = i;
        while (end < piece->count && piece->wanted[end] == right && piece->rights[end] != right) {
            end++;
        }
        if (end == i) {
            i++;
            continue;
        }
        piece->lowered = 1;
        if (page_protect(piece->first + i * size, (end - i) * size, right)) {
            page_error = errno;
            piece->failed = 1;
            page_open(piece);
            return;
        }
        memset(piece->rights + i, right, end - i);
        i = end;
    }
    piece->lowered = memchr(piece->rights, OWN_MAY_NOTHING, piece->count) ||
                     memchr(piece->rights, OWN_MAY_READ, piece->count);
}

/* Gives the host all rights to one page until page_renew(). */
static void page_open_one(page_piece *piece, uint64_t page) {
    memcpy(piece->wanted, piece->rights, piece->count);
    piece->wanted[page] = OWN_MAY_ALL;
    page_apply(piece);
    piece->lowered = !piece->failed; /* so that page_learned() renews it */
}

/* Drops the names of operations that cannot be the reason for a right any more, or `all` names. */
static void page_drop_users(page_piece *piece, int all) {
    page_user **link = &piece->users;
    while (*link) {
        page_user *user = *link;
        if (all || !own_is_in_use_by(&cudadrv_the_engine, piece->state, user->slot, user->seq,
                                     user->mode)) {
            *link = user->next;
            free(user);
        } else {
            link = &user->next;
        }
    }
}

/* Gives a piece the rights that it has now. */
static void page_renew(page_piece *piece) {
    if (!piece->state || piece->failed || piece->managed) {
        page_open(piece);
        return;
    }
    const own_pages pages = {piece->first - piece->address, page_size(), piece->count,
                             piece->wanted};
    own_rights(&cudadrv_the_engine, piece->state, &pages);
    const uintptr_t end = piece->first + piece->count * page_size();
    for (const page_lift *lift = page_lifts; lift; lift = lift->next) {
        if (lift->start < end && piece->first < lift->stop) {
            const uintptr_t start = lift->start > piece->address ? lift->start : piece->address;
            own_raise_(&pages, start - piece->address, lift->stop - piece->address, lift->right);
        }
    }
    page_apply(piece);
    page_drop_users(piece, 0);
}

static page_piece **page_link(uintptr_t address) {
    page_piece **link = &page_pieces;
    while (*link && (*link)->address != address) {
        link = &(*link)->next;
    }
    return link;
}

static page_piece *page_at(uintptr_t address) {
    page_piece *piece = page_pieces;
    while (piece && address - piece->first >= piece->count * page_size()) {
        piece = piece->next;
    }
    return piece;
}

static void page_remove(page_piece **link) {
    page_piece *piece = *link;
    *link = piece->next;
    page_open(piece);
    page_drop_users(piece, 1);
    free(piece->rights);
    free(piece);
}

/* Begins to protect memory, or lets the memory of a piece have another state and name. `bytes`: how
 * many bytes from `address` on belong to this memory alone. Returns 0 if malloc fails. */
static int page_add(uintptr_t address, uint64_t bytes, own_memory *state, const own_domain *domain,
                    const char *name, int managed) {
    const uint64_t size = page_size();
    const uintptr_t first = (address + size - 1) / size * size,
                    end = (address + bytes) / size * size;
    const size_t length = strlen(name) + 1;
    if (first >= end) {
        return 1;
    }
    page_piece *piece = calloc(1, sizeof *piece + length);
    uint8_t *rights = malloc(2 * ((end - first) / size));
    if (!piece || !rights) {
        free(piece);
        free(rights);
        return 0;
    }
    piece->address = address;
    piece->first = first;
    piece->count = (end - first) / size;
    piece->state = state;
    piece->domain = domain;
    piece->managed = (uint8_t)managed;
    piece->rights = rights;
    piece->wanted = rights + piece->count;
    memset(rights, OWN_MAY_ALL, piece->count);
    memcpy(piece->name, name, length);
    pthread_mutex_lock(&page_lock);
    page_piece **link = page_link(address);
    if (*link) {
        page_remove(link);
    }
    piece->next = page_pieces;
    page_pieces = piece;
    pthread_mutex_unlock(&page_lock);
    return 1;
}

/* Ends the protection of memory. Call this before the memory is freed, or gets another owner. */
static void page_forget(uintptr_t address) {
    pthread_mutex_lock(&page_lock);
    page_piece **link = page_link(address);
    if (*link) {
        page_remove(link);
    }
    pthread_mutex_unlock(&page_lock);
}

/* Notes that the Python object of the buffer is gone. `state` lives as long as the memory. */
static void page_note_dropped(uintptr_t address) {
    pthread_mutex_lock(&page_lock);
    page_piece *piece = *page_link(address);
    if (piece) {
        piece->dropped = 1;
    }
    pthread_mutex_unlock(&page_lock);
}

static void page_forget_all(void) {
    pthread_mutex_lock(&page_lock);
    while (page_pieces) {
        page_remove(&page_pieces);
    }
    while (page_excluders) {
        page_user *user = page_excluders;
        page_excluders = user->next;
        free(user);
    }
    pthread_mutex_unlock(&page_lock);
}

static page_piece *page_of_state(const own_memory *state) {
    page_piece *piece = page_pieces;
    while (piece && piece->state != state) {
        piece = piece->next;
    }
    return piece;
}

/* Returns whether the pages of a memory are protected while operations use it. */
static int page_guards(const own_memory *state) {
    pthread_mutex_lock(&page_lock);
    const page_piece *piece = page_of_state(state);
    const int guards = piece && !piece->failed && !piece->managed;
    pthread_mutex_unlock(&page_lock);
    return guards;
}

/* Notes what an operation is called that uses a memory. Without memory for that, messages do not
 * name it. */
static void page_name_user(const own_memory *state, uint32_t slot, uint64_t seq, uint8_t mode,
                           const char *text) {
    const size_t length = strlen(text) + 1;
    page_user *user = malloc(sizeof *user + length);
    pthread_mutex_lock(&page_lock);
    page_piece *piece = page_of_state(state);
    if (user && piece) {
        *user = (page_user){piece->users, seq, slot, mode};
        memcpy(user->text, text, length);
        piece->users = user;
        user = NULL;
    }
    pthread_mutex_unlock(&page_lock);
    free(user);
}

/* As page_name_user, for the last operation of a stream whose work excludes the host from managed
 * memory. */
static void page_name_excluder(uint32_t slot, uint64_t seq, const char *text) {
    const size_t length = strlen(text) + 1;
    page_user *user = malloc(sizeof *user + length);
    if (!user) {
        return;
    }
    *user = (page_user){NULL, seq, slot, OWN_WRITE};
    memcpy(user->text, text, length);
    pthread_mutex_lock(&page_lock);
    page_user **link = &page_excluders;
    while (*link && (*link)->slot != slot) {
        link = &(*link)->next;
    }
    page_user *former = *link;
    user->next = former ? former->next : NULL;
    *link = user;
    pthread_mutex_unlock(&page_lock);
    free(former);
}

/* Call this when operations, views or the end of views may have changed what the host may do. */
static void page_change(const own_memory *state) {
    pthread_mutex_lock(&page_lock);
    page_piece *piece = page_of_state(state);
    if (piece) {
        page_renew(piece);
    }
    pthread_mutex_unlock(&page_lock);
}

/* Called by the engine when the host has learned that operations are complete. The states of a lost
 * context may end without a call of page_forget, so its pieces are removed. */
static void page_learned(void) {
    pthread_mutex_lock(&page_lock);
    for (page_piece **link = &page_pieces; *link;) {
        if ((*link)->domain->lost) {
            page_remove(link);
            continue;
        }
        if ((*link)->lowered) {
            page_renew(*link);
        }
        link = &(*link)->next;
    }
    pthread_mutex_unlock(&page_lock);
}

static void page_renew_at(uintptr_t start, uintptr_t stop) {
    for (page_piece *piece = page_pieces; piece; piece = piece->next) {
        if (piece->first < stop && start < piece->first + piece->count * page_size()) {
            page_renew(piece);
        }
    }
}

/* Lets the host use bytes until page_end_lift(). */
static void page_begin_lift(page_lift *lift) {
    pthread_mutex_lock(&page_lock);
    lift->next = page_lifts;
    page_lifts = lift;
    page_renew_at(lift->start, lift->stop);
    pthread_mutex_unlock(&page_lock);
}

/* Does nothing for a lift that has not begun: the guard began later. */
static void page_end_lift(const page_lift *lift) {
    pthread_mutex_lock(&page_lock);
    page_lift **link = &page_lifts;
    while (*link && *link != lift) {
        link = &(*link)->next;
    }
    if (*link) {
        *link = lift->next;
        page_renew_at(lift->start, lift->stop);
    }
    pthread_mutex_unlock(&page_lock);
}

/* Returns whether the process may read and write all of these bytes, so that this is what a guard
 * can give back to it. */
static int page_is_ordinary(uintptr_t start, uint64_t bytes) {
    FILE *maps = fopen("/proc/self/maps", "re");
    uintptr_t from, to, at = start;
    char rights[8];
    while (maps && at < start + bytes &&
           fscanf(maps, "%" SCNxPTR "-%" SCNxPTR " %7s%*[^\n]", &from, &to, rights) == 3) {
        if (from <= at && at < to) {
            if (strncmp(rights, "rw", 2) != 0) {
                break;
            }
            at = to;
        }
    }
    if (maps) {
        fclose(maps);
    }
    return at >= start + bytes;
}

/* ---- forked children ---- */

static void page_before_fork(void) { pthread_mutex_lock(&page_lock); }
static void page_after_fork(void) { pthread_mutex_unlock(&page_lock); }

/* The device works for the parent only, so nothing is protected in the child. */
static void page_enter_child(void) {
    cudadrv_the_table.slowly &= ~CUDADRV_GUARDS;
    own_listen(&cudadrv_the_engine, cudadrv_the_engine.hears, NULL);
    while (page_pieces) {
        page_remove(&page_pieces);
    }
    page_lifts = NULL;
    pthread_mutex_unlock(&page_lock);
}

static void page_watch_forks(void) {
    static int watches;
    if (!watches) {
        watches = 1;
        pthread_atfork(page_before_fork, page_after_fork, page_enter_child);
    }
}

#endif
