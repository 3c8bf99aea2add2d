/* A driver that copies with the processor, during the call, as drivers of GPUs do with few bytes. */

#include <stddef.h>
#include <stdint.h>

static int copy_to_host(volatile char *target, uintptr_t source, size_t nbytes) {
    (void)source;
    target[0] = target[nbytes - 1] = 7;
    return 0;
}

static int copy_from_host(uintptr_t target, const volatile char *source, size_t nbytes) {
    (void)target;
    return (source[0] | source[nbytes - 1]) == 0x100;
}

#define COPY_TO_HOST copy_to_host
#define COPY_FROM_HOST copy_from_host
#include "null_driver.c"
