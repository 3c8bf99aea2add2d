/* The ownership engine. It uses neither CUDA nor Python: streams are slots with numbered
 * operations, memory is a number of bytes, and the callers report what the driver and the
 * program did.
 *
 *   mutex.h     the locks
 *   clock.h     vector clocks: what is known to be complete
 *   ranges.h    which operations use which bytes
 *   engine.h    streams, their slots, and the host's clock
 *   order.h     events, waits, synchronizations: how clocks learn
 *   access.h    requested bytes, host views and loans
 *   contents.h  contents that were discarded, and memory that is attached to a stream or the host
 *   usual.h     the fast path
 *   runs.h      operations that are issued again and again
 *   borrow.h    checks of operations
 *   host.h      checks of host access
 *   turns.h     whether operations have used bytes since the host did
 *   reuse.h     whether memory can be given to a new owner
 *   graph.h     what a graph uses, and memory that it holds
 *
 * Functions whose names end in _ expect the caller to hold the engine's lock. */

#ifndef CUDADRV_OWNERSHIP_H
#define CUDADRV_OWNERSHIP_H

#include "graph.h"
#include "host.h"
#include "reuse.h"
#include "turns.h"

#endif
