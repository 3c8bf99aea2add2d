#include "api/call.h"
#include "api/state.h"
#include "base/unsupported.h"
#include "graph/conditional_node.h"
#include "graph/node_api.h"
#include "graph/node_params.h"
#include "graph/works.h"

// cuGraphAddNode, which adds nodes of any kind, and the functions that change such nodes.

namespace soft {
namespace {

NodeParams *params_of(void *structure) { return static_cast<NodeParams *>(structure); }

bool valid(const NodeParams *params) {
    return params && !params->reserved[0] && !params->reserved[1] && !params->reserved[2] &&
           !params->last_reserved;
}

// Makes the work of a node of the graph. `old` is the work that the node has so far, or null.
CUresult make_work(Call &call, NodeParams &params, Graph &graph, NodeWorkPtr &work,
                   const NodeWork *old = nullptr) {
    switch (params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return make_kernel_work(call, &params.kernel, work, old);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return params.copy.flags || params.copy.reserved
                   ? CUDA_ERROR_INVALID_VALUE
                   : make_copy_work(call, &params.copy.copy, params.copy.context, work);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return make_fill_work(call, &params.fill.fill, params.fill.context, work);
    case CU_GRAPH_NODE_TYPE_HOST:
        return make_host_work(&params.host, work);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return make_child_work(graph, params.child.graph, params.child.ownership, work);
    case CU_GRAPH_NODE_TYPE_EMPTY:
        work = make_empty_work();
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return make_wait_work(params.event, work);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return make_record_work(params.event, work);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return make_alloc_work(call, &params.alloc, work);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return make_free_work(graph, params.free, work);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return make_value_work(&params.values, work);
    case conditional_type:
        return make_conditional_work(graph, params.conditional, work);
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
        return not_supported("nodes for external semaphores");
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult add_any(Call &call, CUgraphNode *result, CUgraph graph, const CUgraphNode *after,
                 const void *edges, size_t count, void *structure) {
    NodeParams *params = params_of(structure);
    if (!valid(params))
        return CUDA_ERROR_INVALID_VALUE;
    auto make = [&](NodeWorkPtr &work) {
        return make_work(call, *params, *find_graph(graph), work);
    };
    return add_node(result, graph, after, count, make, edges);
}

// Returns true if the parameters are for a node of the same kind, which must be one that can
// change.
bool can_change(const GraphNode &node, const NodeParams *params) {
    return valid(params) && params->type == node.work->type() && params->type != conditional_type &&
           params->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
           params->type != CU_GRAPH_NODE_TYPE_MEM_FREE;
}

// Makes the new work of a node whose parameters change.
CUresult make_other_work(Call &call, const GraphNode &node, NodeParams *params, const NodeWork &old,
                         NodeWorkPtr &work) {
    return can_change(node, params) ? make_work(call, *params, *node.graph, work, &old)
                                    : CUDA_ERROR_INVALID_VALUE;
}

} // namespace

SOFT_API(cuGraphAddNode,
         (CUgraphNode * node, CUgraph graph, const CUgraphNode *after, size_t count,
          CUgraphNodeParams *params),
         (node, graph, after, count, params)) {
    return add_any(call, node, graph, after, nullptr, count, params);
}

SOFT_API(cuGraphAddNode_v2,
         (CUgraphNode * node, CUgraph graph, const CUgraphNode *after, const CUgraphEdgeData *edges,
          size_t count, CUgraphNodeParams *params),
         (node, graph, after, edges, count, params)) {
    return add_any(call, node, graph, after, edges, count, params);
}

SOFT_API(cuGraphNodeSetParams, (CUgraphNode handle, CUgraphNodeParams *params), (handle, params)) {
    GraphNodePtr node = find_node(handle);
    NodeWorkPtr old = node ? node->work : nullptr;
    CUresult status = change_node<NodeWork>(handle, [&](auto &present, auto &work) {
        return make_other_work(call, *node, params_of(params), present, work);
    });
    if (status)
        return status;
    for (const GraphPtr &inner : old->inner()) // a new copy has replaced this inner graph
        erase_handles(*inner);
    return CUDA_SUCCESS;
}

SOFT_API(cuGraphExecNodeSetParams,
         (CUgraphExec exec, CUgraphNode handle, CUgraphNodeParams *params),
         (exec, handle, params)) {
    const NodeParams *all = params_of(params);
    if (valid(all) && all->type == CU_GRAPH_NODE_TYPE_GRAPH)
        return update_child(exec, handle, all->child.graph);
    return change_exec_node<NodeWork>(exec, handle, [&](auto &present, auto &work) {
        return make_other_work(call, *find_node(handle), params_of(params), present, work);
    });
}

SOFT_API(cuGraphNodeGetParams, (CUgraphNode node, CUgraphNodeParams *params), (node, params)) {
    return read_node<NodeWork>(node, params, [&](const NodeWork &work) {
        NodeParams &all = *params_of(params);
        all = {};
        all.type = work.type();
        work.describe(all);
    });
}

} // namespace soft
