#include "api/call.h"
#include "graph/node_api.h"
#include "graph/works.h"
#include "stream/transfer.h"

// Nodes that copy.

namespace soft {
namespace {

class CopyWork : public NodeWork {
  public:
    CopyWork(const CUDA_MEMCPY3D_v2 &box, const ContextPtr &context)
        : box(box), context_(context) {}

    CUgraphNodeType type() const override { return CU_GRAPH_NODE_TYPE_MEMCPY; }
    ContextPtr context() const override { return context_; }
    bool can_be_disabled() const override { return true; }
    // The memory is looked up at each launch, because the program may have freed it.
    std::vector<OperationPtr> prepare(Stream &) const override {
        Transfer transfer{};
        CUresult status = read_box(box, transfer);
        if (status)
            return {failing_operation(CUDA_ERROR_ILLEGAL_ADDRESS)};
        return {transfer.bytes() ? copy_operation(transfer, false)
                                 : std::make_shared<Operation>()};
    }
    CUgraphExecUpdateResult replaceable(const NodeWork &next) const override {
        const CUDA_MEMCPY3D_v2 &other = static_cast<const CopyWork &>(next).box;
        bool same = box.srcMemoryType == other.srcMemoryType &&
                    box.dstMemoryType == other.dstMemoryType;
        return same ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                    : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    }

    const CUDA_MEMCPY3D_v2 box;

  private:
    ContextPtr context_;
};

} // namespace

CUresult make_copy_work(const CUDA_MEMCPY3D_v2 *params, CUcontext handle, NodeWorkPtr &work) {
    ContextPtr context = find_context(handle);
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = context_status(context.get()))
        return status;
    Transfer transfer{};
    if (CUresult status = read_box(*params, transfer))
        return status;
    if (CUresult status = check_pools(*context, transfer.target, transfer.source))
        return status;
    work = std::make_shared<CopyWork>(*params, context);
    return CUDA_SUCCESS;
}

NodeWorkPtr make_copy_work(const Transfer &transfer, const ContextPtr &context) {
    return std::make_shared<CopyWork>(box_of(transfer), context);
}

SOFT_API(cuGraphAddMemcpyNode,
         (CUgraphNode * node, CUgraph graph, const CUgraphNode *after, size_t count,
          const CUDA_MEMCPY3D_v2 *params, CUcontext context),
         (node, graph, after, count, params, context)) {
    return add_node(node, graph, after, count,
                    [&](auto &work) { return make_copy_work(params, context, work); });
}

SOFT_API(cuGraphMemcpyNodeGetParams, (CUgraphNode node, CUDA_MEMCPY3D_v2 *params),
         (node, params)) {
    return read_node<CopyWork>(node, params, [&](auto &work) { *params = work.box; });
}

SOFT_API(cuGraphMemcpyNodeSetParams, (CUgraphNode node, const CUDA_MEMCPY3D_v2 *params),
         (node, params)) {
    GraphNodePtr found = find_node(node);
    CUcontext context = found && found->work->context() ? found->work->context()->handle : nullptr;
    return change_node<CopyWork>(
        node, [&](auto &work) { return make_copy_work(params, context, work); });
}

SOFT_API(cuGraphExecMemcpyNodeSetParams,
         (CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D_v2 *params, CUcontext context),
         (exec, node, params, context)) {
    return change_exec_node<CopyWork>(
        exec, node, [&](auto &work) { return make_copy_work(params, context, work); });
}

} // namespace soft
