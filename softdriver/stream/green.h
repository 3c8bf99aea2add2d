#pragma once

#include "stream/resources.h"
#include "stream/stream.h"

namespace soft {

// A green context: streams that share a part of the device's multiprocessors. Here kernels do not
// run on multiprocessors, so the part is a number that the program can read back.
struct Green {
    CUgreenCtx handle = nullptr;
    uint64_t id = 0;
    ContextPtr context;      // the primary context, which has all memory and code
    uint64_t context_id = 0; // the id it had: a reset of the context also ends its green contexts
    Parts parts;
    std::vector<OperationPtr> gates; // its later streams begin with waiting for these

    // The green context as a CUcontext: another owner of a pointer to the primary context. So
    // whatever compares pointers or uses the context takes it for the primary context, and only
    // handle_of() and green_of() tell them apart.
    ContextPtr as_context;
    CUcontext context_handle = nullptr;

    bool alive() const { return context->alive && context->id == context_id; }
};

using GreenPtr = std::shared_ptr<Green>;

// Returns the green context for which a stream was made, or null.
GreenPtr green_of(const Stream &stream);
// Returns the green context that such a pointer stands for, or null.
GreenPtr green_of(const ContextPtr &context);
// Returns the handle of a context: that of cuCtxFromGreenCtx for a green context.
CUcontext handle_of(const ContextPtr &context);
// Finds the green context of a handle of cuCtxFromGreenCtx, or null.
ContextPtr find_green_context(CUcontext handle);
// Makes a new stream belong to the green context that is current, if there is one.
void join_green(const ContextPtr &current, const StreamPtr &stream);
// Returns whether the green context of a stream was destroyed before the stream.
bool lost_its_green(const Stream &stream);

} // namespace soft
