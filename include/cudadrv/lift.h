/* Bytes that the host may use although operations use them, says the program (see pages.h). */

#ifndef CUDADRV_LIFT_H
#define CUDADRV_LIFT_H

#include <stdint.h>

/* Bytes that a function uses which a stream has called: the engine counts the call as unfinished
 * until the program has waited for it. The caller owns this struct. */
typedef struct page_lift {
    struct page_lift *next;
    uintptr_t start, stop;
    uint8_t right; /* an own_right */
} page_lift;

#endif
