#pragma once

#include "work/operation.h"

#include <atomic>

// The functions by which a client traces when its operations run. The driver calls them with its
// lock held, in any thread, so they must not call the driver, nor wait for a thread that might.
struct cudadrvSoftTracer {
    // Like `operation` of cudadrvSoftWords, with numbers of the client's choice.
    int (*operation)(unsigned long long tag, unsigned long long numbers[2]);
    // Returns the time, which is not 0.
    unsigned long long (*now)(void);
    // The operation has run; it began at `start`. Operations that only order others are left out.
    void (*ran)(unsigned long long tag, const unsigned long long numbers[2],
                unsigned long long start);
};

namespace soft {

// Null, or the client's functions that are told which operation runs when (cudadrvSoftTrace).
inline std::atomic<const cudadrvSoftTracer *> tracer{nullptr};

// Call these with the state lock held: when the operation is submitted to a stream with this tag,
// when it begins to run, and when it is done.
inline void trace_submission(Operation &operation, uint64_t tag) {
    const cudadrvSoftTracer *told = tracer;
    if (told && tag && !operation.only_orders() && told->operation(tag, operation.traced))
        operation.traced_tag = tag;
}

inline void trace_start(Operation &operation) {
    const cudadrvSoftTracer *told = tracer;
    if (told && operation.traced_tag)
        operation.traced_start = told->now();
}

inline void trace_end(const Operation &operation) {
    const cudadrvSoftTracer *told = tracer;
    if (told && operation.traced_start)
        told->ran(operation.traced_tag, operation.traced, operation.traced_start);
}

} // namespace soft
