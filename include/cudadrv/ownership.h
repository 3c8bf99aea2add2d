/* The ownership engine. It knows no CUDA and no Python: streams are slots with numbered operations,
 * memory is a number of bytes, and the callers say what the driver and the program did.
 *
 *   clock.h   what is known to be finished
 *   ranges.h  who uses which bytes
 *   engine.h  streams, their slots, and the host's clock
 *   order.h   what one learns from another: events, waits, synchronizations
 *   access.h  which bytes are asked for, and what can be in the way
 *   borrow.h  whether an operation may begin
 *   host.h    whether the host may look
 *   reuse.h   whether memory may have another owner
 *
 * Functions whose names end in _ expect the engine's lock to be held. */

#ifndef CUDADRV_OWNERSHIP_H
#define CUDADRV_OWNERSHIP_H

#include "host.h"
#include "reuse.h"

#endif
