#pragma once

#include "device/context.h"
#include "work/operation.h"

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace soft {

struct Capture;
struct Condition;
struct Graph;
struct GraphNode;
struct NodeParams;
struct UserObject;

using GraphPtr = std::shared_ptr<Graph>;
using GraphNodePtr = std::shared_ptr<GraphNode>;

// What a node does, with the parameters that the program has set. It never changes: to change a
// node, give it other work. So graphs, their clones and their executable graphs can share it.
class NodeWork : public std::enable_shared_from_this<NodeWork> {
  public:
    virtual ~NodeWork() = default;
    virtual CUgraphNodeType type() const = 0;
    // The context in which the work runs, or null if it can run in any.
    virtual ContextPtr context() const { return nullptr; }
    // Returns an error if a graph with this work cannot be instantiated at present, for example
    // because the program has freed the memory that the work uses.
    virtual CUresult check_instantiation() const { return CUDA_SUCCESS; }
    // Returns an error if a graph cannot be instantiated at present because a body of a conditional
    // node has this work. Called after check_instantiation().
    virtual CUresult check_body() const { return CUDA_SUCCESS; }
    // Returns an error if the work cannot be launched now. The flags are those of the executable
    // graph.
    virtual CUresult check(uint64_t) const { return CUDA_SUCCESS; }
    // Makes the operations that one launch runs in this stream, one after the other.
    virtual std::vector<OperationPtr> prepare(Stream &stream) const = 0;
    // Like prepare(), for work in a body of a conditional node.
    virtual std::vector<OperationPtr> prepare_in_body(Stream &stream) const {
        return prepare(stream);
    }
    // Called when the operations have been submitted.
    virtual void submitted(const std::vector<OperationPtr> &) const {}
    // The graphs inside the node: the graph of a child graph node, or the bodies of a conditional
    // node.
    virtual std::vector<GraphPtr> inner() const { return {}; }
    // Returns work that does the same, for a node of a copy of the graph.
    virtual std::shared_ptr<const NodeWork> copy() const { return shared_from_this(); }
    // Returns CU_GRAPH_EXEC_UPDATE_SUCCESS if a node of an executable graph can do `next` instead.
    virtual CUgraphExecUpdateResult replaceable(const NodeWork &) const {
        return CU_GRAPH_EXEC_UPDATE_SUCCESS;
    }
    // Returns the work that a node of an executable graph with this work gets in an update with
    // `next`. Graphs inside the node stay: the update changes their nodes.
    virtual std::shared_ptr<const NodeWork> updated(const NodeWork &next) const {
        return next.shared_from_this();
    }
    // Returns true if nodes with this work can be disabled in executable graphs.
    virtual bool can_be_disabled() const { return false; }
    // Writes the parameters of the work to a structure of zeros.
    virtual void describe(NodeParams &) const {}
    // The name of the kernel, for pictures of the graph.
    virtual std::string text() const { return {}; }
};

using NodeWorkPtr = std::shared_ptr<const NodeWork>;

// The bytes of a CUgraphEdgeData, which older headers lack.
using EdgeData = std::array<unsigned char, 8>;
constexpr size_t edge_bytes = sizeof(EdgeData);
// An edge of type CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC, from the port
// CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC.
constexpr EdgeData programmatic_edge = {1, 0, 1};
inline bool is_programmatic(const EdgeData &edge) { return edge[2] == programmatic_edge[2]; }

// An edge to a node from the node with this id.
struct Edge {
    uint64_t from = 0;
    EdgeData data = {};
    uint64_t number = 0; // edges that are added later have higher numbers
};

struct GraphNode {
    CUgraphNode handle = nullptr; // null until the program asks for it
    uint64_t id = 0;              // nodes that are created later have higher ids
    uint64_t origin = 0;          // in a copy of a graph: the id of the original node
    unsigned number = 0;          // number of the node in its graph, for pictures and queries
    Graph *graph = nullptr;
    NodeWorkPtr work;
    std::vector<Edge> after; // the edges from the nodes on which this node depends
    bool enabled = true;     // false for a disabled node of an executable graph

    bool depends_on(uint64_t id) const;
};

// How often a graph refers to each user object.
using UserObjects = std::map<std::shared_ptr<UserObject>, uint64_t>;

struct Graph : std::enable_shared_from_this<Graph> {
    CUgraph handle = nullptr; // null until the program asks for it
    uint64_t id = 0;
    // If this is a copy that belongs to a node or to an executable graph: the id of the original. 0
    // for other graphs, including clones.
    uint64_t origin = 0;
    std::map<uint64_t, GraphNodePtr> nodes; // by id, which is the order of creation
    unsigned next_number = 0;               // number of the node that is added next
    // The capture that adds nodes to the graph, or null.
    Capture *capture = nullptr;
    // The graph is inside a node, and lives as long as this node.
    bool inside = false;
    // The graph is inside a node, and a capture that failed has destroyed it.
    bool destroyed = false;
    UserObjects objects;
    std::vector<std::shared_ptr<Condition>> conditions; // conditions for this graph

    ~Graph();
    GraphNodePtr find(uint64_t id) const;
    GraphNodePtr find_copy(uint64_t origin) const;
};

// Returns the name of a kind of nodes.
const char *name_of(CUgraphNodeType type);

GraphPtr create_graph();
// Return the graph or node of a handle, or null.
GraphPtr find_graph(CUgraph handle);
GraphNodePtr find_node(CUgraphNode handle);
CUgraph handle_of(Graph &graph);
CUgraphNode handle_of(GraphNode &node);
// Makes a copy of the graph. Its nodes have the same work, and inner graphs are copied, too.
GraphPtr copy_graph(const Graph &graph);
GraphNodePtr add_node(Graph &graph, NodeWorkPtr work, std::vector<Edge> after);
// Makes the handles of the graph, of its nodes and of its inner graphs invalid.
void erase_handles(Graph &graph);
// Returns true if a capture that failed has destroyed the graph or a graph inside. Real drivers
// crash when such a graph is instantiated or destroyed.
bool is_damaged(const Graph &graph);
// Returns true if `graph` is inside `other`, or is `other`.
bool is_within(const Graph &graph, const Graph &other);
// Returns the nodes in an order in which each comes after the nodes on which it depends. Returns an
// empty list if the graph has a cycle. `choose` is called with the number of nodes that can be
// next, and returns the index of the next one.
std::vector<GraphNodePtr> sorted(const Graph &graph, const std::function<size_t(size_t)> &choose);
std::vector<GraphNodePtr> sorted(const Graph &graph);

// A function of the program, which is called when the last reference is gone.
struct UserObject {
    CUuserObject handle = nullptr;
    CUhostFn destroy = nullptr;
    void *data = nullptr;

    ~UserObject();
};

// The references to a user object that belong to the program and not to a graph.
struct OwnedObject {
    std::weak_ptr<UserObject> object;
    std::shared_ptr<UserObject> kept; // null if the program has no references left
    uint64_t count = 0;
};

} // namespace soft
