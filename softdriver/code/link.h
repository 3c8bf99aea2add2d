#pragma once

#include "code/jit.h"

namespace soft {

// Texts that are to become one module.
struct Link {
    CUlinkState handle = nullptr;
    Context *owner = nullptr;
    JitOptions options; // of the whole, with the logs
    Image image;
    std::string result;              // once complete
    CUresult failure = CUDA_SUCCESS; // it can no longer be completed
};

} // namespace soft
