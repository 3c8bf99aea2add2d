#include "api/call.h"
#include "api/state.h"
#include "code/code_library.h"
#include "code/launch.h"
#include "graph/node_api.h"
#include "graph/works.h"

#include <cstring>

// Nodes that launch a kernel.

namespace soft {
namespace {

class KernelWork : public NodeWork {
  public:
    // `handle` is the CUfunction or CUkernel that the program has named.
    KernelWork(PreparedLaunch launch, CUfunction handle)
        : launch_(std::move(launch)), handle_(handle),
          context_(find_context(launch_.function->owner->handle)) {
        for (const ptx::Variable &parameter : launch_.function->kernel->parameters)
            pointers_.push_back(launch_.parameters.data() + parameter.offset);
    }

    CUgraphNodeType type() const override { return CU_GRAPH_NODE_TYPE_KERNEL; }
    ContextPtr context() const override { return context_; }
    bool can_be_disabled() const override { return true; }
    std::vector<OperationPtr> prepare(Stream &stream) const override {
        return {launch_operation(launch_, stream)};
    }
    std::string text() const override { return launch_.function->kernel->name; }

    CUgraphExecUpdateResult replaceable(const NodeWork &next) const override {
        const auto &other = static_cast<const KernelWork &>(next);
        if (other.launch_.function->owner != launch_.function->owner)
            return CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
        return other.launch_.request.cooperative == launch_.request.cooperative
                   ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                   : CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
    }

    void describe(CUDA_KERNEL_NODE_PARAMS_v2 &params) const {
        const LaunchRequest &request = launch_.request;
        params = {};
        bool of_library = find_library_kernel(reinterpret_cast<CUkernel>(handle_)) != nullptr;
        params.func = handle_;
        if (of_library)
            params.kern = reinterpret_cast<CUkernel>(handle_);
        params.gridDimX = request.grid[0];
        params.gridDimY = request.grid[1];
        params.gridDimZ = request.grid[2];
        params.blockDimX = request.block[0];
        params.blockDimY = request.block[1];
        params.blockDimZ = request.block[2];
        params.sharedMemBytes = static_cast<unsigned>(request.shared);
        params.kernelParams = pointers_.empty() ? nullptr : const_cast<void **>(pointers_.data());
        params.ctx = context_->handle;
    }

  private:
    PreparedLaunch launch_;
    CUfunction handle_;
    ContextPtr context_;
    std::vector<void *> pointers_; // to each parameter in the parameter block
};

// The first version of the structure has no `kern` and no `ctx`.
bool extend(const CUDA_KERNEL_NODE_PARAMS_v1 *old, CUDA_KERNEL_NODE_PARAMS_v2 &params) {
    params = {};
    if (old)
        std::memcpy(&params, old, sizeof *old);
    return old != nullptr;
}

} // namespace

CUresult make_kernel_work(Call &call, const CUDA_KERNEL_NODE_PARAMS_v2 *params,
                          NodeWorkPtr &work) {
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    ContextPtr context = params->ctx && !params->func ? find_context(params->ctx) : call.context;
    if (CUresult status = context_status(context.get()))
        return status;
    CUfunction handle =
        params->func ? params->func : reinterpret_cast<CUfunction>(params->kern);
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    KernelFunctionPtr function;
    if (CUresult status = resolve_kernel(handle, context, function))
        return status;
    LaunchRequest request{{params->gridDimX, params->gridDimY, params->gridDimZ},
                          {params->blockDimX, params->blockDimY, params->blockDimZ}};
    request.shared = params->sharedMemBytes;
    request.parameters = params->kernelParams;
    request.extra = params->extra;
    PreparedLaunch launch;
    if (CUresult status = prepare_launch(function, *function->owner, request, launch))
        return status;
    work = make_kernel_work(std::move(launch), handle);
    return CUDA_SUCCESS;
}

NodeWorkPtr make_kernel_work(PreparedLaunch launch, CUfunction handle) {
    return std::make_shared<KernelWork>(std::move(launch), handle);
}

SOFT_API(cuGraphAddKernelNode_v2,
         (CUgraphNode * node, CUgraph graph, const CUgraphNode *after, size_t count,
          const CUDA_KERNEL_NODE_PARAMS_v2 *params),
         (node, graph, after, count, params)) {
    return add_node(node, graph, after, count,
                    [&](auto &work) { return make_kernel_work(call, params, work); });
}

SOFT_API(cuGraphAddKernelNode,
         (CUgraphNode * node, CUgraph graph, const CUgraphNode *after, size_t count,
          const CUDA_KERNEL_NODE_PARAMS_v1 *params),
         (node, graph, after, count, params)) {
    CUDA_KERNEL_NODE_PARAMS_v2 all;
    bool given = extend(params, all);
    return cuGraphAddKernelNode_v2_body(call, node, graph, after, count, given ? &all : nullptr);
}

SOFT_API(cuGraphKernelNodeGetParams_v2, (CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v2 *params),
         (node, params)) {
    return read_node<KernelWork>(node, params,
                                 [&](const KernelWork &work) { work.describe(*params); });
}

SOFT_API(cuGraphKernelNodeGetParams, (CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *params),
         (node, params)) {
    return read_node<KernelWork>(node, params, [&](const KernelWork &work) {
        CUDA_KERNEL_NODE_PARAMS_v2 all;
        work.describe(all);
        std::memcpy(params, &all, sizeof *params);
    });
}

SOFT_API(cuGraphKernelNodeSetParams_v2,
         (CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2 *params), (node, params)) {
    return change_node<KernelWork>(
        node, [&](auto &work) { return make_kernel_work(call, params, work); });
}

SOFT_API(cuGraphKernelNodeSetParams, (CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params),
         (node, params)) {
    CUDA_KERNEL_NODE_PARAMS_v2 all;
    bool given = extend(params, all);
    return cuGraphKernelNodeSetParams_v2_body(call, node, given ? &all : nullptr);
}

SOFT_API(cuGraphExecKernelNodeSetParams_v2,
         (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2 *params),
         (exec, node, params)) {
    return change_exec_node<KernelWork>(
        exec, node, [&](auto &work) { return make_kernel_work(call, params, work); });
}

SOFT_API(cuGraphExecKernelNodeSetParams,
         (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params),
         (exec, node, params)) {
    CUDA_KERNEL_NODE_PARAMS_v2 all;
    bool given = extend(params, all);
    return cuGraphExecKernelNodeSetParams_v2_body(call, exec, node, given ? &all : nullptr);
}

} // namespace soft
