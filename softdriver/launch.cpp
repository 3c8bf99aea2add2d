#include "launch.h"

#include "code_library.h"
#include "kernel_run.h"
#include "occupancy.h"
#include "state.h"

#include <cstring>

namespace soft {
namespace {

constexpr unsigned grid_limits[3] = {2147483647, 65535, 65535};
constexpr unsigned block_limits[3] = {1024, 1024, 64};

bool within(const unsigned (&numbers)[3], const unsigned (&limits)[3]) {
    for (int i = 0; i < 3; i++)
        if (!numbers[i] || numbers[i] > limits[i])
            return false;
    return true;
}

uint64_t product(const unsigned (&numbers)[3]) {
    return uint64_t(numbers[0]) * numbers[1] * numbers[2];
}

CUresult check_size(const KernelFunction &function, const LaunchRequest &request) {
    const ptx::Kernel &kernel = *function.kernel;
    if (!within(request.grid, grid_limits) || !within(request.block, block_limits) ||
        product(request.block) > thread_limit(kernel))
        return CUDA_ERROR_INVALID_VALUE;
    if (product(kernel.required_threads) &&
        std::memcmp(kernel.required_threads, request.block, sizeof request.block))
        return CUDA_ERROR_INVALID_VALUE;
    if (request.shared > dynamic_shared_limit(kernel, *function.settings))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

// Clusters are of whole blocks and make up the grid; more than a few blocks need to be allowed.
CUresult check_clusters(const KernelFunction &function, const LaunchRequest &request) {
    uint64_t blocks = product(request.cluster);
    if (!blocks)
        return CUDA_SUCCESS;
    for (int i = 0; i < 3; i++)
        if (request.grid[i] % request.cluster[i])
            return CUDA_ERROR_INVALID_VALUE;
    uint64_t limit = function.settings->large_clusters ? largest_cluster : portable_cluster;
    return blocks > limit ? CUDA_ERROR_INVALID_CLUSTER_SIZE : CUDA_SUCCESS;
}

// All blocks of a cooperative launch are resident at a time, as they may wait for each other.
CUresult check_cooperation(const KernelFunction &function, const LaunchRequest &request) {
    if (!request.cooperative)
        return CUDA_SUCCESS;
    unsigned threads = static_cast<unsigned>(product(request.block));
    uint64_t resident = resident_blocks(*function.kernel, threads, request.shared);
    bool fits = product(request.grid) <= resident * multiprocessors(*function.owner);
    return fits ? CUDA_SUCCESS : CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
}

// The block of parameters out of `extra`: pairs of a key and a value, until the end.
CUresult take_buffer(const ptx::Kernel &kernel, void **extra, std::vector<uint8_t> &block) {
    const void *buffer = nullptr;
    size_t bytes = 0;
    for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
        if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[1];
        else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE && extra[1])
            std::memcpy(&bytes, extra[1], sizeof bytes);
        else
            return CUDA_ERROR_INVALID_VALUE;
    }
    if (bytes < kernel.parameter_bytes || (bytes && !buffer))
        return CUDA_ERROR_INVALID_VALUE;
    std::copy_n(static_cast<const uint8_t *>(buffer), kernel.parameter_bytes, block.begin());
    return CUDA_SUCCESS;
}

CUresult take_parameters(const ptx::Kernel &kernel, const LaunchRequest &request,
                         std::vector<uint8_t> &block) {
    block.resize(kernel.parameter_bytes);
    if (request.parameters && request.extra)
        return CUDA_ERROR_INVALID_VALUE;
    if (kernel.parameters.empty())
        return CUDA_SUCCESS;
    if (request.extra)
        return take_buffer(kernel, request.extra, block);
    if (!request.parameters)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < kernel.parameters.size(); i++) {
        const ptx::Variable &parameter = kernel.parameters[i];
        if (!request.parameters[i])
            return CUDA_ERROR_INVALID_VALUE;
        std::memcpy(block.data() + parameter.offset, request.parameters[i], parameter.bytes());
    }
    return CUDA_SUCCESS;
}

ptx::Launch describe(const KernelFunction &function, const LaunchRequest &request) {
    State &driver = state();
    ptx::Launch launch;
    launch.program = function.module->program;
    launch.kernel = function.kernel;
    std::memcpy(launch.grid, request.grid, sizeof launch.grid);
    std::memcpy(launch.block, request.block, sizeof launch.block);
    if (product(request.cluster))
        std::memcpy(launch.cluster, request.cluster, sizeof launch.cluster);
    launch.shared_bytes = request.shared;
    launch.cooperative = request.cooperative;
    launch.variables = function.module->variables;
    launch.record = driver.settings.races != RaceMode::Off;
    if (driver.settings.instructions)
        launch.budget = driver.settings.instructions;
    // Workers' turns depend on the machine, so the seed is drawn now.
    bool random = driver.settings.schedule == Schedule::Random;
    launch.seed = random ? driver.random.next() : driver.settings.seed;
    return launch;
}

} // namespace

CUresult resolve_function(Call &call, CUfunction handle, KernelFunctionPtr &function) {
    function = state().functions.find(reinterpret_cast<uintptr_t>(handle));
    if (function)
        return context_status(function->owner);
    LibraryKernelPtr kernel = find_library_kernel(reinterpret_cast<CUkernel>(handle));
    return kernel ? function_in(*kernel, call.context, function) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult launch(Call &call, CUfunction handle, const LaunchRequest &request,
                CUstream stream_handle) {
    KernelFunctionPtr function;
    StreamPtr stream;
    if (CUresult status = resolve_function(call, handle, function))
        return status;
    if (CUresult status = resolve_stream(call, stream_handle, stream))
        return status;
    if (stream->owner != function->owner)
        return CUDA_ERROR_INVALID_HANDLE;
    if (CUresult status = check_size(*function, request))
        return status;
    if (CUresult status = check_clusters(*function, request))
        return status;
    if (CUresult status = check_cooperation(*function, request))
        return status;
    ptx::Launch described = describe(*function, request);
    if (CUresult status = take_parameters(*function->kernel, request, described.parameters))
        return status;
    auto operation = std::make_shared<Operation>();
    operation->pieces = std::make_shared<KernelRun>(function, std::move(described));
    return submit(*stream, std::move(operation));
}

} // namespace soft
