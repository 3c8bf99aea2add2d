/* The ownership engine. It uses neither CUDA nor Python: streams are slots with numbered
 * operations, memory is a number of bytes, and the callers report what the driver and the
 * program did. docs/architecture.md says what each header is for.
 *
 * Functions whose names end in _ expect the caller to hold the engine's lock. */

#ifndef CUDADRV_OWNERSHIP_H
#define CUDADRV_OWNERSHIP_H

#include "graph.h"
#include "guard.h"
#include "host.h"
#include "reuse.h"
#include "rights.h"
#include "turns.h"

#endif
