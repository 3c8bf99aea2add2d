#pragma once

#include "code/jit.h"

namespace soft {

// A link (CUlinkState). It may be in progress or complete.
struct Link {
    CUlinkState handle = nullptr;
    Context *owner = nullptr;
    JitOptions options; // the options of cuLinkCreate, and the logs
    Image image;
    unsigned inputs = 0; // number of inputs that were added
    std::string result;  // the linked image; empty until the link is complete
    // If not CUDA_SUCCESS, the error that cuLinkComplete returns.
    CUresult failure = CUDA_SUCCESS;
};

} // namespace soft
