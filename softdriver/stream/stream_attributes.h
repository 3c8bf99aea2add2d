#pragma once

#include "base/cuda_api.h"

namespace soft {

// Attributes of a stream. Programs can set and read them, but they have no effect in this driver.
struct StreamAttributes {
    CUaccessPolicyWindow window{};
    int policy = -1; // a CUsynchronizationPolicy, or -1 until the program sets one
    CUlaunchMemSyncDomainMap domains{0, 1};
    CUlaunchMemSyncDomain domain = CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT;
};

} // namespace soft
