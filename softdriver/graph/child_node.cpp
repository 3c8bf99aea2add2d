#include "api/call.h"
#include "base/unsupported.h"
#include "graph/node_api.h"
#include "graph/node_params.h"
#include "graph/update.h"
#include "graph/works.h"

// Nodes that run another graph.

namespace soft {
namespace {

class ChildWork : public NodeWork {
  public:
    explicit ChildWork(GraphPtr graph) : graph(std::move(graph)) { this->graph->inside = true; }

    CUgraphNodeType type() const override { return CU_GRAPH_NODE_TYPE_GRAPH; }
    std::vector<OperationPtr> prepare(Stream &) const override { return {}; }
    std::vector<GraphPtr> inner() const override { return {graph}; }
    NodeWorkPtr copy() const override { return std::make_shared<ChildWork>(copy_graph(*graph)); }
    void describe(NodeParams &params) const override { params.child.graph = handle_of(*graph); }
    NodeWorkPtr updated(const NodeWork &) const override { return shared_from_this(); }

    const GraphPtr graph;
};

} // namespace

CUresult make_child_work(Graph &parent, CUgraph child, int ownership, NodeWorkPtr &work) {
    GraphPtr graph = find_graph(child);
    if (!graph || ownership < 0 || ownership > 1)
        return CUDA_ERROR_INVALID_VALUE;
    if (!ownership && is_unique(*graph))
        return not_supported("the child graph has nodes that exist only once: it cannot be copied");
    if (ownership && (graph->inside || graph->capture || is_within(parent, *graph)))
        return CUDA_ERROR_INVALID_VALUE;
    work = std::make_shared<ChildWork>(ownership ? graph : copy_graph(*graph));
    return CUDA_SUCCESS;
}

SOFT_API(cuGraphAddChildGraphNode,
         (CUgraphNode * node, CUgraph graph, const CUgraphNode *after, size_t count, CUgraph child),
         (node, graph, after, count, child)) {
    return add_node(node, graph, after, count, [&](auto &work) {
        return make_child_work(*find_graph(graph), child, 0, work);
    });
}

SOFT_API(cuGraphChildGraphNodeGetGraph, (CUgraphNode node, CUgraph *graph), (node, graph)) {
    return read_node<ChildWork>(node, graph, [&](auto &work) { *graph = handle_of(*work.graph); });
}

CUresult update_child(CUgraphExec exec, CUgraphNode handle, CUgraph child) {
    GraphNodePtr node;
    GraphPtr graph = find_graph(child);
    if (CUresult status = find_exec_node(exec, handle, node))
        return status;
    auto *work = dynamic_cast<const ChildWork *>(node->work.get());
    if (!work || !graph)
        return CUDA_ERROR_INVALID_VALUE;
    UpdateResult result;
    return update_graph(*work->graph, *graph, result);
}

SOFT_API(cuGraphExecChildGraphNodeSetParams, (CUgraphExec exec, CUgraphNode handle, CUgraph child),
         (exec, handle, child)) {
    return update_child(exec, handle, child);
}

} // namespace soft
