/* While a trace is written, the table of driver functions has functions that note each call.
 * Without a trace, driver calls cost nothing more. Only cudadrv._trace includes this file. */

#ifndef CUDADRV_TRACE_CALLS_H
#define CUDADRV_TRACE_CALLS_H

#include "driver.h"
#include "trace_file.h"

enum trace_function {
#define CUDADRV_FUNCTION(name, abi, parameters, arguments) TRACE_##name,
#include "driver_functions.h"
#undef CUDADRV_FUNCTION
    TRACE_FUNCTIONS
};

static const char *const trace_names_of_functions[] = {
#define CUDADRV_FUNCTION(name, abi, parameters, arguments) #name,
#include "driver_functions.h"
#undef CUDADRV_FUNCTION
};

/* The functions of the driver, which the table has without a trace. */
static cudadrv_driver trace_driver;

static int trace_is(const trace_record *record, const char *function) {
    return strcmp(trace_names_of_functions[record->name], function) == 0;
}

/* Returns whether a call repeats the thread's last record: the same query in the same wait. */
static int trace_again_(const trace_ring *ring, const trace_record *last, int function,
                        uint64_t first, uint64_t second) {
    return last->kind == TRACE_CALL && last->name == function && last->first == first &&
           last->second == second && last->number == ring->wait && ring->wait &&
           last->status == CUDA_ERROR_NOT_READY;
}

/* Notes a call. `first` is the handle of an event, `second` that of a stream, or they are 0. A wait
 * asks the driver again and again, which becomes one record. */
static void trace_call(int function, uint64_t begin, CUresult status, uint64_t first,
                       uint64_t second) {
    trace_ring *ring = trace_ring_of_thread();
    trace_record *record = ring ? trace_take(ring) : NULL;
    if (!record) {
        return;
    }
    const int asks = function == TRACE_cuEventQuery || function == TRACE_cuStreamQuery;
    const int tells = asks || function == TRACE_cuEventRecord ||
                      function == TRACE_cuStreamWaitEvent ||
                      function == TRACE_cuStreamSynchronize ||
                      function == TRACE_cuEventSynchronize || function == TRACE_cuCtxSynchronize;
    if (asks && pthread_mutex_trylock(&trace_it.lock) == 0) {
        trace_record *last = &ring->records[(ring->head - 1) % TRACE_RECORDS];
        const int again =
            ring->tail < ring->head && trace_again_(ring, last, function, first, second);
        if (again) {
            last->end = trace_ticks();
            last->status = (int32_t)status;
            last->seq++;
        }
        pthread_mutex_unlock(&trace_it.lock);
        if (again) {
            return;
        }
    }
    *record = (trace_record){begin,
                             trace_ticks(),
                             first,
                             second,
                             0,
                             ring->wait,
                             tells ? ring->site : 0,
                             0,
                             (int32_t)status,
                             (uint16_t)function,
                             TRACE_CALL,
                             0};
    trace_put(ring);
}

#define CUDADRV_FUNCTION(name, abi, parameters, arguments)                                         \
    static CUresult CUDAAPI trace_##name parameters {                                              \
        const uint64_t called = trace_ticks();                                                     \
        const CUresult answer = trace_driver.call_##name arguments;                                \
        trace_call(TRACE_##name, called, answer, 0, 0);                                            \
        return answer;                                                                             \
    }
#include "driver_functions.h"
#undef CUDADRV_FUNCTION

/* Calls whose events and streams are noted, too. */
#define TRACE_NOTED(name, parameters, arguments, event, stream)                                    \
    static CUresult CUDAAPI trace_noted_##name parameters {                                        \
        const uint64_t called = trace_ticks();                                                     \
        const CUresult answer = trace_driver.call_##name arguments;                                \
        trace_call(TRACE_##name, called, answer, (uint64_t)(event), (uint64_t)(stream));           \
        return answer;                                                                             \
    }
TRACE_NOTED(cuEventRecord, (CUevent event, CUstream stream), (event, stream), event, stream)
TRACE_NOTED(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned int flags),
            (stream, event, flags), event, stream)
TRACE_NOTED(cuEventQuery, (CUevent event), (event), event, 0)
TRACE_NOTED(cuEventSynchronize, (CUevent event), (event), event, 0)
TRACE_NOTED(cuStreamQuery, (CUstream stream), (stream), 0, stream)
TRACE_NOTED(cuStreamSynchronize, (CUstream stream), (stream), 0, stream)
#undef TRACE_NOTED

/* Functions that do nothing a reader of a trace looks for, and that other calls make often. */
static int trace_is_small(const char *name) {
    static const char *const small[] = {"cuCtxGetCurrent",     "cuCtxSetCurrent",
                                        "cuCtxPushCurrent",    "cuCtxPopCurrent",
                                        "cuStreamIsCapturing", "cuThreadExchangeStreamCaptureMode",
                                        "cuGetErrorName",      "cuGetErrorString"};
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        if (strcmp(name, small[i]) == 0) {
            return 1;
        }
    }
    return 0;
}

/* Puts the functions of this file into the table, except for those that the driver lacks: their
 * entry is `missing`. Entries are pointers, so threads that call meanwhile take one or the other.
 */
static void trace_exchange_functions(const void *missing) {
    trace_driver = cudadrv_the_table;
#define CUDADRV_FUNCTION(name, abi, parameters, arguments)                                         \
    if (!trace_is_small(#name) && (const void *)trace_driver.call_##name != missing) {             \
        cudadrv_the_table.call_##name = trace_##name;                                              \
    }
#include "driver_functions.h"
#undef CUDADRV_FUNCTION
    cudadrv_the_table.call_cuEventRecord = trace_noted_cuEventRecord;
    cudadrv_the_table.call_cuStreamWaitEvent = trace_noted_cuStreamWaitEvent;
    cudadrv_the_table.call_cuEventQuery = trace_noted_cuEventQuery;
    cudadrv_the_table.call_cuEventSynchronize = trace_noted_cuEventSynchronize;
    cudadrv_the_table.call_cuStreamQuery = trace_noted_cuStreamQuery;
    cudadrv_the_table.call_cuStreamSynchronize = trace_noted_cuStreamSynchronize;
}

/* ---- when operations run, on the software driver: cudadrvSoftTracer of its api/control.h ---- */

struct cudadrv_tracer {
    int (*operation)(unsigned long long tag, unsigned long long numbers[2]);
    unsigned long long (*now)(void);
    void (*ran)(unsigned long long tag, const unsigned long long numbers[2],
                unsigned long long start);
};

static int trace_operation_now(unsigned long long tag, unsigned long long numbers[2]) {
    own_suspect current;
    if (!own_current(&cudadrv_the_engine, tag, &current)) {
        return 0;
    }
    numbers[0] = current.operation.seq;
    numbers[1] = (uint64_t)current.operation.site << 16 | current.operation.operation;
    return 1;
}

static unsigned long long trace_now(void) { return trace_ticks(); }

static void trace_ran(unsigned long long tag, const unsigned long long numbers[2],
                      unsigned long long start) {
    trace_ring *ring = trace_ring_of_thread();
    trace_record *record = ring ? trace_take(ring) : NULL;
    if (record) {
        *record = (trace_record){.begin = start,
                                 .end = trace_ticks(),
                                 .seq = numbers[0],
                                 .number = tag & ((UINT64_C(1) << 40) - 1),
                                 .site = (uint32_t)(numbers[1] >> 16),
                                 .name = (uint16_t)numbers[1],
                                 .kind = TRACE_RUN};
        trace_put(ring);
    }
}

static const struct cudadrv_tracer trace_tracer = {trace_operation_now, trace_now, trace_ran};

static void trace_runs(int on) {
    if (cudadrv_the_table.trace) {
        cudadrv_the_table.trace(on ? &trace_tracer : NULL);
    }
}

static void trace_restore_functions(void) {
#define CUDADRV_FUNCTION(name, abi, parameters, arguments)                                         \
    cudadrv_the_table.call_##name = trace_driver.call_##name;
#include "driver_functions.h"
#undef CUDADRV_FUNCTION
}

#endif
