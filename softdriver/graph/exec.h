#pragma once

#include "graph/graph.h"

namespace soft {

// An executable graph.
struct GraphExec {
    CUgraphExec handle = nullptr;
    uint64_t id = 0;
    uint64_t flags = 0;
    // A copy of the graph, whose nodes have the parameters of the next launch.
    GraphPtr image;
    // Streams in which the nodes run, which the program does not see. Branches of the graph run in
    // different streams.
    std::vector<std::shared_ptr<Stream>> branches;
    OperationPtr last; // the last operation of the latest launch, or null
};

using GraphExecPtr = std::shared_ptr<GraphExec>;

GraphExecPtr find_exec(CUgraphExec handle);
// Submits a launch. The stream orders the launch like one operation. Only the edges order its
// nodes.
CUresult submit_launch(GraphExec &exec, Stream &stream);

} // namespace soft
