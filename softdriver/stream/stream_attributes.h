#pragma once

#include "base/cuda_api.h"

namespace soft {

// What can be set on a stream and changes nothing here, for want of kernels and caches.
struct StreamAttributes {
    CUaccessPolicyWindow window{};
    int policy = -1; // a CUsynchronizationPolicy, once one is set
    CUlaunchMemSyncDomainMap domains{0, 1};
    CUlaunchMemSyncDomain domain = CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT;
};

} // namespace soft
