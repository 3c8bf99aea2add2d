#pragma once

#include "code/jit.h"

namespace soft {

// A link in progress, or finished.
struct Link {
    CUlinkState handle = nullptr;
    Context *owner = nullptr;
    JitOptions options; // given to cuLinkCreate; contain the logs
    Image image;
    std::string result;              // the linked image; empty until the link is complete
    CUresult failure = CUDA_SUCCESS; // why the link can no longer be completed
};

} // namespace soft
