#include "code/occupancy.h"
#include "api/call.h"

#include "api/state.h"
#include "code/launch.h"
#include "device/device_attributes.h"

#include <algorithm>

// This file computes occupancy: how many blocks a multiprocessor can run at the same time. The
// limits are those of compute capability 9.0. The number of registers of a kernel is an estimate.

namespace soft {
namespace {

constexpr unsigned warp = 32;
constexpr unsigned max_warps = 64;
constexpr unsigned max_blocks = 32;
constexpr unsigned max_threads = 1024;
constexpr unsigned registers = 65536;
constexpr unsigned register_unit = 256; // a warp receives registers in multiples of this number
constexpr size_t shared_bytes = 233472;
constexpr size_t shared_reserved = 1024; // bytes that the system reserves in each block
constexpr size_t shared_unit = 128;

size_t shared_of(const ptx::Kernel &kernel, size_t dynamic) {
    return round_up(static_shared(kernel) + dynamic + shared_reserved, shared_unit);
}

struct Best {
    int threads = 0, blocks = 0;
};

// Returns the block size with which a multiprocessor runs the most threads. If several sizes are
// equal in this, returns the largest.
Best best_block(const KernelFunction &function, CUoccupancyB2DSize shared_of_block, size_t shared,
                int limit) {
    Best best;
    int most = static_cast<int>(thread_limit(*function.kernel));
    if (limit > 0)
        most = std::min(most, limit);
    for (int threads = static_cast<int>(round_up(most, warp)); threads > 0; threads -= warp) {
        int size = std::min(threads, most);
        size_t dynamic = shared_of_block ? shared_of_block(size) : shared;
        int blocks = resident_blocks(*function.kernel, size, dynamic);
        if (blocks * size > best.blocks * best.threads)
            best = {size, blocks};
    }
    return best;
}

bool valid_flags(unsigned flags) {
    return !(flags & ~unsigned(CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE));
}

} // namespace

int multiprocessors(const Context &context) {
    return read_attribute(*context.device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
}

int resident_blocks(const ptx::Kernel &kernel, unsigned threads, size_t dynamic_shared) {
    unsigned warps = (threads + warp - 1) / warp;
    if (!warps || threads > max_threads ||
        static_shared(kernel) + dynamic_shared > size_t(shared_memory_opt_in))
        return 0;
    size_t blocks = std::min(max_blocks, max_warps / warps);
    size_t registers_of_warp = round_up(kernel.registers * warp, register_unit);
    if (registers_of_warp)
        blocks = std::min(blocks, registers / registers_of_warp / warps);
    blocks = std::min(blocks, shared_bytes / shared_of(kernel, dynamic_shared));
    return static_cast<int>(blocks);
}

SOFT_API(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
         (int *blocks, CUfunction handle, int threads, size_t shared, unsigned flags),
         (blocks, handle, threads, shared, flags)) {
    KernelFunctionPtr function;
    if (!blocks || threads <= 0 || !valid_flags(flags))
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = resolve_kernel(handle, call.context, function))
        return status;
    bool allowed = shared <= dynamic_shared_limit(*function->kernel, function->settings);
    *blocks = allowed ? resident_blocks(*function->kernel, threads, shared) : 0;
    return CUDA_SUCCESS;
}

SOFT_API(cuOccupancyMaxActiveBlocksPerMultiprocessor,
         (int *blocks, CUfunction function, int threads, size_t shared),
         (blocks, function, threads, shared)) {
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags_body(call, blocks, function,
                                                                     threads, shared, 0);
}

SOFT_API(cuOccupancyMaxPotentialBlockSizeWithFlags,
         (int *grid, int *block, CUfunction handle, CUoccupancyB2DSize shared_of_block,
          size_t shared, int limit, unsigned flags),
         (grid, block, handle, shared_of_block, shared, limit, flags)) {
    KernelFunctionPtr function;
    if (!grid || !block || limit < 0 || !valid_flags(flags))
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = resolve_kernel(handle, call.context, function))
        return status;
    // Release the lock, because the function `shared_of_block` of the program may call the driver.
    call.lock.unlock();
    Best best = best_block(*function, shared_of_block, shared, limit);
    acquire(call.lock);
    *block = best.threads;
    *grid = best.blocks * multiprocessors(*function->owner);
    return CUDA_SUCCESS;
}

SOFT_API(cuOccupancyMaxPotentialBlockSize,
         (int *grid, int *block, CUfunction function, CUoccupancyB2DSize shared_of_block,
          size_t shared, int limit),
         (grid, block, function, shared_of_block, shared, limit)) {
    return cuOccupancyMaxPotentialBlockSizeWithFlags_body(call, grid, block, function,
                                                          shared_of_block, shared, limit, 0);
}

SOFT_API(cuOccupancyAvailableDynamicSMemPerBlock,
         (size_t *bytes, CUfunction handle, int blocks, int threads),
         (bytes, handle, blocks, threads)) {
    KernelFunctionPtr function;
    if (!bytes || blocks <= 0 || threads <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = resolve_kernel(handle, call.context, function))
        return status;
    if (resident_blocks(*function->kernel, threads, 0) < blocks)
        return CUDA_ERROR_INVALID_VALUE;
    size_t each = shared_bytes / blocks / shared_unit * shared_unit;
    *bytes = std::min(each - std::min(each, static_shared(*function->kernel)),
                      dynamic_shared_limit(*function->kernel, function->settings));
    return CUDA_SUCCESS;
}

SOFT_API(cuOccupancyMaxPotentialClusterSize,
         (int *size, CUfunction handle, const CUlaunchConfig *config), (size, handle, config)) {
    KernelFunctionPtr function;
    if (!size || !config)
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = resolve_kernel(handle, call.context, function))
        return status;
    *size =
        static_cast<int>(function->settings.large_clusters ? largest_cluster : portable_cluster);
    return CUDA_SUCCESS;
}

SOFT_API(cuOccupancyMaxActiveClusters,
         (int *count, CUfunction handle, const CUlaunchConfig *config), (count, handle, config)) {
    KernelFunctionPtr function;
    LaunchRequest request;
    if (!count || !config || !handle)
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = resolve_kernel(handle, call.context, function))
        return status;
    if (CUresult status = read_config(*config, request))
        return status;
    uint64_t cluster = std::max<uint64_t>(product(request.cluster), 1);
    int blocks = resident_blocks(*function->kernel, product(request.block), request.shared);
    *count = static_cast<int>(blocks * multiprocessors(*function->owner) / cluster);
    return CUDA_SUCCESS;
}

} // namespace soft
