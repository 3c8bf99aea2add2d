#pragma once

#include "base/cuda_api.h"

namespace soft {

// Attributes of a stream that have no effect here.
struct StreamAttributes {
    CUaccessPolicyWindow window{};
    int policy = -1; // a CUsynchronizationPolicy; -1 until set
    CUlaunchMemSyncDomainMap domains{0, 1};
    CUlaunchMemSyncDomain domain = CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT;
};

} // namespace soft
