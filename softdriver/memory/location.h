#pragma once

#include "base/cuda_api.h"

namespace soft {

// Values of CUmemLocationType. Older headers have only location_device.
constexpr int location_none = 0;
constexpr int location_device = 1;
constexpr int location_host = 2;
constexpr int location_numa = 3;
constexpr int location_numa_current = 4;
// The CUmemAllocationType of managed memory, which older headers lack.
constexpr int allocation_managed = 2;

inline CUmemLocation make_location(int kind, int id) {
    CUmemLocation location = {};
    location.type = static_cast<CUmemLocationType>(kind);
    location.id = id;
    return location;
}

const CUmemLocation no_location = make_location(location_none, CU_DEVICE_INVALID);

inline bool is_node(const CUmemLocation &location) {
    int kind = static_cast<int>(location.type);
    return kind == location_numa || kind == location_numa_current;
}

inline bool is_host(const CUmemLocation &location) {
    return static_cast<int>(location.type) == location_host || is_node(location);
}

// Writes the value of an attribute to memory of the program.
template <class Value> CUresult put(void *data, Value value) {
    *static_cast<Value *>(data) = value;
    return CUDA_SUCCESS;
}

} // namespace soft
