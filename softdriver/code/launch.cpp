#include "code/launch.h"
#include "api/call.h"

#include "api/state.h"
#include "base/unsupported.h"
#include "code/code_library.h"
#include "code/kernel_run.h"
#include "code/occupancy.h"
#include "graph/works.h"
#include "ptx/heap.h"
#include "ptx/team.h"

#include <algorithm>
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

CUresult check_size(const KernelFunction &function, const LaunchRequest &request) {
    const ptx::Kernel &kernel = *function.kernel;
    if (!within(request.grid, grid_limits) || !valid_block(kernel, request.block))
        return CUDA_ERROR_INVALID_VALUE;
    if (request.shared > dynamic_shared_limit(kernel, function.settings))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

// If the launch does not set a cluster shape, takes the shape from the kernel.
void complete_cluster(const KernelFunction &function, LaunchRequest &request) {
    if (request.cluster[0] || request.cluster[1] || request.cluster[2])
        return;
    for (int i = 0; i < 3; i++)
        request.cluster[i] = cluster_size(*function.kernel, function.settings, i);
}

// Returns an error if the kernel requires clusters and the launch has none, or if the cluster shape
// does not divide the grid, is not the shape that the kernel requires, or has more blocks than the
// kernel and its attributes allow.
CUresult check_clusters(const KernelFunction &function, const LaunchRequest &request) {
    const unsigned (&required)[3] = function.kernel->required_cluster;
    const unsigned (&cluster)[3] = request.cluster;
    uint64_t blocks = product(cluster);
    if (!cluster[0] && !cluster[1] && !cluster[2])
        return request.preferred_cluster || function.kernel->explicit_cluster
                   ? CUDA_ERROR_INVALID_CLUSTER_SIZE
                   : CUDA_SUCCESS;
    uint64_t limit = function.settings.large_clusters ? largest_cluster : portable_cluster;
    if (function.kernel->max_cluster)
        limit = std::min<uint64_t>(limit, function.kernel->max_cluster);
    bool fits = blocks && blocks <= limit;
    for (int i = 0; i < 3 && fits; i++)
        fits = request.grid[i] % cluster[i] == 0 && (!required[0] || required[i] == cluster[i]);
    return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CLUSTER_SIZE;
}

// Returns an error if the blocks of a cooperative launch cannot all run at the same time. They may
// wait for each other, so the launch might never end.
CUresult check_cooperation(const KernelFunction &function, const LaunchRequest &request) {
    if (!request.cooperative)
        return CUDA_SUCCESS;
    unsigned threads = static_cast<unsigned>(product(request.block));
    uint64_t resident = resident_blocks(*function.kernel, threads, request.shared);
    bool fits = product(request.grid) <= resident * multiprocessors(*function.owner);
    return fits ? CUDA_SUCCESS : CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
}

// Copies the parameter block that `extra` describes. `extra` is a list of keys and values that ends
// with CU_LAUNCH_PARAM_END.
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
    if (bytes > kernel.parameter_bytes)
        return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    if (bytes < kernel.parameter_bytes || !buffer)
        return CUDA_ERROR_INVALID_VALUE;
    std::copy_n(static_cast<const uint8_t *>(buffer), kernel.parameter_bytes, block.begin());
    return CUDA_SUCCESS;
}

CUresult take_parameters(const ptx::Kernel &kernel, const LaunchRequest &request,
                         std::vector<uint8_t> &block) {
    block.resize(kernel.parameter_bytes);
    if (kernel.parameters.empty())
        return CUDA_SUCCESS;
    if (request.parameters && request.extra)
        return CUDA_ERROR_INVALID_VALUE;
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

// Returns the heap of a context. The first launch of a kernel that uses it creates it.
std::shared_ptr<ptx::Heap> heap_of(Context &context) {
    if (!context.heap)
        context.heap =
            std::make_shared<ptx::Heap>(context.limits.values[CU_LIMIT_MALLOC_HEAP_SIZE]);
    return context.heap;
}

// The limit of `threads=auto`: a container may see many more processors than it may use.
constexpr unsigned most_automatic_threads = 16;

unsigned threads_of(const Settings &settings) {
    if (settings.schedule == Schedule::Replay)
        return 1; // the order of several threads is in no script
    if (settings.threads)
        return settings.threads;
    return settings.schedule == Schedule::Eager
               ? std::min(ptx::usable_processors(), most_automatic_threads)
               : 1;
}

ptx::Launch describe(const KernelFunction &function, const LaunchRequest &request) {
    State &driver = state();
    ptx::Launch launch;
    launch.program = function.module->program;
    launch.kernel = function.kernel;
    std::memcpy(launch.grid, request.grid, sizeof launch.grid);
    std::memcpy(launch.block, request.block, sizeof launch.block);
    launch.clustered = product(request.cluster) != 0;
    if (launch.clustered)
        std::memcpy(launch.cluster, request.cluster, sizeof launch.cluster);
    launch.shared_bytes = request.shared;
    launch.stack_bytes =
        std::min(launch.stack_bytes,
                 function.kernel->local_bytes + function.owner->limits.values[CU_LIMIT_STACK_SIZE]);
    launch.cooperative = request.cooperative;
    launch.threads = threads_of(driver.settings);
    if (function.kernel->uses_heap)
        launch.heap = heap_of(*function.owner);
    if (function.kernel->reads_time)
        driver.chooser.limit(explore::Limit::KernelTime);
    launch.variables = function.module->variables;
    // The race detector and the places of managed memory need the accesses of the kernel.
    launch.record = driver.settings.races != RaceMode::Off || Managed::alive;
    launch.checked = driver.settings.checks && driver.settings.hazards != RaceMode::Off;
    if (driver.settings.instructions)
        launch.budget = driver.settings.instructions;
    // Draw the seed now and not when the kernel starts: the order in which kernels start is not
    // reproducible, so a run could not be replayed.
    bool draws = driver.settings.schedule >= Schedule::Random;
    launch.seed = draws ? driver.chooser.seed() : driver.settings.seed;
    return launch;
}

std::shared_ptr<GridWorkspace> workspace_of(Stream &stream) {
    if (!stream.workspace)
        stream.workspace = std::make_shared<GridWorkspace>();
    return stream.workspace;
}

} // namespace

CUresult prepare_launch(const KernelFunctionPtr &function, const Context &context,
                        const LaunchRequest &request, PreparedLaunch &launch) {
    if (&context != function->owner)
        return CUDA_ERROR_INVALID_HANDLE;
    launch.function = function;
    launch.request = request;
    complete_cluster(*function, launch.request);
    if (CUresult status = check_size(*function, launch.request))
        return status;
    if (CUresult status = check_clusters(*function, launch.request))
        return status;
    if (CUresult status = check_cooperation(*function, launch.request))
        return status;
    launch.request.parameters = launch.request.extra = nullptr;
    launch.block = request.extra != nullptr;
    return take_parameters(*function->kernel, request, launch.parameters);
}

OperationPtr launch_operation(const PreparedLaunch &launch, Stream &stream) {
    const KernelFunction &function = *launch.function;
    ptx::Launch described = describe(function, launch.request);
    described.parameters = launch.parameters;
    auto operation = std::make_shared<Operation>();
    operation->kernel = {described.program, &function.kernel->name};
    auto run =
        std::make_shared<KernelRun>(launch.function, std::move(described),
                                    launch.request.cooperative ? workspace_of(stream) : nullptr);
    run->operation = operation;
    operation->pieces = run;
    operation->unforeseen = true;
    return operation;
}

void begin_early(const OperationPtr &operation, const OperationPtr &before) {
    auto run = [](const Operation &of) { return static_cast<KernelRun *>(of.pieces.get()); };
    run(*operation)->begin_before_end_of(run(*before), before->progress != Progress::Queued);
    operation->predecessor = before;
    operation->chain = before->done() ? 0 : before->chain + 1;
    operation->early = std::make_shared<Operation>();
    operation->early->progress = Progress::Done; // for operations that wait for it
    operation->early->kernel = operation->kernel;
    operation->early->unforeseen = true;
    operation->early->is_early = true;
}

bool valid_block(const ptx::Kernel &kernel, const unsigned (&block)[3]) {
    if (!within(block, block_limits) || product(block) > thread_limit(kernel))
        return false;
    return !product(kernel.required_threads) ||
           !std::memcmp(kernel.required_threads, block, sizeof block);
}

CUresult resolve_function(CUfunction handle, KernelFunctionPtr &function) {
    function = state().functions.find(reinterpret_cast<uintptr_t>(handle));
    return function ? context_status(function->owner) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult resolve_kernel(CUfunction handle, const ContextPtr &context, KernelFunctionPtr &function) {
    LibraryKernelPtr kernel = find_library_kernel(reinterpret_cast<CUkernel>(handle));
    return kernel ? function_in(*kernel, context, function) : resolve_function(handle, function);
}

CUresult launch(Call &call, CUfunction handle, const LaunchRequest &request,
                CUstream stream_handle) {
    KernelFunctionPtr function;
    StreamPtr stream;
    PreparedLaunch prepared;
    CUresult unusable = resolve_stream(call, stream_handle, stream);
    ContextPtr context = stream ? stream->context : call.context;
    if (CUresult status = resolve_kernel(handle, context, function))
        return status;
    if (unusable)
        return unusable;
    if (request.for_node && !stream->capture)
        return not_supported("the launch attribute DEVICE_UPDATABLE_KERNEL_NODE outside of a "
                             "capture: only nodes have it");
    CUresult status = prepare_launch(function, *stream->owner, request, prepared);
    if (!status && stream->capture)
        status = check_node(prepared);
    if (status && stream->capture)
        invalidate(*stream->capture);
    function->old_launch = nullptr;
    if (status)
        return status;
    if (stream->capture)
        return capture_node(*stream, make_kernel_work(std::move(prepared), handle),
                            request.programmatic);
    OperationPtr operation = launch_operation(prepared, *stream);
    OperationPtr before = stream->idle() ? state().races.last(*stream) : stream->queue.back();
    if (request.programmatic && before && before->kernel)
        begin_early(operation, before);
    return submit(*stream, operation);
}

} // namespace soft
