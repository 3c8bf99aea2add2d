#include "graph/exec.h"

#include "api/call.h"
#include "api/state.h"
#include "graph/node_api.h"
#include "graph/works.h"

// Instantiation, and changes of single nodes of executable graphs.

namespace soft {
namespace {

constexpr uint64_t known_flags = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                                 CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
                                 CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH |
                                 CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

CUresult instantiate(CUgraphExec *result, CUgraph handle, uint64_t flags) {
    GraphPtr graph = find_graph(handle);
    if (!result || !graph || graph->inside || (flags & ~known_flags))
        return CUDA_ERROR_INVALID_VALUE;
    if (!graph->nodes.empty() && sorted(*graph).empty())
        return CUDA_ERROR_INVALID_VALUE;
    auto exec = std::make_shared<GraphExec>();
    exec->id = state().new_id();
    exec->flags = flags;
    exec->image = copy_graph(*graph);
    exec->handle = reinterpret_cast<CUgraphExec>(state().execs.insert(exec, state().reuse()));
    *result = exec->handle;
    return CUDA_SUCCESS;
}

GraphNodePtr find_copy(const Graph &image, const GraphNode &node) {
    if (image.origin == node.graph->id)
        return image.find_copy(node.id);
    for (const auto &entry : image.nodes)
        for (const GraphPtr &inner : entry.second->work->inner())
            if (GraphNodePtr found = find_copy(*inner, node))
                return found;
    return nullptr;
}

} // namespace

GraphExecPtr find_exec(CUgraphExec handle) {
    return state().execs.find(reinterpret_cast<uintptr_t>(handle));
}

CUresult find_exec_node(CUgraphExec exec_handle, CUgraphNode handle, GraphNodePtr &node) {
    GraphExecPtr exec = find_exec(exec_handle);
    GraphNodePtr original = find_node(handle);
    node = exec && original ? find_copy(*exec->image, *original) : nullptr;
    return node ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult replace_work(GraphNode &node, NodeWorkPtr work) {
    if (node.work->replaceable(*work))
        return CUDA_ERROR_INVALID_VALUE;
    node.work = std::move(work);
    return CUDA_SUCCESS;
}

SOFT_API(cuGraphInstantiateWithFlags,
         (CUgraphExec * exec, CUgraph graph, unsigned long long flags), (exec, graph, flags)) {
    return instantiate(exec, graph, flags);
}

SOFT_STREAM_API(cuGraphInstantiateWithParams,
                (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params),
                (exec, graph, params)) {
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult status = instantiate(exec, graph, params->flags);
    params->hErrNode_out = nullptr;
    params->result_out =
        status ? CUDA_GRAPH_INSTANTIATE_ERROR : CUDA_GRAPH_INSTANTIATE_SUCCESS;
    return status;
}

SOFT_API(cuGraphInstantiate_v2,
         (CUgraphExec * exec, CUgraph graph, CUgraphNode *node, char *text, size_t bytes),
         (exec, graph, node, text, bytes)) {
    if (node)
        *node = nullptr;
    if (text && bytes)
        *text = 0;
    return instantiate(exec, graph, 0);
}

SOFT_API(cuGraphInstantiate,
         (CUgraphExec * exec, CUgraph graph, CUgraphNode *node, char *text, size_t bytes),
         (exec, graph, node, text, bytes)) {
    return cuGraphInstantiate_v2_body(call, exec, graph, node, text, bytes);
}

// Launches that have not finished go on: their operations keep what they need.
SOFT_API(cuGraphExecDestroy, (CUgraphExec handle), (handle)) {
    if (!find_exec(handle))
        return CUDA_ERROR_INVALID_VALUE;
    state().execs.erase(reinterpret_cast<uintptr_t>(handle));
    return CUDA_SUCCESS;
}

SOFT_API(cuGraphExecGetFlags, (CUgraphExec handle, cuuint64_t *flags), (handle, flags)) {
    GraphExecPtr exec = find_exec(handle);
    if (!exec || !flags)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = exec->flags;
    return CUDA_SUCCESS;
}

SOFT_API(cuGraphNodeSetEnabled, (CUgraphExec exec, CUgraphNode handle, unsigned enabled),
         (exec, handle, enabled)) {
    GraphNodePtr node;
    if (CUresult status = find_exec_node(exec, handle, node))
        return status;
    if (!node->work->can_be_disabled())
        return CUDA_ERROR_INVALID_VALUE;
    node->enabled = enabled != 0;
    return CUDA_SUCCESS;
}

SOFT_API(cuGraphNodeGetEnabled, (CUgraphExec exec, CUgraphNode handle, unsigned *enabled),
         (exec, handle, enabled)) {
    GraphNodePtr node;
    if (CUresult status = find_exec_node(exec, handle, node))
        return status;
    if (!enabled || !node->work->can_be_disabled())
        return CUDA_ERROR_INVALID_VALUE;
    *enabled = node->enabled;
    return CUDA_SUCCESS;
}

} // namespace soft
