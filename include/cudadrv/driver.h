/* The driver layer in C: one table of function pointers, and one wrapper for each.
 *
 * A wrapper is named cudadrv_ and the function's name in cuda.h. It calls through the table and,
 * when the call fails, notes its name, so that an error can say which call it was; success costs
 * nothing.
 *
 * The table lives in the extension module cudadrv._driver. Every other module that calls the driver
 * points its own `cudadrv_table` there when it is imported (see bind_driver in
 * cudadrv/_driver.pxd). In a module that does not, every wrapper returns
 * CUDA_ERROR_NOT_INITIALIZED. */

#ifndef CUDADRV_DRIVER_H
#define CUDADRV_DRIVER_H

#include <cuda.h>
#include <stddef.h>

#if CUDA_VERSION < 12000
#error "cudadrv needs the cuda.h of CUDA 12.0 or newer"
#endif

#define CUDADRV_FUNCTION(name, abi, parameters, arguments)                                         \
    typedef CUresult(CUDAAPI *cudadrv_pointer_##name) parameters;
#include "driver_functions.h"
#undef CUDADRV_FUNCTION

typedef struct cudadrv_driver {
    void (*note_failure)(const char *call); /* remembers the call for this thread's next check() */
    int loaded;                             /* a driver was opened: forked children cannot use it */
    int forked;                             /* this process is a fork of the one that loaded it */
    int attention; /* the next call has something to do first: it is forked, or loans have ended */
    int ending; /* Python is ending: threads that it does not know any more may be in the engine */
    /* The software driver's function, else NULL. With this number the driver asks `words` of
     * cudadrv._driver for the names of the stream's work in its reports. */
    int (*tag_stream)(CUcontext context, CUstream stream, unsigned long long tag);
#define CUDADRV_FUNCTION(name, abi, parameters, arguments) cudadrv_pointer_##name call_##name;
#include "driver_functions.h"
#undef CUDADRV_FUNCTION
} cudadrv_driver;

/* Stands in a table for the functions of a driver that is not there. It is called with the
 * arguments of any function, which is harmless where the caller cleans up, as in every calling
 * convention that CUDA supports on Linux. */
static CUresult CUDAAPI cudadrv_not_initialized(void) { return CUDA_ERROR_NOT_INITIALIZED; }

static void cudadrv_note_nothing(const char *call) { (void)call; }

static cudadrv_driver cudadrv_unbound = {
    cudadrv_note_nothing, 0, 0, 0, 0, NULL,
#define CUDADRV_FUNCTION(name, abi, parameters, arguments)                                         \
    (cudadrv_pointer_##name)(void (*)(void)) cudadrv_not_initialized,
#include "driver_functions.h"
#undef CUDADRV_FUNCTION
};

static cudadrv_driver *cudadrv_table = &cudadrv_unbound;

#define CUDADRV_FUNCTION(name, abi, parameters, arguments)                                         \
    static inline CUresult cudadrv_##name parameters {                                             \
        CUresult answer = cudadrv_table->call_##name arguments;                                    \
        if (__builtin_expect(answer != CUDA_SUCCESS, 0)) {                                         \
            cudadrv_table->note_failure(#name);                                                    \
        }                                                                                          \
        return answer;                                                                             \
    }
#include "driver_functions.h"
#undef CUDADRV_FUNCTION

#endif
