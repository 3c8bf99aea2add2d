#include "graph/graph.h"

#include "api/state.h"
#include "graph/conditional_node.h"

#include <algorithm>

namespace soft {

bool GraphNode::depends_on(uint64_t other) const {
    return std::any_of(after.begin(), after.end(),
                       [&](const Edge &edge) { return edge.from == other; });
}

GraphNodePtr Graph::find(uint64_t wanted) const {
    auto found = nodes.find(wanted);
    return found == nodes.end() ? nullptr : found->second;
}

GraphNodePtr Graph::find_copy(uint64_t wanted) const {
    for (const auto &entry : nodes)
        if (entry.second->origin == wanted)
            return entry.second;
    return nullptr;
}

// Other references to a node may outlive its graph.
Graph::~Graph() {
    for (const auto &entry : nodes)
        entry.second->graph = nullptr;
}

const char *name_of(CUgraphNodeType type) {
    static const char *const names[] = {"kernel",
                                        "copy",
                                        "fill",
                                        "host function",
                                        "child graph",
                                        "empty node",
                                        "event wait",
                                        "event record",
                                        "semaphore signal",
                                        "semaphore wait",
                                        "allocation",
                                        "free",
                                        "operations on values",
                                        "condition"};
    return names[type];
}

GraphPtr create_graph() {
    auto graph = std::make_shared<Graph>();
    graph->id = state().new_id();
    return graph;
}

GraphPtr find_graph(CUgraph handle) {
    return state().graphs.find(reinterpret_cast<uintptr_t>(handle));
}

GraphNodePtr find_node(CUgraphNode handle) {
    return state().nodes.find(reinterpret_cast<uintptr_t>(handle));
}

CUgraph handle_of(Graph &graph) {
    if (!graph.handle)
        graph.handle = reinterpret_cast<CUgraph>(
            state().graphs.insert(graph.shared_from_this(), state().reuse()));
    return graph.handle;
}

CUgraphNode handle_of(GraphNode &node) {
    if (!node.handle)
        node.handle = reinterpret_cast<CUgraphNode>(
            state().nodes.insert(node.graph->find(node.id), state().reuse()));
    return node.handle;
}

GraphPtr copy_graph(const Graph &graph) {
    GraphPtr copy = create_graph();
    copy->origin = graph.id;
    copy->objects = graph.objects;
    std::map<uint64_t, uint64_t> ids;
    for (const auto &entry : graph.nodes) {
        const GraphNode &node = *entry.second;
        GraphNodePtr twin = add_node(*copy, node.work->copy(), node.after);
        twin->origin = node.id;
        twin->enabled = node.enabled;
        ids[node.id] = twin->id;
    }
    for (const auto &entry : copy->nodes)
        for (Edge &edge : entry.second->after)
            edge.from = ids.at(edge.from);
    return copy;
}

GraphNodePtr add_node(Graph &graph, NodeWorkPtr work, std::vector<Edge> after) {
    auto node = std::make_shared<GraphNode>();
    node->id = state().new_id();
    node->graph = &graph;
    node->number = graph.next_number++;
    node->work = std::move(work);
    node->after = std::move(after);
    for (Edge &edge : node->after)
        if (!edge.number)
            edge.number = state().new_id();
    graph.nodes.emplace(node->id, node);
    return node;
}

void erase_handles(Graph &graph) {
    for (const auto &entry : graph.nodes) {
        GraphNode &node = *entry.second;
        state().nodes.erase(reinterpret_cast<uintptr_t>(node.handle));
        for (const GraphPtr &inner : node.work->inner())
            erase_handles(*inner);
    }
    state().graphs.erase(reinterpret_cast<uintptr_t>(graph.handle));
}

bool is_damaged(const Graph &graph) {
    for (const auto &entry : graph.nodes)
        for (const GraphPtr &inner : entry.second->work->inner())
            if (is_damaged(*inner))
                return true;
    return graph.destroyed;
}

bool is_within(const Graph &graph, const Graph &other) {
    if (&graph == &other)
        return true;
    for (const auto &entry : other.nodes)
        for (const GraphPtr &inner : entry.second->work->inner())
            if (is_within(graph, *inner))
                return true;
    return false;
}

std::vector<GraphNodePtr> sorted(const Graph &graph, const std::function<size_t(size_t)> &choose) {
    std::map<uint64_t, size_t> missing; // how many dependencies of each node are not sorted yet
    std::map<uint64_t, std::vector<GraphNodePtr>> dependents;
    std::vector<GraphNodePtr> next, found;
    for (const auto &entry : graph.nodes) {
        const GraphNodePtr &node = entry.second;
        missing[node->id] = node->after.size();
        for (const Edge &edge : node->after)
            dependents[edge.from].push_back(node);
        if (node->after.empty())
            next.push_back(node);
    }
    while (!next.empty()) {
        auto chosen = next.begin() + choose(next.size());
        GraphNodePtr node = *chosen;
        next.erase(chosen);
        for (const GraphNodePtr &dependent : dependents[node->id])
            if (--missing[dependent->id] == 0)
                next.push_back(dependent);
        found.push_back(std::move(node));
    }
    if (found.size() < graph.nodes.size())
        found.clear();
    return found;
}

std::vector<GraphNodePtr> sorted(const Graph &graph) {
    return sorted(graph, [](size_t) { return 0; });
}

} // namespace soft
