#include "api/call.h"
#include "api/state.h"
#include "code/code_library.h"
#include "code/launch.h"
#include "graph/node_api.h"
#include "graph/node_params.h"
#include "graph/works.h"

#include <algorithm>
#include <array>
#include <cstring>

// Nodes that launch a kernel.

namespace soft {
namespace {

constexpr int updatable_attribute = 13; // whether kernels can update the node

// Attributes that nodes have, and how many bytes of their value the program reads.
const std::map<int, size_t> attribute_bytes = {
    {1, 32}, // access policy window
    {2, 4},  // cooperative
    {4, 12}, // cluster dimension
    {5, 4},  // cluster scheduling policy
    {8, 4},  // priority
    {9, 2},  // memory synchronization domain map
    {10, 4}, // memory synchronization domain
    {updatable_attribute, 16},
    {14, 4}, // preferred carveout
};

class KernelWork : public NodeWork {
  public:
    // `handle` is the CUfunction that the program has named, `kernel` its CUkernel; one is null.
    KernelWork(PreparedLaunch launch, CUfunction handle, CUkernel kernel)
        : launch_(std::move(launch)), handle_(handle), kernel_(kernel),
          context_(find_context(launch_.function->owner->handle)),
          bytes_(launch_.parameters.size()) {
        for (const ptx::Variable &parameter : launch_.function->kernel->parameters)
            pointers_.push_back(launch_.parameters.data() + parameter.offset);
        extra_ = {CU_LAUNCH_PARAM_BUFFER_POINTER, launch_.parameters.data(),
                  CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes_, CU_LAUNCH_PARAM_END};
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

    void describe(NodeParams &params) const override { describe(params.kernel); }

    void describe(CUDA_KERNEL_NODE_PARAMS_v2 &params) const {
        const LaunchRequest &request = launch_.request;
        params = {};
        params.func = handle_;
        params.kern = kernel_;
        params.gridDimX = request.grid[0];
        params.gridDimY = request.grid[1];
        params.gridDimZ = request.grid[2];
        params.blockDimX = request.block[0];
        params.blockDimY = request.block[1];
        params.blockDimZ = request.block[2];
        params.sharedMemBytes = static_cast<unsigned>(request.shared);
        if (launch_.block)
            params.extra = const_cast<void **>(extra_.data());
        else if (!pointers_.empty())
            params.kernelParams = const_cast<void **>(pointers_.data());
        params.ctx = context_->handle;
    }

    CUresult read(int attribute, void *value) const {
        auto known = attribute_bytes.find(attribute);
        if (known == attribute_bytes.end())
            return CUDA_ERROR_INVALID_VALUE;
        const LaunchRequest &request = launch_.request;
        std::array<unsigned char, 64> bytes = {};
        auto given = request.attributes.find(attribute);
        if (given != request.attributes.end())
            bytes = given->second;
        else if (attribute == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
            bytes[0] = request.cooperative;
        else if (attribute == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP)
            bytes[1] = 1;
        if (attribute != updatable_attribute) {
            std::memcpy(value, bytes.data(), known->second);
            return CUDA_SUCCESS;
        }
        std::memcpy(value, bytes.data(), 4);                          // whether it is updatable
        std::memcpy(static_cast<char *>(value) + 8, bytes.data(), 8); // its handle
        return CUDA_SUCCESS;
    }

    // Makes work with another value of an attribute.
    CUresult with(const CUlaunchAttribute &attribute, NodeWorkPtr &work) const {
        LaunchRequest request = launch_.request;
        if (int(attribute.id) == CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE)
            std::memcpy(&request.attributes[attribute.id], &attribute.value, 64); // any value
        else if (CUresult status = read_attribute(attribute, request))
            return status;
        return with(request, work);
    }

    // Makes work with the attributes of another node.
    CUresult with_attributes_of(const KernelWork &other, NodeWorkPtr &work) const {
        LaunchRequest request = launch_.request;
        other.give_attributes(request);
        return with(request, work);
    }

    void give_attributes(LaunchRequest &request) const {
        const LaunchRequest &own = launch_.request;
        request.cooperative = own.cooperative;
        request.attributes = own.attributes;
        if (own.attributes.count(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION))
            std::memcpy(request.cluster, own.cluster, sizeof own.cluster);
    }

  private:
    CUresult with(LaunchRequest &request, NodeWorkPtr &work) const {
        PreparedLaunch launch;
        std::vector<void *> pointers = pointers_;
        request.parameters = pointers.data();
        if (CUresult status = prepare_launch(launch_.function, *context_, request, launch))
            return status;
        launch.block = launch_.block;
        if (CUresult status = check_node(launch))
            return status;
        work = std::make_shared<KernelWork>(std::move(launch), handle_, kernel_);
        return CUDA_SUCCESS;
    }

    PreparedLaunch launch_;
    CUfunction handle_;
    CUkernel kernel_;
    ContextPtr context_;
    std::vector<void *> pointers_; // to each parameter in the parameter block
    size_t bytes_;
    std::array<void *, 5> extra_; // the parameter block as a program passes it
};

// Clamps a priority. Scheduling policies are not checked for nodes.
CUresult normalised(int number, const CUlaunchAttributeValue &given, CUlaunchAttribute &attribute) {
    if (!attribute_bytes.count(number))
        return CUDA_ERROR_INVALID_VALUE;
    attribute.id = static_cast<CUlaunchAttributeID>(number);
    attribute.value = {};
    std::memcpy(&attribute.value, &given, attribute_bytes.at(number));
    if (number == CU_LAUNCH_ATTRIBUTE_PRIORITY)
        attribute.value.priority =
            std::clamp(attribute.value.priority, greatest_priority, least_priority);
    return CUDA_SUCCESS;
}

// The first version of the structure has no `kern` and no `ctx`.
bool extend(const CUDA_KERNEL_NODE_PARAMS_v1 *old, CUDA_KERNEL_NODE_PARAMS_v2 &params) {
    params = {};
    if (old)
        std::memcpy(&params, old, sizeof *old);
    return old != nullptr;
}

} // namespace

CUresult check_node(const PreparedLaunch &launch) {
    return launch.request.cooperative && launch.block ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult make_kernel_work(Call &call, const CUDA_KERNEL_NODE_PARAMS_v2 *params, NodeWorkPtr &work,
                          const NodeWork *old) {
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    ContextPtr context = params->ctx && !params->func ? find_context(params->ctx) : call.context;
    if (CUresult status = context_status(context.get()))
        return status;
    KernelFunctionPtr function;
    LibraryKernelPtr kernel = params->func ? nullptr : find_library_kernel(params->kern);
    if (CUresult status = kernel ? function_in(*kernel, context, function)
                                 : resolve_function(params->func, function))
        return status;
    LaunchRequest request{{params->gridDimX, params->gridDimY, params->gridDimZ},
                          {params->blockDimX, params->blockDimY, params->blockDimZ}};
    request.shared = params->sharedMemBytes;
    request.parameters = params->kernelParams;
    request.extra = params->extra;
    if (auto *known = dynamic_cast<const KernelWork *>(old))
        known->give_attributes(request);
    PreparedLaunch launch;
    if (CUresult status = prepare_launch(function, *function->owner, request, launch))
        return status;
    if (CUresult status = check_node(launch))
        return status;
    work = std::make_shared<KernelWork>(std::move(launch), function->handle,
                                        kernel ? params->kern : nullptr);
    return CUDA_SUCCESS;
}

NodeWorkPtr make_kernel_work(PreparedLaunch launch, CUfunction handle) {
    auto kernel = reinterpret_cast<CUkernel>(handle);
    CUfunction function = launch.function->handle;
    return std::make_shared<KernelWork>(std::move(launch), function,
                                        find_library_kernel(kernel) ? kernel : nullptr);
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
        node, [&](auto &old, auto &work) { return make_kernel_work(call, params, work, &old); });
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
    return change_exec_node<KernelWork>(exec, node, [&](auto &old, auto &work) {
        return make_kernel_work(call, params, work, &old);
    });
}

SOFT_API(cuGraphExecKernelNodeSetParams,
         (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params),
         (exec, node, params)) {
    CUDA_KERNEL_NODE_PARAMS_v2 all;
    bool given = extend(params, all);
    return cuGraphExecKernelNodeSetParams_v2_body(call, exec, node, given ? &all : nullptr);
}

SOFT_API(cuGraphKernelNodeGetAttribute,
         (CUgraphNode node, CUkernelNodeAttrID attribute, CUkernelNodeAttrValue *value),
         (node, attribute, value)) {
    CUresult status = CUDA_SUCCESS;
    auto read = [&](const KernelWork &work) { status = work.read(int(attribute), value); };
    CUresult unusable = read_node<KernelWork>(node, value, read);
    return unusable ? unusable : status;
}

SOFT_API(cuGraphKernelNodeSetAttribute,
         (CUgraphNode handle, CUkernelNodeAttrID number, const CUkernelNodeAttrValue *value),
         (handle, number, value)) {
    CUlaunchAttribute attribute;
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = normalised(int(number), *value, attribute))
        return status;
    return change_node<KernelWork>(
        handle, [&](auto &old, auto &work) { return old.with(attribute, work); });
}

SOFT_API(cuGraphKernelNodeCopyAttributes, (CUgraphNode target, CUgraphNode source),
         (target, source)) {
    GraphNodePtr from = find_node(source);
    auto *model = from ? dynamic_cast<const KernelWork *>(from->work.get()) : nullptr;
    if (!model)
        return CUDA_ERROR_INVALID_VALUE;
    return change_node<KernelWork>(
        target, [&](auto &old, auto &work) { return old.with_attributes_of(*model, work); });
}

} // namespace soft
