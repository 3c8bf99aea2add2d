#include "api/call.h"
#include "api/state.h"
#include "base/unsupported.h"
#include "graph/node_api.h"
#include "graph/works.h"

#include <algorithm>
#include <cstring>

// Graphs, their nodes and edges, as the program makes, changes and reads them.

namespace soft {
namespace {

// Copies handles to an array of the program. On input `count` is the length of the array, on output
// the number of copied handles or, if `array` is null, of all handles. The rest of the array
// becomes null.
template <class Handle>
CUresult give(const std::vector<Handle> &found, Handle *array, size_t *count) {
    if (!count || (array && !*count))
        return CUDA_ERROR_INVALID_VALUE;
    if (array) {
        size_t copied = std::min(*count, found.size());
        std::copy_n(found.begin(), copied, array);
        std::fill(array + copied, array + *count, nullptr);
        if (*count > found.size())
            *count = found.size();
    } else {
        *count = found.size();
    }
    return CUDA_SUCCESS;
}

// The edges of a graph, in the form in which the program reads them.
struct Edges {
    std::vector<CUgraphNode> from, to;
    std::vector<EdgeData> data;

    bool annotated() const {
        return std::any_of(data.begin(), data.end(),
                           [](const EdgeData &edge) { return edge != EdgeData{}; });
    }
    void add(GraphNode &source, GraphNode &target, const EdgeData &edge) {
        from.push_back(handle_of(source));
        to.push_back(handle_of(target));
        data.push_back(edge);
    }
};

// Returns the edges from a node, or from all nodes, ordered by the nodes from which they lead.
// Edges from the same node are in the order in which they were added.
Edges edges_of(const Graph &graph, const GraphNode *from = nullptr) {
    std::map<std::pair<uint64_t, uint64_t>, std::pair<GraphNodePtr, EdgeData>> sorted;
    for (const auto &entry : graph.nodes)
        for (const Edge &edge : entry.second->after)
            if (!from || edge.from == from->id)
                sorted[{edge.from, edge.number}] = {entry.second, edge.data};
    Edges edges;
    for (const auto &entry : sorted)
        edges.add(*graph.find(entry.first.first), *entry.second.first, entry.second.second);
    return edges;
}

Edges dependencies_of(GraphNode &node) {
    Edges edges;
    for (const Edge &edge : node.after)
        edges.add(*node.graph->find(edge.from), node, edge.data);
    return edges;
}

// Copies the data of edges to an array of the program, which has room for `count`. Without an array
// the data must be zero.
CUresult give_data(const Edges &edges, void *array, size_t count) {
    if (!array)
        return edges.annotated() ? CUDA_ERROR_LOSSY_QUERY : CUDA_SUCCESS;
    auto *data = static_cast<EdgeData *>(array); // both are arrays of bytes
    std::copy_n(edges.data.begin(), std::min(count, edges.data.size()), data);
    return CUDA_SUCCESS;
}

CUresult give_neighbours(const Edges &edges, const std::vector<CUgraphNode> &found,
                         CUgraphNode *array, void *data, size_t *count) {
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    if (array)
        if (CUresult status = give_data(edges, data, *count))
            return status;
    return give(found, array, count);
}

CUresult read_edges(CUgraph handle, CUgraphNode *from, CUgraphNode *to, void *data, size_t *count) {
    GraphPtr graph = find_graph(handle);
    if (!graph || !count || !from != !to || (from && !*count))
        return CUDA_ERROR_INVALID_VALUE;
    Edges edges = edges_of(*graph);
    size_t room = *count;
    if (from)
        if (CUresult status = give_data(edges, data, room))
            return status;
    give(edges.from, from, count);
    return give(edges.to, to, from ? &room : count);
}

CUresult read_dependencies(CUgraphNode handle, CUgraphNode *nodes, void *data, size_t *count) {
    GraphNodePtr node = find_node(handle);
    if (!node)
        return CUDA_ERROR_INVALID_VALUE;
    Edges edges = dependencies_of(*node);
    return give_neighbours(edges, edges.from, nodes, data, count);
}

CUresult read_dependents(CUgraphNode handle, CUgraphNode *nodes, void *data, size_t *count) {
    GraphNodePtr node = find_node(handle);
    if (!node)
        return CUDA_ERROR_INVALID_VALUE;
    Edges edges = edges_of(*node->graph, node.get());
    return give_neighbours(edges, edges.to, nodes, data, count);
}

EdgeData data_at(const void *data, size_t index) {
    EdgeData edge = {};
    if (data)
        std::memcpy(&edge, static_cast<const char *>(data) + index * edge_bytes, edge_bytes);
    return edge;
}

bool is_kernel(const GraphNode &node) { return node.work->type() == CU_GRAPH_NODE_TYPE_KERNEL; }

// Only kernels have ports, and edges of the programmatic type.
bool valid_data(const GraphNode &from, const GraphNode *to, const EdgeData &data) {
    if (data == EdgeData{})
        return true;
    unsigned port = data[0], target = data[1], type = data[2];
    bool known = port <= 2 && !target && type <= 1 &&
                 std::all_of(data.begin() + 3, data.end(), [](auto byte) { return !byte; });
    return known && is_kernel(from) && (!to || is_kernel(*to)) && (type ? port > 0 : port != 1);
}

// A change of edges, whose arguments have been checked.
struct Change {
    GraphNodePtr from, to;
    EdgeData data;
};

CUresult read_changes(CUgraph handle, const CUgraphNode *from, const CUgraphNode *to,
                      const void *data, size_t count, std::vector<Change> &changes) {
    GraphPtr graph = find_graph(handle);
    if (!graph || (count && (!from || !to)))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        Change change{find_node(from[i]), find_node(to[i]), data_at(data, i)};
        if (!change.from || !change.to || change.from->graph != graph.get() ||
            change.to->graph != graph.get())
            return CUDA_ERROR_INVALID_VALUE;
        changes.push_back(change);
    }
    return CUDA_SUCCESS;
}

CUresult add_edges(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const void *data,
                   size_t count) {
    std::vector<Change> changes;
    if (CUresult status = read_changes(graph, from, to, data, count, changes))
        return status;
    for (const Change &change : changes)
        if (change.from == change.to || change.to->depends_on(change.from->id) ||
            !valid_data(*change.from, change.to.get(), change.data))
            return CUDA_ERROR_INVALID_VALUE;
    for (const Change &change : changes)
        change.to->after.push_back({change.from->id, change.data, state().new_id()});
    return CUDA_SUCCESS;
}

// Nodes and edges of a graph that allocates memory cannot be removed.
bool is_fixed(const Graph &graph) { return allocates(graph); }

CUresult remove_edges(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                      const void *data, size_t count) {
    std::vector<Change> changes;
    if (CUresult status = read_changes(graph, from, to, data, count, changes))
        return status;
    if (count && is_fixed(*find_graph(graph)))
        return not_supported("the graph allocates memory: no edge of it can be removed");
    auto find = [&](const Change &change) {
        return std::find_if(change.to->after.begin(), change.to->after.end(), [&](auto &edge) {
            return edge.from == change.from->id && (!data || edge.data == change.data);
        });
    };
    for (const Change &change : changes) {
        auto found = find(change);
        if (found == change.to->after.end()) // as on real drivers, the edges before it stay removed
            return CUDA_ERROR_INVALID_VALUE;
        change.to->after.erase(found);
    }
    return CUDA_SUCCESS;
}

} // namespace

CUresult find_place(const CUgraphNode *result, CUgraph handle, const CUgraphNode *after,
                    const void *edges, size_t count, NodePlace &place) {
    place.graph = find_graph(handle);
    if (!result || !place.graph || (count && !after))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        GraphNodePtr node = find_node(after[i]);
        Edge edge{node ? node->id : 0, data_at(edges, i)};
        if (!node || node->graph != place.graph.get() || !valid_data(*node, nullptr, edge.data))
            return CUDA_ERROR_INVALID_VALUE;
        auto same = [&](const Edge &other) { return other.from == edge.from; };
        if (std::any_of(place.after.begin(), place.after.end(), same))
            return CUDA_ERROR_INVALID_VALUE;
        place.after.push_back(edge);
    }
    return CUDA_SUCCESS;
}

SOFT_API(cuGraphCreate, (CUgraph * result, unsigned flags), (result, flags)) {
    if (!result || flags)
        return CUDA_ERROR_INVALID_VALUE;
    *result = handle_of(*create_graph());
    return CUDA_SUCCESS;
}

SOFT_API(cuGraphDestroy, (CUgraph handle), (handle)) {
    GraphPtr graph = find_graph(handle);
    if (!graph || graph->inside || is_damaged(*graph))
        return CUDA_ERROR_INVALID_VALUE;
    if (graph->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    erase_handles(*graph);
    return CUDA_SUCCESS;
}

SOFT_API(cuGraphClone, (CUgraph * result, CUgraph handle), (result, handle)) {
    GraphPtr graph = find_graph(handle);
    if (!result || !graph)
        return CUDA_ERROR_INVALID_VALUE;
    if (is_unique(*graph))
        return not_supported("the graph has nodes that exist only once: it cannot be copied");
    GraphPtr copy = copy_graph(*graph);
    copy->origin = 0;
    *result = handle_of(*copy);
    return CUDA_SUCCESS;
}

SOFT_API(cuGraphNodeFindInClone, (CUgraphNode * result, CUgraphNode original, CUgraph clone),
         (result, original, clone)) {
    GraphPtr graph = find_graph(clone);
    GraphNodePtr node = find_node(original);
    GraphNodePtr found = graph && node ? graph->find_copy(node->id) : nullptr;
    if (!result || !found)
        return CUDA_ERROR_INVALID_VALUE;
    *result = handle_of(*found);
    return CUDA_SUCCESS;
}

SOFT_API(cuGraphNodeGetContainingGraph, (CUgraphNode handle, CUgraph *graph), (handle, graph)) {
    GraphNodePtr node = find_node(handle);
    if (!node || !graph)
        return CUDA_ERROR_INVALID_VALUE;
    *graph = handle_of(*node->graph);
    return CUDA_SUCCESS;
}

// Returns the number of a node in pictures of the graph.
SOFT_API(cuGraphNodeGetLocalId, (CUgraphNode handle, unsigned *number), (handle, number)) {
    GraphNodePtr node = find_node(handle);
    if (!node || !number)
        return CUDA_ERROR_INVALID_VALUE;
    *number = node->number;
    return CUDA_SUCCESS;
}

SOFT_API(cuGraphNodeGetToolsId, (CUgraphNode handle, unsigned long long *id), (handle, id)) {
    GraphNodePtr node = find_node(handle);
    if (!node || !id)
        return CUDA_ERROR_INVALID_VALUE;
    *id = node->id;
    return CUDA_SUCCESS;
}

SOFT_API(cuGraphGetId, (CUgraph handle, unsigned *id), (handle, id)) {
    GraphPtr graph = find_graph(handle);
    if (!graph || !id)
        return CUDA_ERROR_INVALID_VALUE;
    *id = static_cast<unsigned>(graph->id);
    return CUDA_SUCCESS;
}

SOFT_API(cuGraphExecGetId, (CUgraphExec handle, unsigned *id), (handle, id)) {
    GraphExecPtr exec = find_exec(handle);
    if (!exec || !id)
        return CUDA_ERROR_INVALID_VALUE;
    *id = static_cast<unsigned>(exec->id);
    return CUDA_SUCCESS;
}

SOFT_API(cuGraphNodeGetType, (CUgraphNode handle, CUgraphNodeType *type), (handle, type)) {
    GraphNodePtr node = find_node(handle);
    if (!node || !type)
        return CUDA_ERROR_INVALID_VALUE;
    *type = node->work->type();
    return CUDA_SUCCESS;
}

SOFT_API(cuGraphDestroyNode, (CUgraphNode handle), (handle)) {
    GraphNodePtr node = find_node(handle);
    if (!node)
        return CUDA_ERROR_INVALID_VALUE;
    Graph &graph = *node->graph;
    if (is_fixed(graph))
        return not_supported("the graph allocates memory: no node of it can be removed");
    std::vector<GraphPtr> inner = node->work->inner();
    if (std::any_of(inner.begin(), inner.end(), [](auto &each) { return is_damaged(*each); }))
        return CUDA_ERROR_INVALID_VALUE;
    for (const auto &entry : graph.nodes) {
        auto &after = entry.second->after;
        after.erase(std::remove_if(after.begin(), after.end(),
                                   [&](const Edge &edge) { return edge.from == node->id; }),
                    after.end());
    }
    for (const GraphPtr &each : inner)
        erase_handles(*each);
    state().nodes.erase(reinterpret_cast<uintptr_t>(handle));
    graph.nodes.erase(node->id);
    return CUDA_SUCCESS;
}

SOFT_API(cuGraphGetNodes, (CUgraph handle, CUgraphNode *nodes, size_t *count),
         (handle, nodes, count)) {
    GraphPtr graph = find_graph(handle);
    if (!graph)
        return CUDA_ERROR_INVALID_VALUE;
    std::vector<CUgraphNode> found;
    for (const auto &entry : graph->nodes)
        found.push_back(handle_of(*entry.second));
    return give(found, nodes, count);
}

SOFT_API(cuGraphGetRootNodes, (CUgraph handle, CUgraphNode *nodes, size_t *count),
         (handle, nodes, count)) {
    GraphPtr graph = find_graph(handle);
    if (!graph)
        return CUDA_ERROR_INVALID_VALUE;
    std::vector<CUgraphNode> found;
    for (const auto &entry : graph->nodes)
        if (entry.second->after.empty())
            found.push_back(handle_of(*entry.second));
    std::reverse(found.begin(), found.end()); // as real drivers list them
    return give(found, nodes, count);
}

SOFT_API(cuGraphGetEdges, (CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count),
         (graph, from, to, count)) {
    return read_edges(graph, from, to, nullptr, count);
}

SOFT_API(cuGraphGetEdges_v2,
         (CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data, size_t *count),
         (graph, from, to, data, count)) {
    return read_edges(graph, from, to, data, count);
}

SOFT_API(cuGraphNodeGetDependencies, (CUgraphNode node, CUgraphNode *nodes, size_t *count),
         (node, nodes, count)) {
    return read_dependencies(node, nodes, nullptr, count);
}

SOFT_API(cuGraphNodeGetDependencies_v2,
         (CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *data, size_t *count),
         (node, nodes, data, count)) {
    return read_dependencies(node, nodes, data, count);
}

SOFT_API(cuGraphNodeGetDependentNodes, (CUgraphNode node, CUgraphNode *nodes, size_t *count),
         (node, nodes, count)) {
    return read_dependents(node, nodes, nullptr, count);
}

SOFT_API(cuGraphNodeGetDependentNodes_v2,
         (CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *data, size_t *count),
         (node, nodes, data, count)) {
    return read_dependents(node, nodes, data, count);
}

SOFT_API(cuGraphAddDependencies,
         (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count),
         (graph, from, to, count)) {
    return add_edges(graph, from, to, nullptr, count);
}

SOFT_API(cuGraphAddDependencies_v2,
         (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
          const CUgraphEdgeData *data, size_t count),
         (graph, from, to, data, count)) {
    return add_edges(graph, from, to, data, count);
}

SOFT_API(cuGraphRemoveDependencies,
         (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count),
         (graph, from, to, count)) {
    return remove_edges(graph, from, to, nullptr, count);
}

SOFT_API(cuGraphRemoveDependencies_v2,
         (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
          const CUgraphEdgeData *data, size_t count),
         (graph, from, to, data, count)) {
    return remove_edges(graph, from, to, data, count);
}

} // namespace soft
