#pragma once

#include "graph/exec.h"

namespace soft {

// Helpers of the functions for all kinds of nodes. In these helpers, `make` checks the arguments of
// a call and makes the work of a node from them.

// The graph and the dependencies of a node that is about to be added.
struct NodePlace {
    GraphPtr graph;
    std::vector<Edge> after;
};

// Checks the arguments that all functions that add a node have. `edges` has the data of each
// dependency, or is null.
CUresult find_place(const CUgraphNode *result, CUgraph graph, const CUgraphNode *after,
                    const void *edges, size_t count, NodePlace &place);

template <class Make>
CUresult add_node(CUgraphNode *result, CUgraph graph, const CUgraphNode *after, size_t count,
                  Make make, const void *edges = nullptr) {
    NodePlace place;
    NodeWorkPtr work;
    if (CUresult status = find_place(result, graph, after, edges, count, place))
        return status;
    if (CUresult status = make(work))
        return status;
    GraphNodePtr node = add_node(*place.graph, std::move(work), std::move(place.after));
    *result = handle_of(*node);
    return CUDA_SUCCESS;
}

// Calls `read` with the work of a node, if it is a Work and `result` is not null.
template <class Work, class Read>
CUresult read_node(CUgraphNode handle, const void *result, Read read) {
    GraphNodePtr node = find_node(handle);
    auto *work = node ? dynamic_cast<const Work *>(node->work.get()) : nullptr;
    if (!work || !result)
        return CUDA_ERROR_INVALID_VALUE;
    read(*work);
    return CUDA_SUCCESS;
}

// Gives a node the work that `make` makes. `make` also gets the node's old work.
template <class Work, class Make> CUresult change_node(CUgraphNode handle, Make make) {
    GraphNodePtr node = find_node(handle);
    NodeWorkPtr work;
    auto *old = node ? dynamic_cast<const Work *>(node->work.get()) : nullptr;
    if (!old)
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = make(*old, work))
        return status;
    node->work = std::move(work);
    return CUDA_SUCCESS;
}

// Finds the node of an executable graph that is the copy of a graph's node.
CUresult find_exec_node(CUgraphExec exec, CUgraphNode handle, GraphNodePtr &node);
// Gives a node of an executable graph other work, if that is possible.
CUresult replace_work(GraphNode &node, NodeWorkPtr work);

template <class Work, class Make>
CUresult change_exec_node(CUgraphExec exec, CUgraphNode handle, Make make) {
    GraphNodePtr node;
    NodeWorkPtr work;
    if (CUresult status = find_exec_node(exec, handle, node))
        return status;
    auto *old = dynamic_cast<const Work *>(node->work.get());
    if (!old)
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = make(*old, work))
        return status;
    return replace_work(*node, std::move(work));
}

} // namespace soft
