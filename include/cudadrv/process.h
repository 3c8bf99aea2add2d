/* The one engine of the process. Only the Cython modules of cudadrv can use it. */

#ifndef CUDADRV_PROCESS_H
#define CUDADRV_PROCESS_H

#include "ownership.h"

#ifdef CUDADRV_LIBRARY
extern CUDADRV_HIDDEN own_engine cudadrv_the_engine;
#endif

#endif
