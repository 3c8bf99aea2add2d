#pragma once

#include "code/jit.h"

namespace soft {

// A link (CUlinkState), which is in progress or finished.
struct Link {
    CUlinkState handle = nullptr;
    Context *owner = nullptr;
    JitOptions options; // the options that were given to cuLinkCreate, and the logs
    Image image;
    std::string result; // the linked image; empty until the link is complete
    // If not CUDA_SUCCESS, the reason why the link cannot be completed.
    CUresult failure = CUDA_SUCCESS;
};

} // namespace soft
