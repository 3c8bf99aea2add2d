#include "api/call.h"
#include "graph/node_api.h"
#include "graph/node_params.h"
#include "graph/works.h"
#include "stream/value.h"

// Nodes that wait for values in memory, or write such values.

namespace soft {
namespace {

class ValueWork : public NodeWork {
  public:
    ValueWork(std::vector<CUstreamBatchMemOpParams> items, ContextPtr context)
        : items_(std::move(items)), context_(std::move(context)) {}

    CUgraphNodeType type() const override { return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP; }
    ContextPtr context() const override { return context_; }
    std::vector<OperationPtr> prepare(Stream &) const override {
        std::vector<OperationPtr> operations(items_.size());
        for (size_t i = 0; i < items_.size(); i++)
            if (make_value_operation(items_[i], operations[i]))
                operations[i] = failing_operation(CUDA_ERROR_ILLEGAL_ADDRESS);
        return operations;
    }
    // A driver of CUDA 13.0 changes only the addresses and numbers of a node that is ready to run.
    CUgraphExecUpdateResult replaceable(const NodeWork &next) const override {
        const auto &other = static_cast<const ValueWork &>(next);
        auto same_kind = [](const CUstreamBatchMemOpParams &one,
                            const CUstreamBatchMemOpParams &two) {
            return one.operation == two.operation;
        };
        bool same = context_ == other.context_ &&
                    std::equal(items_.begin(), items_.end(), other.items_.begin(),
                               other.items_.end(), same_kind);
        return same ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    }
    void describe(NodeParams &params) const override { describe(params.values); }
    void describe(CUDA_BATCH_MEM_OP_NODE_PARAMS &params) const {
        params = {};
        params.ctx = context_->handle;
        params.count = static_cast<unsigned>(items_.size());
        params.paramArray = const_cast<CUstreamBatchMemOpParams *>(items_.data());
    }

  private:
    std::vector<CUstreamBatchMemOpParams> items_;
    ContextPtr context_;
};

} // namespace

CUresult make_value_work(const CUDA_BATCH_MEM_OP_NODE_PARAMS *params, NodeWorkPtr &work) {
    if (!params || !params->paramArray || !params->count || params->count > max_values ||
        params->flags)
        return CUDA_ERROR_INVALID_VALUE;
    ContextPtr context = find_context(params->ctx);
    if (CUresult status = context_status(context.get()))
        return status;
    std::vector<CUstreamBatchMemOpParams> items(params->paramArray,
                                                params->paramArray + params->count);
    for (const auto &item : items) {
        OperationPtr operation;
        if (CUresult status = make_value_operation(item, operation))
            return status;
        if (CUresult status = check_reach(*context, *operation))
            return status;
    }
    work = make_value_work(std::move(items), context);
    return CUDA_SUCCESS;
}

NodeWorkPtr make_value_work(std::vector<CUstreamBatchMemOpParams> items,
                            const ContextPtr &context) {
    return std::make_shared<ValueWork>(std::move(items), context);
}

SOFT_API(cuGraphAddBatchMemOpNode,
         (CUgraphNode * node, CUgraph graph, const CUgraphNode *after, size_t count,
          const CUDA_BATCH_MEM_OP_NODE_PARAMS *params),
         (node, graph, after, count, params)) {
    return add_node(node, graph, after, count,
                    [&](auto &work) { return make_value_work(params, work); });
}

SOFT_API(cuGraphBatchMemOpNodeGetParams, (CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS *params),
         (node, params)) {
    return read_node<ValueWork>(node, params, [&](auto &work) { work.describe(*params); });
}

SOFT_API(cuGraphBatchMemOpNodeSetParams,
         (CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params), (node, params)) {
    return change_node<ValueWork>(
        node, [&](auto &, auto &work) { return make_value_work(params, work); });
}

SOFT_API(cuGraphExecBatchMemOpNodeSetParams,
         (CUgraphExec exec, CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params),
         (exec, node, params)) {
    if (params && !params->ctx)
        return CUDA_ERROR_INVALID_VALUE; // other functions say INVALID_CONTEXT
    return change_exec_node<ValueWork>(
        exec, node, [&](auto &, auto &work) { return make_value_work(params, work); });
}

} // namespace soft
