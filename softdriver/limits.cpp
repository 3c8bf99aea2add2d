#include "limits.h"

#include "device_attributes.h"
#include "state.h"

#include <algorithm>

// The limits of a context. Kernels will read them; memory for them is not set aside.

namespace soft {
namespace {

// A value that is set becomes a multiple of the unit between the two bounds.
struct LimitInfo {
    int number;
    bool settable;
    size_t initial;
    size_t unit, least, greatest;
};

constexpr size_t unbounded = size_t(1) << 48;

// By number, because older headers lack some. Not listed: the depth of synchronization inside
// kernels, which devices of compute capability 9 do not have.
constexpr LimitInfo limits[] = {
    {0, true, 1024, 16, 16, 512 << 10},    // stack of a thread
    {1, true, 1 << 20, 64, 64, unbounded}, // buffer of printf
    {2, true, 8 << 20, 64, 64, unbounded}, // heap of malloc
    {4, true, 2048, 1, 0, unbounded},      // launches of kernels by kernels
    {5, true, 64, 1, 0, 128},              // bytes that the cache fetches at once
    {6, true, 0, 1, 0, max_persisting_l2}, // persisting part of the cache
    {7, false, 0, 1, 0, 0},
    {8, false, 0, 1, 0, 0}, // of contexts shared with graphics:
    {9, false, 0, 1, 0, 0}, // this is none
};

const LimitInfo *find_limit(int number) {
    for (const LimitInfo &limit : limits)
        if (limit.number == number)
            return &limit;
    return nullptr;
}

size_t adjust(const LimitInfo &limit, size_t value) {
    value = std::clamp(value, limit.least, limit.greatest);
    return (value + limit.unit - 1) / limit.unit * limit.unit;
}

} // namespace

Limits::Limits() {
    for (const LimitInfo &limit : limits)
        values[limit.number] = limit.initial;
}

SOFT_API(cuCtxGetLimit, (size_t *value, CUlimit number), (value, number)) {
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    const LimitInfo *limit = find_limit(number);
    if (!limit)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    *value = call.context->limits.values[number];
    return CUDA_SUCCESS;
}

SOFT_API(cuCtxSetLimit, (CUlimit number, size_t value), (number, value)) {
    const LimitInfo *limit = find_limit(number);
    if (!limit || !limit->settable)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    // Printf and malloc take their memory from the device.
    bool memory = number == CU_LIMIT_PRINTF_FIFO_SIZE || number == CU_LIMIT_MALLOC_HEAP_SIZE;
    if (memory && value > state().settings.memory)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (number == CU_LIMIT_STACK_SIZE && value > limit->greatest)
        return CUDA_ERROR_INVALID_VALUE;
    call.context->limits.values[number] = adjust(*limit, value);
    return CUDA_SUCCESS;
}

} // namespace soft
