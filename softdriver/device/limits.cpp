#include "device/limits.h"
#include "api/call.h"

#include "api/state.h"
#include "device/device_attributes.h"

#include <algorithm>
#include <iterator>

// This file implements cuCtxSetLimit and cuCtxGetLimit. The driver stores and returns the limits of
// a context. Only the sizes of the stack and of the heap have an effect on kernels.

namespace soft {
namespace {

// Describes how cuCtxSetLimit treats the value of a limit. It raises values below `least`, lowers
// or refuses values above `greatest`, and then rounds up to a multiple of `unit`.
struct LimitInfo {
    enum Excess { Refused, Lowered }; // what happens to a value above `greatest`
    enum Kind { Settable, Fixed, Absent };
    Kind kind;
    size_t initial;
    size_t unit, least, greatest;
    Excess excess;
};

constexpr size_t unbounded = size_t(1) << 48;
constexpr size_t persisting_unit = max_persisting_l2 / 10;
constexpr LimitInfo fixed(size_t value) {
    return {LimitInfo::Fixed, value, 1, 0, 0, LimitInfo::Refused};
}
constexpr LimitInfo absent{LimitInfo::Absent, 0, 1, 0, 0, LimitInfo::Refused};

// The limits, indexed by CUlimit. The names are in comments because older headers lack some of
// them.
constexpr LimitInfo limits[] = {
    // CU_LIMIT_STACK_SIZE
    {LimitInfo::Settable, 1024, 16, 0, 512 << 10, LimitInfo::Refused},
    // CU_LIMIT_PRINTF_FIFO_SIZE
    {LimitInfo::Settable, 1 << 20, 256, 512 << 10, size_t(2) << 30, LimitInfo::Lowered},
    // CU_LIMIT_MALLOC_HEAP_SIZE
    {LimitInfo::Settable, 8 << 20, 64, 4 << 20, unbounded, LimitInfo::Lowered},
    absent, // CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH: not supported by compute capability 9
    // CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT
    {LimitInfo::Settable, 2048, 1, 32, unbounded, LimitInfo::Lowered},
    // CU_LIMIT_MAX_L2_FETCH_GRANULARITY
    {LimitInfo::Settable, 64, 1, 0, 128, LimitInfo::Refused},
    // CU_LIMIT_PERSISTING_L2_CACHE_SIZE
    {LimitInfo::Settable, 3 * persisting_unit, persisting_unit, 0, max_persisting_l2,
     LimitInfo::Refused},
    fixed(shared_memory_opt_in), // CU_LIMIT_SHMEM_SIZE
    fixed(0),                    // CU_LIMIT_CIG_ENABLED
    absent,                      // CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED
};
constexpr int limit_count = std::size(limits);
static_assert(limit_count == std::size(decltype(Limits::values){}), "the same limits");

bool is_limit(int number) { return number >= 0 && number < limit_count; }

// Returns the greatest value that the device allows for a limit.
size_t greatest_of(int number, const Device &device) {
    size_t memory = state().settings.memory;
    auto read = [&](CUdevice_attribute attribute) {
        return size_t(read_attribute(device, attribute));
    };
    switch (number) {
    case CU_LIMIT_STACK_SIZE: // every resident thread needs a stack
        memory /= read(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) *
                  read(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
        return std::min(memory, limits[number].greatest);
    case CU_LIMIT_MALLOC_HEAP_SIZE:
        return memory / 4;
    default:
        return limits[number].greatest;
    }
}

} // namespace

Limits::Limits() {
    for (int i = 0; i < limit_count; i++)
        values[i] = limits[i].initial;
}

SOFT_API(cuCtxGetLimit, (size_t *value, CUlimit number), (value, number)) {
    if (!value || !is_limit(number))
        return CUDA_ERROR_INVALID_VALUE;
    if (limits[number].kind == LimitInfo::Absent)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    *value = call.context->limits.values[number];
    return CUDA_SUCCESS;
}

SOFT_API(cuCtxSetLimit, (CUlimit number, size_t value), (number, value)) {
    if (CUresult status = refuse_unsafe(*call.thread))
        return status;
    if (!is_limit(number))
        return CUDA_ERROR_INVALID_VALUE;
    const LimitInfo &limit = limits[number];
    if (limit.kind == LimitInfo::Absent)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    if (limit.kind == LimitInfo::Fixed)
        return CUDA_ERROR_NOT_PERMITTED;
    if (number == CU_LIMIT_MALLOC_HEAP_SIZE && call.context->heap)
        return CUDA_ERROR_INVALID_VALUE; // a kernel that uses the heap was launched already
    size_t greatest = greatest_of(number, *call.context->device);
    if (value > greatest && limit.excess == LimitInfo::Refused)
        return CUDA_ERROR_INVALID_VALUE;
    value = std::clamp(value, std::min(limit.least, greatest), greatest);
    call.context->limits.values[number] = (value + limit.unit - 1) / limit.unit * limit.unit;
    return CUDA_SUCCESS;
}

} // namespace soft
