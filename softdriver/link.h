#pragma once

#include "jit.h"

namespace soft {

// Texts that are to become one module.
struct Link {
    CUlinkState handle = nullptr;
    Context *owner = nullptr;
    JitOptions options; // of the whole: its logs are written when it is complete
    Image image;
    std::string result; // once complete
};

} // namespace soft
