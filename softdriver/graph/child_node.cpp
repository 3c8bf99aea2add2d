#include "api/call.h"
#include "graph/node_api.h"
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

    const GraphPtr graph;
};

} // namespace

NodeWorkPtr make_child_work(GraphPtr graph) { return std::make_shared<ChildWork>(std::move(graph)); }

SOFT_API(cuGraphAddChildGraphNode,
         (CUgraphNode * node, CUgraph graph, const CUgraphNode *after, size_t count, CUgraph child),
         (node, graph, after, count, child)) {
    return add_node(node, graph, after, count, [&](auto &work) {
        GraphPtr found = find_graph(child);
        if (!found)
            return CUDA_ERROR_INVALID_VALUE;
        if (allocates(*found))
            return CUDA_ERROR_NOT_SUPPORTED;
        work = make_child_work(copy_graph(*found));
        return CUDA_SUCCESS;
    });
}

SOFT_API(cuGraphChildGraphNodeGetGraph, (CUgraphNode node, CUgraph *graph), (node, graph)) {
    return read_node<ChildWork>(node, graph, [&](auto &work) { *graph = handle_of(*work.graph); });
}

SOFT_API(cuGraphExecChildGraphNodeSetParams, (CUgraphExec exec, CUgraphNode handle, CUgraph child),
         (exec, handle, child)) {
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

} // namespace soft
