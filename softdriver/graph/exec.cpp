#include "graph/exec.h"

#include "api/call.h"
#include "api/state.h"
#include "base/unsupported.h"
#include "graph/conditional_node.h"
#include "graph/node_api.h"
#include "graph/works.h"

#include <algorithm>
#include <set>

// Instantiation, and changes of single nodes of executable graphs.

namespace soft {
namespace {

constexpr uint64_t known_flags =
    CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
    CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

// Flags that cuGraphExecGetFlags returns.
constexpr uint64_t lasting_flags =
    CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;

bool valid_flags(uint64_t flags) {
    constexpr uint64_t contradiction =
        CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
    return !(flags & ~known_flags) && (flags & contradiction) != contradiction;
}

// If the graph has a cycle, returns the graph's newest node. Otherwise returns null.
GraphNodePtr node_in_circle(const Graph &graph) {
    std::set<uint64_t> sound;
    for (const GraphNodePtr &node : sorted(graph))
        sound.insert(node->id);
    for (auto entry = graph.nodes.rbegin(); entry != graph.nodes.rend(); ++entry)
        if (!sound.count(entry->first))
            return entry->second;
    return nullptr;
}

// An additional flag for check_structure: the graph is a body of a conditional node, which may
// contain only work of the device, like a graph that kernels launch.
constexpr uint64_t in_body = uint64_t(1) << 63;
constexpr int handle_unused = 5; // CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED

uint64_t body_flag(CUgraphNodeType type) { return type == conditional_type ? in_body : 0; }

// Returns an error if the graph, or a graph inside, cannot be launched as the flags demand. Then
// sets `reason`, and `culprit` to the node that causes the error.
CUresult check_structure(const Graph &graph, uint64_t flags, CUgraphInstantiateResult &reason,
                         GraphNodePtr &culprit) {
    culprit = node_in_circle(graph);
    if (culprit) {
        reason = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (const auto &entry : graph.nodes) {
        CUgraphNodeType type = entry.second->work->type();
        bool on_device = type == CU_GRAPH_NODE_TYPE_KERNEL || type == conditional_type ||
                         type == CU_GRAPH_NODE_TYPE_MEMCPY || type == CU_GRAPH_NODE_TYPE_MEMSET ||
                         type == CU_GRAPH_NODE_TYPE_EMPTY || type == CU_GRAPH_NODE_TYPE_GRAPH;
        if ((flags & (CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | in_body)) && !on_device) {
            reason = CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
            culprit = entry.second;
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (CUresult status = entry.second->work->check_instantiation()) {
            reason = CUDA_GRAPH_INSTANTIATE_ERROR;
            return status;
        }
        if (flags & in_body)
            if (CUresult status = entry.second->work->check_body()) {
                reason = CUDA_GRAPH_INSTANTIATE_ERROR;
                return status;
            }
        for (const GraphPtr &inner : entry.second->work->inner())
            if (CUresult status = check_structure(*inner, flags | body_flag(type), reason, culprit))
                return status;
    }
    bool unused = std::any_of(graph.conditions.begin(), graph.conditions.end(),
                              [](const ConditionPtr &condition) { return !condition->used; });
    if (unused)
        reason = static_cast<CUgraphInstantiateResult>(handle_unused);
    return unused ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// Returns true if `other` is a copy of `graph`, or has such a copy inside.
bool has_copy(const Graph &other, const Graph &graph) {
    if (other.origin == graph.id)
        return true;
    for (const auto &entry : other.nodes)
        for (const GraphPtr &inner : entry.second->work->inner())
            if (has_copy(*inner, graph))
                return true;
    return false;
}

// Returns true for a graph with conditional nodes or allocations that has an executable graph
// already, or a copy in a node of another graph. The copy may have been made before the graph got
// these nodes. A copy of a copy does not count, nor does a copy in the executable graph of another
// graph.
bool is_taken(const Graph &graph) {
    auto &graphs = state().graphs;
    auto &execs = state().execs;
    return is_unique(graph) &&
           (std::any_of(execs.begin(), execs.end(),
                        [&](auto &entry) { return entry.second->image->origin == graph.id; }) ||
            std::any_of(graphs.begin(), graphs.end(),
                        [&](auto &entry) { return has_copy(*entry.second, graph); }));
}

// Returns the device of the conditional nodes, or null if the graph has none.
Device *device_of_conditions(const Graph &graph) {
    for (const auto &entry : graph.nodes)
        if (entry.second->work->type() == conditional_type)
            return entry.second->work->context()->device;
    return nullptr;
}

CUresult instantiate(Call &call, CUgraphExec *result, CUgraph handle, uint64_t flags,
                     CUgraphInstantiateResult &reason, GraphNodePtr &culprit) {
    GraphPtr graph = find_graph(handle);
    reason = CUDA_GRAPH_INSTANTIATE_ERROR;
    if (!result || !graph || !valid_flags(flags) || is_damaged(*graph))
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = context_status(call.context.get()))
        return status;
    if (graph->inside || is_taken(*graph))
        return not_supported("the graph is a part of another one, or allocates memory and has an "
                             "executable graph");
    if (CUresult status = check_structure(*graph, flags, reason, culprit))
        return status;
    reason = CUDA_GRAPH_INSTANTIATE_SUCCESS;
    auto exec = std::make_shared<GraphExec>();
    exec->id = state().new_id();
    exec->flags = flags & lasting_flags;
    exec->image = copy_graph(*graph);
    exec->handle = reinterpret_cast<CUgraphExec>(state().execs.insert(exec, state().reuse()));
    *result = exec->handle;
    return CUDA_SUCCESS;
}

CUresult instantiate(Call &call, CUgraphExec *result, CUgraph handle, uint64_t flags,
                     GraphNodePtr &culprit) {
    CUgraphInstantiateResult reason;
    if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) // this flag requires a stream
        return CUDA_ERROR_INVALID_VALUE;
    return instantiate(call, result, handle, flags, reason, culprit);
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

SOFT_API(cuGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long flags),
         (exec, graph, flags)) {
    GraphNodePtr culprit;
    return instantiate(call, exec, graph, flags, culprit);
}

SOFT_STREAM_API(cuGraphInstantiateWithParams,
                (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params),
                (exec, graph, params)) {
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    GraphNodePtr culprit;
    StreamPtr stream;
    if (params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)
        if (CUresult status = resolve_stream(call, params->hUploadStream, stream))
            return status;
    CUresult status = instantiate(call, exec, graph, params->flags, params->result_out, culprit);
    params->hErrNode_out = culprit ? handle_of(*culprit) : nullptr;
    return status;
}

SOFT_API(cuGraphInstantiate_v2,
         (CUgraphExec * exec, CUgraph graph, CUgraphNode *node, char *text, size_t bytes),
         (exec, graph, node, text, bytes)) {
    GraphNodePtr culprit;
    CUresult status = instantiate(call, exec, graph, 0, culprit);
    if (node)
        *node = culprit ? handle_of(*culprit) : nullptr;
    if (text && bytes)
        *text = 0;
    return status;
}

SOFT_API(cuGraphInstantiate,
         (CUgraphExec * exec, CUgraph graph, CUgraphNode *node, char *text, size_t bytes),
         (exec, graph, node, text, bytes)) {
    return cuGraphInstantiate_v2_body(call, exec, graph, node, text, bytes);
}

// Launches that have not finished go on: their operations keep what they need. If the graph has
// conditional nodes, the call waits for the device, as on a real driver.
SOFT_API(cuGraphExecDestroy, (CUgraphExec handle), (handle)) {
    GraphExecPtr exec = find_exec(handle);
    if (!exec)
        return CUDA_ERROR_INVALID_VALUE;
    if (Device *device = device_of_conditions(*exec->image))
        state().scheduler.finish(call.lock, device_targets(*device));
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
