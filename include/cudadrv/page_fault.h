/* The signal handler of page guards: says which access of the host was too early, and lets the
 * process end as it would end by any other error of memory.
 *
 * An exception of Python cannot be raised here: the access is in the middle of C code, which may
 * hold locks and half-changed data. Handlers that were set before, such as that of faulthandler,
 * run afterwards. The handler allocates nothing, and writes with write(): the access may be inside
 * malloc() or printf().
 *
 * Only cudadrv._guard includes this file. */

#ifndef CUDADRV_PAGE_FAULT_H
#define CUDADRV_PAGE_FAULT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* for dladdr() */
#endif
#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <stdarg.h>
#include <ucontext.h>

#include "pages.h"

enum { PAGE_STACK = 1 << 16, PAGE_TEXT = 4096, PAGE_TRIES = 3 };

static struct sigaction page_former; /* what the process did with SIGSEGV before */
static int page_output = STDERR_FILENO;
/* Writes the user's line that the thread runs. Returns 0 if it runs no Python code. */
static int (*page_line)(char *text, int size);
static __thread int page_passes_on;
static uintptr_t page_driver_start, page_driver_end; /* where the driver's library is loaded */

/* ---- the access ---- */

typedef struct page_access {
    uintptr_t address;
    int known, writes; /* `writes` is valid if `known` */
    const void *instruction;
} page_access;

/* A signal that was raised again, by a handler that ran before, has no address. The system keeps
 * that of the thread's last error of memory. */
static page_access page_access_of(const siginfo_t *info, const void *context) {
    page_access access = {(uintptr_t)info->si_addr, 0, 0, NULL};
#if defined(__x86_64__)
    const greg_t *registers = ((const ucontext_t *)context)->uc_mcontext.gregs;
    access.known = 1;
    access.writes = (registers[REG_ERR] & 2) != 0;
    access.instruction = (const void *)registers[REG_RIP];
    if (info->si_code <= 0) {
        access.address = (uintptr_t)registers[REG_CR2];
        access.instruction = NULL;
    }
#elif defined(__aarch64__)
    const mcontext_t *machine = &((const ucontext_t *)context)->uc_mcontext;
    access.instruction = (const void *)machine->pc;
    if (info->si_code <= 0) {
        access.address = (uintptr_t)machine->fault_address;
        access.instruction = NULL;
    }
#else
    (void)context;
#endif
    return access;
}

/* ---- the driver's own accesses ---- */

static int page_note_library(struct dl_phdr_info *library, size_t size, void *function) {
    (void)size;
    uintptr_t start = UINTPTR_MAX, end = 0;
    for (int i = 0; i < library->dlpi_phnum; ++i) {
        const ElfW(Phdr) *part = &library->dlpi_phdr[i];
        const uintptr_t from = library->dlpi_addr + part->p_vaddr, to = from + part->p_memsz;
        if (part->p_type == PT_LOAD) {
            start = from < start ? from : start;
            end = to > end ? to : end;
        }
    }
    if ((uintptr_t)function < start || (uintptr_t)function >= end) {
        return 0;
    }
    page_driver_start = start;
    page_driver_end = end;
    return 1;
}

/* Notes where the library is that has the driver's functions. */
static void page_note_driver(void) {
    dl_iterate_phdr(page_note_library, (void *)cudadrv_the_table.call_cuMemcpyDtoHAsync);
}

/* A driver may copy or fill page-locked memory with the processor, inside the call that queues the
 * operation. That access is the operation itself, so it is not too early. */
static int page_is_of_driver(const page_access *access) {
    const uintptr_t instruction = (uintptr_t)access->instruction;
    return page_driver_start <= instruction && instruction < page_driver_end;
}

/* ---- what is written ---- */

typedef struct page_text {
    int length;
    char text[PAGE_TEXT];
} page_text;

__attribute__((format(printf, 2, 3))) static void page_say(page_text *to, const char *format, ...) {
    const int room = PAGE_TEXT - to->length;
    va_list values;
    va_start(values, format);
    const int length = vsnprintf(to->text + to->length, (size_t)room, format, values);
    va_end(values);
    to->length += length < 0 ? 0 : length < room ? length : room - 1;
}

static void page_say_code(page_text *to, const void *instruction) {
    Dl_info info = {0};
    if (!instruction || !dladdr(instruction, &info) || !info.dli_fname) {
        return;
    }
    const char *start = info.dli_sname ? info.dli_saddr : info.dli_fbase;
    page_say(to, ", in %s+0x%tx%s%s", info.dli_sname ? info.dli_sname : info.dli_fname,
             (const char *)instruction - start, info.dli_sname ? " of " : "",
             info.dli_sname ? info.dli_fname : "");
}

static const char *page_user_text(const page_user *user, const own_epoch *epoch) {
    while (user &&
           (user->seq != epoch->seq || user->slot != epoch->slot || user->mode != epoch->mode)) {
        user = user->next;
    }
    return user ? user->text : NULL;
}

/* Returns what the message says about the operation that forbids the access. */
static const char *page_reason(const page_piece *piece, uint64_t at, int writes) {
    own_epoch epoch;
    own_engine *engine = &cudadrv_the_engine;
    const char *text = NULL;
    if (piece->managed) {
        if (own_excludes_host(engine, piece->state, &epoch)) {
            text = page_user_text(page_excluders, &epoch);
        }
    } else if (at < piece->state->nbytes && own_forbids(engine, piece->state, at, writes, &epoch)) {
        text = page_user_text(piece->users, &epoch);
    }
    return text ? text
                : "  while an operation uses it that is not known to be complete.\n"
                  "  Wait for that operation first.";
}

static void page_describe(page_text *to, const page_piece *piece, const page_access *access) {
    char line[512] = "";
    const uint64_t at = access->address - piece->address;
    const int writes = access->known
                           ? access->writes
                           : piece->rights[(access->address - piece->first) / page_size()] != 0;
    page_say(to, "cudadrv: the host %s %s%s, at its byte %" PRIu64 ",\n  ",
             writes          ? "writes"
             : access->known ? "reads"
                             : "uses",
             piece->name, piece->dropped ? " and dropped" : "", at);
    if (page_line && page_line(line, sizeof line)) {
        page_say(to, "at %s", line);
    } else {
        page_say(to, "in a thread without Python code");
    }
    page_say_code(to, access->instruction);
    page_say(to, "\n%s\ncudadrv: a page guard ends the process here: docs/guard.md\n",
             page_reason(piece, at, writes));
}

static void page_write(const page_text *text) {
    for (int done = 0; done < text->length;) {
        const ssize_t written = write(page_output, text->text + done, text->length - done);
        if (written < 0 && errno != EINTR) {
            return;
        }
        done += written > 0 ? (int)written : 0;
    }
}

/* ---- the handler ---- */

enum page_verdict { PAGE_OTHER, PAGE_RETRY, PAGE_EARLY };

/* Returns whether the thread may try the same access again. Not for ever: somebody else may have
 * changed the protection. */
static int page_may_retry(uintptr_t address) {
    static __thread uintptr_t last;
    static __thread int tries;
    tries = last == address ? tries + 1 : 1;
    last = address;
    return tries <= PAGE_TRIES;
}

/* Says whether a guard has refused the access. If the page has become free meanwhile, or an earlier
 * mprotect() has failed, the access can be tried again. */
static int page_judge(const page_access *access, int again, page_text *text) {
    pthread_mutex_lock(&page_lock);
    page_piece *piece = page_at(access->address);
    int verdict = PAGE_OTHER;
    own_epoch last;
    if (piece && piece->managed) {
        if (piece->state && own_excludes_host(&cudadrv_the_engine, piece->state, &last)) {
            page_describe(text, piece, access);
            verdict = PAGE_EARLY;
        }
    } else if (piece) {
        const uint64_t page = (access->address - piece->first) / page_size();
        const uint8_t right = piece->rights[page];
        const uint8_t wanted =
            access->known ? (access->writes ? OWN_MAY_ALL : OWN_MAY_READ) : right + 1;
        if (right < OWN_MAY_ALL && right < wanted && piece->state) {
            if (page_is_of_driver(access)) {
                page_open_one(piece, page);
                verdict = PAGE_RETRY;
            } else {
                page_describe(text, piece, access);
                verdict = PAGE_EARLY;
            }
        } else if (!again && page_may_retry(access->address) &&
                   page_protect(piece->first + page * page_size(), page_size(), right) == 0) {
            verdict = PAGE_RETRY;
        }
    }
    pthread_mutex_unlock(&page_lock);
    return verdict;
}

/* Lets the process handle the signal as it would without guards. */
static void page_pass_on(int signal, siginfo_t *info, void *context) {
    const int again = page_passes_on; /* the former handler has raised the signal again */
    page_passes_on = 1;
    if (!again && (page_former.sa_flags & SA_SIGINFO)) {
        page_former.sa_sigaction(signal, info, context);
    } else if (!again && page_former.sa_handler != SIG_DFL && page_former.sa_handler != SIG_IGN) {
        page_former.sa_handler(signal);
    } else {
        const struct sigaction usual = {.sa_handler = SIG_DFL};
        sigaction(signal, &usual, NULL);
        if (info->si_code <= 0) { /* sent by a process, so it does not come again by itself */
            raise(signal);
        }
        return;
    }
    page_passes_on = 0;
}

static void page_handle(int signal, siginfo_t *info, void *context) {
    const int error = errno;
    if (!page_passes_on) {
        const page_access access = page_access_of(info, context);
        page_text text = {.length = 0};
        const int verdict = page_judge(&access, info->si_code <= 0, &text);
        if (verdict == PAGE_RETRY) {
            errno = error;
            return;
        }
        page_write(&text);
    }
    page_pass_on(signal, info, context);
    errno = error;
}

/* Takes the signal, also if the program has set a handler since the last call. */
static void page_take_signal(void) {
    struct sigaction now;
    sigaction(SIGSEGV, NULL, &now);
    if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == page_handle) {
        return;
    }
    page_former = now;
    struct sigaction ours = {.sa_sigaction = page_handle,
                             .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};
    sigemptyset(&ours.sa_mask);
    sigaction(SIGSEGV, &ours, NULL);
}

/* Gives the signal back, unless the program has set another handler since, which may call ours. */
static void page_give_signal(void) {
    struct sigaction now;
    sigaction(SIGSEGV, NULL, &now);
    if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == page_handle) {
        sigaction(SIGSEGV, &page_former, NULL);
    }
}

/* Gives the calling thread a stack for handlers, if it has none. It is never freed: a thread that
 * ends may still use it. */
static void page_prepare_thread(void) {
    static __thread int prepared;
    stack_t now;
    if (prepared || sigaltstack(NULL, &now) || !(now.ss_flags & SS_DISABLE)) {
        return;
    }
    prepared = 1;
    const stack_t ours = {
        .ss_sp = mmap(NULL, PAGE_STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
        .ss_size = PAGE_STACK};
    if (ours.ss_sp != MAP_FAILED) {
        sigaltstack(&ours, NULL);
    }
}

#endif
