/* An mprotect() that fails from the call on whose number the environment variable FAIL names. Calls
 * that give all rights do not count. They succeed, as they do in a process with too many mappings if
 * they join mappings; with PAGE_FAILS, they fail for a single page, which would split a mapping.
 * LD_PRELOAD loads it. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

int mprotect(void *address, size_t bytes, int rights) {
    static int (*real)(void *, size_t, int);
    static int calls, fails = -1;
    if (!real) {
        *(void **)&real = dlsym(RTLD_NEXT, "mprotect");
        fails = atoi(getenv("FAIL"));
    }
    if (rights != PROT_NONE && rights != PROT_READ) {
        if (bytes == 4096 && getenv("PAGE_FAILS")) {
            errno = ENOMEM;
            return -1;
        }
        return real(address, bytes, rights);
    }
    if (++calls >= fails) {
        errno = ENOMEM;
        return -1;
    }
    return real(address, bytes, rights);
}
