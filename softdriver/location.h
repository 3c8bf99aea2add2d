#pragma once

#include "cuda_api.h"

namespace soft {

// Kinds of CUmemLocation; older headers lack all but the first.
enum LocationKind {
    location_none = 0,
    location_device = 1,
    location_host = 2,
    location_numa = 3,
    location_numa_current = 4,
};

inline bool is_host(const CUmemLocation &location) {
    int kind = static_cast<int>(location.type);
    return kind == location_host || kind == location_numa;
}

} // namespace soft
