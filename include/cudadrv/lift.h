/* Bytes that page guards leave to the host although an operation uses them (see pages.h). */

#ifndef CUDADRV_LIFT_H
#define CUDADRV_LIFT_H

#include <stdint.h>

/* The bytes that a function uses while a stream calls it. The engine counts the call as unfinished
 * until the program has waited for it. The caller owns this struct. */
typedef struct page_lift {
    struct page_lift *next;
    uintptr_t start, stop;
    uint8_t right; /* an own_right */
} page_lift;

#endif
