#pragma once

#include "cuda_api.h"

namespace soft {

// What can be set on a stream and changes nothing here, for want of kernels and caches.
struct StreamAttributes {
    CUaccessPolicyWindow window{};
    CUsynchronizationPolicy policy = CU_SYNC_POLICY_AUTO;
    CUlaunchMemSyncDomainMap domains{0, 1};
    CUlaunchMemSyncDomain domain = CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT;
};

} // namespace soft
