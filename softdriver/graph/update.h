#pragma once

#include "graph/graph.h"

namespace soft {

// Why a graph cannot replace another one, as cuGraphExecUpdate reports it.
struct UpdateResult {
    CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
    GraphNodePtr node, from; // null, or the nodes of the new graph that differ
};

// Gives the nodes of `image` the work of the nodes of `graph`, which must have the same edges.
// Changes nothing if it returns an error.
CUresult update_graph(Graph &image, const Graph &graph, UpdateResult &result);

} // namespace soft
