#pragma once

#include "stream/stream.h"

namespace soft {

// A green context: streams that share a part of the device's multiprocessors. Here kernels do not
// run on multiprocessors, so that the part is a number that the program can read back.
struct Green {
    CUgreenCtx handle = nullptr;
    uint64_t id = 0;
    ContextPtr context;      // the primary context, which has all memory and code
    uint64_t context_id = 0; // the id it had: a reset of the context also ends its green contexts
    unsigned processors = 0;
    std::vector<OperationPtr> gates; // its later streams begin with waiting for these

    bool alive() const { return context->alive && context->id == context_id; }
};

using GreenPtr = std::shared_ptr<Green>;

// Returns the green context for which a stream was made, or null.
GreenPtr green_of(const Stream &stream);
// Returns whether the green context of a stream was destroyed before the stream.
bool lost_its_green(const Stream &stream);

} // namespace soft
