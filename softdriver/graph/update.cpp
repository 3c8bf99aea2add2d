#include "graph/update.h"

#include "api/call.h"
#include "graph/exec.h"

// Updates of executable graphs from other graphs.

namespace soft {
namespace {

using Pairs = std::map<GraphNodePtr, GraphNodePtr>; // nodes of the image by nodes of the graph

// Pairs the nodes of two graphs, in the order of their creation.
bool pair_nodes(const Graph &image, const Graph &graph, Pairs &pairs, UpdateResult &result);

bool fail(UpdateResult &result, CUgraphExecUpdateResult reason, const GraphNodePtr &node,
          const GraphNodePtr &from = nullptr) {
    result = {reason, node, from};
    return false;
}

// Checks whether the edges to a node match the edges to its partner.
bool edges_match(const Graph &image, const Graph &graph, const GraphNodePtr &old,
                 const GraphNodePtr &node, UpdateResult &result) {
    bool more = node->after.size() > old->after.size();
    if (node->after.size() != old->after.size())
        return fail(result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, more ? nullptr : node);
    auto place = [](const Graph &all, uint64_t id) {
        return std::distance(all.nodes.begin(), all.nodes.find(id));
    };
    for (size_t i = 0; i < node->after.size(); i++)
        if (place(image, old->after[i].from) != place(graph, node->after[i].from))
            return fail(result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, node,
                        graph.find(node->after[i].from));
    return true;
}

bool pair_node(const Graph &image, const Graph &graph, const GraphNodePtr &old,
               const GraphNodePtr &node, Pairs &pairs, UpdateResult &result) {
    if (!edges_match(image, graph, old, node, result))
        return false;
    if (old->work->type() != node->work->type())
        return fail(result, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, node);
    if (auto reason = old->work->replaceable(*node->work))
        return fail(result, reason, node);
    pairs.emplace(node, old);
    std::vector<GraphPtr> before = old->work->inner(), after = node->work->inner();
    for (size_t i = 0; i < before.size(); i++)
        if (!pair_nodes(*before[i], *after[i], pairs, result))
            return false;
    return true;
}

bool pair_nodes(const Graph &image, const Graph &graph, Pairs &pairs, UpdateResult &result) {
    if (image.nodes.size() != graph.nodes.size())
        return fail(result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, nullptr);
    auto old = image.nodes.begin();
    for (const auto &entry : graph.nodes)
        if (!pair_node(image, graph, (old++)->second, entry.second, pairs, result))
            return false;
    return true;
}

// Makes the graph, and the graphs inside, keep the user objects of another graph alive.
void take_objects(Graph &image, const Graph &graph) {
    image.objects = graph.objects;
    auto old = image.nodes.begin();
    for (const auto &entry : graph.nodes) {
        std::vector<GraphPtr> before = (old++)->second->work->inner();
        std::vector<GraphPtr> after = entry.second->work->inner();
        for (size_t i = 0; i < before.size(); i++)
            take_objects(*before[i], *after[i]);
    }
}

} // namespace

CUresult update_graph(Graph &image, const Graph &graph, UpdateResult &result) {
    Pairs pairs;
    if (!pair_nodes(image, graph, pairs, result))
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    for (const auto &pair : pairs)
        pair.second->work = pair.second->work->updated(*pair.first->work);
    take_objects(image, graph);
    return CUDA_SUCCESS;
}

SOFT_API(cuGraphExecUpdate_v2,
         (CUgraphExec handle, CUgraph graph_handle, CUgraphExecUpdateResultInfo *info),
         (handle, graph_handle, info)) {
    GraphExecPtr exec = find_exec(handle);
    GraphPtr graph = find_graph(graph_handle);
    if (!exec || !graph)
        return CUDA_ERROR_INVALID_VALUE;
    UpdateResult result;
    CUresult status = update_graph(*exec->image, *graph, result);
    if (info) {
        info->result = result.result;
        info->errorNode = result.node ? handle_of(*result.node) : nullptr;
        info->errorFromNode = result.from ? handle_of(*result.from) : nullptr;
    }
    return status;
}

SOFT_API(cuGraphExecUpdate,
         (CUgraphExec exec, CUgraph graph, CUgraphNode *node, CUgraphExecUpdateResult *result),
         (exec, graph, node, result)) {
    CUgraphExecUpdateResultInfo info = {};
    CUresult status = cuGraphExecUpdate_v2_body(call, exec, graph, &info);
    if (status != CUDA_SUCCESS && status != CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE)
        return status;
    if (node)
        *node = info.errorNode;
    if (result)
        *result = info.result;
    return status;
}

} // namespace soft
