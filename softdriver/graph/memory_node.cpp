#include "api/call.h"

#include "api/state.h"
#include "base/undefined.h"
#include "base/unsupported.h"
#include "graph/conditional_node.h"
#include "graph/node_api.h"
#include "graph/node_params.h"
#include "graph/works.h"

#include <cstring>

// Nodes that allocate and free memory.

namespace soft {
namespace {

constexpr unsigned char fresh_memory = 0xCD;

class AllocWork : public NodeWork {
  public:
    AllocWork(const CUDA_MEM_ALLOC_NODE_PARAMS &given, GraphMemoryPtr memory, ContextPtr context)
        : access_(given.accessDescs, given.accessDescs + given.accessDescCount), params_(given),
          memory_(std::move(memory)), context_(std::move(context)) {
        params_.accessDescs = access_.empty() ? nullptr : access_.data();
    }

    CUgraphNodeType type() const override { return CU_GRAPH_NODE_TYPE_MEM_ALLOC; }
    ContextPtr context() const override { return context_; }
    // The memory must have been freed since the last launch, unless this launch frees it first.
    CUresult check(uint64_t flags) const override {
        bool frees = flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        return find_allocation(*memory_) && (frees || !memory_->there) ? CUDA_SUCCESS
                                                                       : CUDA_ERROR_INVALID_VALUE;
    }
    CUgraphExecUpdateResult replaceable(const NodeWork &next) const override {
        return &next == this ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                             : CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
    }
    // The operation overwrites the contents of the memory.
    std::vector<OperationPtr> prepare(Stream &) const override {
        const Allocation &allocation = *find_allocation(*memory_);
        auto operation = std::make_shared<Operation>();
        operation->writes.push_back({allocation.begin, allocation.bytes});
        operation->action = [host = allocation.host, begin = allocation.begin,
                             bytes = allocation.bytes] {
            std::memset(host, fresh_memory, bytes);
            undefined_memory().track(begin, bytes);
        };
        return {operation};
    }
    void submitted(const std::vector<OperationPtr> &) const override {
        set_there(*find_allocation(*memory_), true);
    }
    void describe(NodeParams &all) const override { all.alloc = params_; }
    const CUDA_MEM_ALLOC_NODE_PARAMS &parameters() const { return params_; }

  private:
    std::vector<CUmemAccessDesc> access_; // the array to which params_ points
    CUDA_MEM_ALLOC_NODE_PARAMS params_;
    GraphMemoryPtr memory_;
    ContextPtr context_;
};

class FreeWork : public NodeWork {
  public:
    FreeWork(CUdeviceptr address, ContextPtr context)
        : address(address), context_(std::move(context)) {}

    CUgraphNodeType type() const override { return CU_GRAPH_NODE_TYPE_MEM_FREE; }
    ContextPtr context() const override { return context_; }
    std::vector<OperationPtr> prepare(Stream &) const override {
        auto operation = std::make_shared<Operation>();
        if (const Allocation *allocation = find_start(address))
            operation->writes.push_back({allocation->begin, allocation->bytes});
        return {operation};
    }
    void submitted(const std::vector<OperationPtr> &operations) const override {
        Allocation *allocation = find_start(address);
        if (!allocation)
            return;
        if (!allocation->graph.expired()) {
            set_there(*allocation, false);
            return;
        }
        Remains remains = remove_allocation(*allocation, true);
        operations.back()->kept.emplace_back(nullptr, [=](void *) { release_memory(remains); });
    }
    void describe(NodeParams &params) const override { params.free = address; }

    const CUdeviceptr address;

  private:
    ContextPtr context_;
};

bool frees(const Graph &graph, CUdeviceptr address) {
    for (const auto &entry : graph.nodes)
        if (auto *work = dynamic_cast<const FreeWork *>(entry.second->work.get()))
            if (work->address == address)
                return true;
    return false;
}

} // namespace

bool allocates(const Graph &graph) {
    for (const auto &entry : graph.nodes) {
        CUgraphNodeType type = entry.second->work->type();
        if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_MEM_FREE)
            return true;
        for (const GraphPtr &inner : entry.second->work->inner())
            if (allocates(*inner))
                return true;
    }
    return false;
}

bool is_unique(const Graph &graph) {
    std::vector<ConditionPtr> conditions;
    find_conditions(graph, conditions);
    return allocates(graph) || !conditions.empty();
}

CUresult make_alloc_work(Call &call, CUDA_MEM_ALLOC_NODE_PARAMS *params, NodeWorkPtr &work) {
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    PoolPlace place;
    bool listed = params->accessDescs || !params->accessDescCount;
    if (params->poolProps.handleTypes || !listed)
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status =
            find_pool_place(params->poolProps.allocType, params->poolProps.location, place))
        return status;
    int location = static_cast<int>(place.location.type);
    if (!params->bytesize)
        return CUDA_ERROR_INVALID_VALUE;
    if (location != location_device)
        return not_supported("the location of the pool is not a device (type " +
                             std::to_string(location) + ")");
    const Device &device = *state().devices[place.location.id];
    bool current = call.context && call.context->device == &device;
    const ContextPtr &context = current ? call.context : device.primary;
    if (CUresult status = context_status(context.get()))
        return status;
    Allocation *allocation = nullptr;
    CUresult status =
        place.kind == MemoryKind::Managed
            ? allocate_managed(*context, params->bytesize, CU_MEM_ATTACH_GLOBAL, allocation)
            : allocate_device(*context, params->bytesize, MemoryKind::Async, allocation);
    if (status)
        return status;
    params->dptr = allocation->begin;
    work = make_alloc_work(*params, give_to_graph(*allocation), context);
    return CUDA_SUCCESS;
}

NodeWorkPtr make_alloc_work(const CUDA_MEM_ALLOC_NODE_PARAMS &params, GraphMemoryPtr memory,
                            const ContextPtr &context) {
    return std::make_shared<AllocWork>(params, std::move(memory), context);
}

CUresult make_free_work(const Graph &graph, CUdeviceptr address, NodeWorkPtr &work) {
    const Allocation *allocation = find_start(address);
    if (!allocation || allocation->graph.expired() || frees(graph, address))
        return CUDA_ERROR_INVALID_VALUE;
    work = make_free_work(address, find_context(allocation->context));
    return CUDA_SUCCESS;
}

NodeWorkPtr make_free_work(CUdeviceptr address, const ContextPtr &context) {
    return std::make_shared<FreeWork>(address, context);
}

SOFT_API(cuGraphAddMemAllocNode,
         (CUgraphNode * node, CUgraph graph, const CUgraphNode *after, size_t count,
          CUDA_MEM_ALLOC_NODE_PARAMS *params),
         (node, graph, after, count, params)) {
    return add_node(node, graph, after, count,
                    [&](auto &work) { return make_alloc_work(call, params, work); });
}

SOFT_API(cuGraphMemAllocNodeGetParams, (CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *params),
         (node, params)) {
    return read_node<AllocWork>(node, params, [&](auto &work) { *params = work.parameters(); });
}

SOFT_API(cuGraphAddMemFreeNode,
         (CUgraphNode * node, CUgraph graph, const CUgraphNode *after, size_t count,
          CUdeviceptr address),
         (node, graph, after, count, address)) {
    return add_node(node, graph, after, count,
                    [&](auto &work) { return make_free_work(*find_graph(graph), address, work); });
}

SOFT_API(cuGraphMemFreeNodeGetParams, (CUgraphNode node, CUdeviceptr *address), (node, address)) {
    return read_node<FreeWork>(node, address, [&](auto &work) { *address = work.address; });
}

} // namespace soft
