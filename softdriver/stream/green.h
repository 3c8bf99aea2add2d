#pragma once

#include "stream/resources.h"
#include "stream/stream.h"

namespace soft {

// A green context: streams that share a part of the device's multiprocessors. This driver's kernels
// do not run on multiprocessors, so the part is only a number that the program can read back.
struct Green {
    CUgreenCtx handle = nullptr;
    uint64_t id = 0;
    ContextPtr context;      // the primary context, which has all memory and code
    uint64_t context_id = 0; // its id at creation; a reset of the context gives it a new one
    Parts parts;
    std::vector<OperationPtr> gates; // streams that are created later first wait for these

    // The green context as a CUcontext: a shared_ptr that points to the primary context, but has a
    // separate owner. Code that compares pointers or uses the context treats it as the primary
    // context. Only handle_of() and green_of() distinguish the two.
    ContextPtr as_context;
    CUcontext context_handle = nullptr;

    bool alive() const { return context->alive && context->id == context_id; }
};

using GreenPtr = std::shared_ptr<Green>;

// Returns the green context for which a stream was made, or null.
GreenPtr green_of(const Stream &stream);
// Returns the green context for which this pointer is `as_context`, or null.
GreenPtr green_of(const ContextPtr &context);
// Makes a new stream belong to the green context that is current, if there is one.
void join_green(const ContextPtr &current, const StreamPtr &stream);
// Returns whether the green context of a stream was destroyed before the stream.
bool lost_its_green(const Stream &stream);

} // namespace soft
