/* The driver layer in C: one table of function pointers, and one wrapper for each.
 *
 * The name of a wrapper is cudadrv_ followed by the function's name in cuda.h. It calls the
 * function through the table. If the call fails, the wrapper notes the function's name, so that an
 * error can say which call it was.
 *
 * The modules of cudadrv share one table. In a module of another project, every wrapper returns
 * CUDA_ERROR_NOT_INITIALIZED. */

#ifndef CUDADRV_DRIVER_H
#define CUDADRV_DRIVER_H

#include <cuda.h>
#include <stddef.h>

#include "library.h"

#if CUDA_VERSION < 12000
#error "cudadrv needs the cuda.h of CUDA 12.0 or newer"
#endif

#define CUDADRV_FUNCTION(name, abi, parameters, arguments)                                         \
    typedef CUresult(CUDAAPI *cudadrv_pointer_##name) parameters;
#include "driver_functions.h"
#undef CUDADRV_FUNCTION

/* What a call has to look at before all else. */
enum cudadrv_attention {
    CUDADRV_LOANS_HAVE_ENDED = 1,
    CUDADRV_HAS_FORKED = 2,
    CUDADRV_FUNCTION_RUNS = 4 /* a function that a stream called: see host_functions.h */
};

/* Why operations take the slow path. */
enum cudadrv_slowly {
    CUDADRV_ENDS = 1,       /* Python is finalizing */
    CUDADRV_HAS_RANGES = 2, /* a profiler gets a range for each operation */
    CUDADRV_TRACES = 4,     /* a trace is being written: see trace.h */
    CUDADRV_GUARDS = 8      /* pages in use are protected: see pages.h */
};

struct cudadrv_tracer; /* see trace_calls.h */

typedef struct cudadrv_driver {
    /* Stores the name of a failed call, which this thread's next check() reports. */
    void (*note_failure)(const char *call);
    int loaded; /* a driver was opened, so forked children cannot use it */
    int forked; /* this process is a forked child of the process that opened the driver */
    /* Not 0 if a call has to look at something before all else: bits of cudadrv_attention. */
    int attention;
    /* Python is finalizing. Threads that Python no longer knows may still be in the engine. */
    int ending;
    /* Not 0 if no operation takes the fast path: bits of cudadrv_slowly. */
    int slowly;
    /* cudadrvSoftTagStream of the software driver; NULL with any other driver. It gives a stream a
     * number. The driver passes this number to the functions in `words` of cudadrv._driver to ask
     * for the names of the stream's work. */
    int (*tag_stream)(CUcontext context, CUstream stream, unsigned long long tag);
    /* cudadrvSoftRenewMemory of the software driver, or NULL. It says that cached memory gets a new
     * owner, for whom its contents are undefined. */
    int (*renew_memory)(CUdeviceptr address, size_t bytes);
    /* cudadrvSoftAsks of the software driver, or NULL. It says what the thread's next queries are
     * for, because only those whose answer the program gets are choices of a schedule. */
    void (*asks)(int purpose);
    /* cudadrvSoftRepeats of the software driver, or NULL. It says whether a run follows a script:
     * then the functions that streams call are to run while the driver waits for them. */
    int (*repeats)(void);
    /* cudadrvSoftUses of the software driver, or NULL. It says which bytes such a function uses. */
    void (*uses)(unsigned long long address, size_t bytes, int writes);
    /* cudadrvSoftTrace of the software driver, or NULL. It says when operations run. */
    void (*trace)(const struct cudadrv_tracer *tracer);
    /* cudadrvSoftMapTwice and cudadrvSoftIsMappedTwice of the software driver, or NULL. Only pages
     * that are mapped twice can be protected, because that driver's work uses the processor. */
    void (*map_twice)(int on);
    int (*is_mapped_twice)(unsigned long long address);
#define CUDADRV_FUNCTION(name, abi, parameters, arguments) cudadrv_pointer_##name call_##name;
#include "driver_functions.h"
#undef CUDADRV_FUNCTION
} cudadrv_driver;

/* Every entry of a table without a driver points to this function. It is called with arguments that
 * it does not declare. That is safe where the caller cleans up the stack, as in all calling
 * conventions that CUDA supports on Linux. */
static CUresult CUDAAPI cudadrv_not_initialized(void) { return CUDA_ERROR_NOT_INITIALIZED; }

#ifdef CUDADRV_LIBRARY
extern CUDADRV_HIDDEN cudadrv_driver cudadrv_the_table;
#else
static void cudadrv_note_nothing(const char *call) { (void)call; }

static cudadrv_driver cudadrv_the_table = {
    cudadrv_note_nothing, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
#define CUDADRV_FUNCTION(name, abi, parameters, arguments)                                         \
    (cudadrv_pointer_##name)(void (*)(void)) cudadrv_not_initialized,
#include "driver_functions.h"
#undef CUDADRV_FUNCTION
};
#endif

#define cudadrv_table (&cudadrv_the_table)

/* Sets or clears a bit of `attention`. Other threads may do so at the same time. */
static inline void cudadrv_set_attention(int bit) {
    __atomic_or_fetch(&cudadrv_table->attention, bit, __ATOMIC_RELEASE);
}

static inline void cudadrv_clear_attention(int bit) {
    __atomic_and_fetch(&cudadrv_table->attention, ~bit, __ATOMIC_ACQ_REL);
}

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

static inline int cudadrv_is_current(CUcontext wanted) {
    CUcontext current = NULL;
    return cudadrv_cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == wanted;
}

/* Makes a context current until cudadrv_leave. Only functions that get the driver call as a pointer
 * use these two; all others call cudadrv_in_cuSomething, see below.
 *
 * In a thread that had no current context, the context stays current afterwards, as in the runtime
 * API. If another library had made a context current, cudadrv_leave restores that one. */
static inline CUresult cudadrv_enter(CUcontext wanted, int *pushed) {
    CUcontext current = NULL;
    *pushed = 0;
    CUresult status = cudadrv_cuCtxGetCurrent(&current);
    if (status != CUDA_SUCCESS || current == wanted) {
        return status;
    }
    if (!current) {
        return cudadrv_cuCtxSetCurrent(wanted);
    }
    status = cudadrv_cuCtxPushCurrent(wanted);
    *pushed = status == CUDA_SUCCESS;
    return status;
}

static inline void cudadrv_leave(int pushed) {
    CUcontext ours = NULL;
    if (__builtin_expect(pushed, 0)) {
        cudadrv_cuCtxPopCurrent(&ours);
    }
}

/* cudadrv_in_cuSomething(in_context, ...) calls cuSomething(...) while in_context is current. If
 * the context cannot be made current, cuSomething is not called, and the status says why. */
#define CUDADRV_MORE(...) __VA_OPT__(, ) __VA_ARGS__
#define CUDADRV_FUNCTION(name, abi, parameters, arguments)                                         \
    static inline CUresult cudadrv_in_##name(CUcontext in_context CUDADRV_MORE parameters) {       \
        int pushed;                                                                                \
        CUresult answer = cudadrv_enter(in_context, &pushed);                                      \
        if (answer == CUDA_SUCCESS) {                                                              \
            answer = cudadrv_##name arguments;                                                     \
            cudadrv_leave(pushed);                                                                 \
        }                                                                                          \
        return answer;                                                                             \
    }
#include "driver_functions.h"
#undef CUDADRV_FUNCTION
#undef CUDADRV_MORE

#endif
