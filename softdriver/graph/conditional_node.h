#pragma once

#include "graph/graph.h"
#include "graph/node_params.h"

namespace soft {

constexpr int conditional_type = 13; // CU_GRAPH_NODE_TYPE_CONDITIONAL, which older headers lack
constexpr unsigned max_bodies = 1 << 16;

// The value that decides which graph inside a conditional node runs.
struct Condition {
    uint64_t handle = 0;
    uint64_t number = 0;        // counts conditions only
    std::weak_ptr<Graph> graph; // the graph for which it was made
    ContextPtr context;
    unsigned value = 0;
    unsigned initial = 0; // if `assigns`: the value at the beginning of each launch
    bool assigns = false;
    bool used = false;           // a node has this condition
    std::vector<CUgraph> bodies; // the handles of the graphs inside the node

    ~Condition();
};

using ConditionPtr = std::shared_ptr<Condition>;

// Called by kernels. Returns the number of the condition, or 0 if there is
// none with this handle.
uint64_t set_condition(uint64_t handle, unsigned value);
// Finds the conditions of all nodes of the graph, and of the graphs inside these nodes.
void find_conditions(const Graph &graph, std::vector<ConditionPtr> &found);
CUresult make_conditional_work(const Graph &graph, ConditionalNodeParams &params,
                               NodeWorkPtr &work);

} // namespace soft
