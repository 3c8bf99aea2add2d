#pragma once

#include "graph/graph.h"

namespace soft {

// Queues the nodes of a graph in internal streams, one for each branch that may run at the same
// time. Only the edges order the nodes.
class Branches {
  public:
    // `streams` are internal streams that are free now, to which more are added if necessary. The
    // nodes count as work of `stream`. If `whole` is not null, it is the operation of a conditional
    // node, and the nodes are those of a body: parts of that operation (submit_part).
    Branches(std::vector<std::shared_ptr<Stream>> &streams, Stream &stream,
             OperationPtr whole = nullptr)
        : streams_(streams), stream_(stream), whole_(std::move(whole)) {}

    // Submits the nodes of a graph after `begin`, which may be null. Sets `leaves` to the
    // operations on which no other one depends.
    CUresult submit_graph(const Graph &graph, const OperationPtr &begin,
                          std::vector<OperationPtr> &leaves);
    // The operations that have been submitted.
    const std::vector<OperationPtr> &submitted() const { return submitted_; }

  private:
    // The descriptions of nodes in reports, by id.
    using Places = std::map<uint64_t, std::string>;

    static Places places_of(const Graph &graph);
    CUresult submit_node(const GraphNode &node, std::vector<OperationPtr> waits,
                         const OperationPtr &early, OperationPtr &end);
    CUresult submit_one(Stream &branch, OperationPtr operation, OperationPtr &end);
    CUresult submit_join(std::vector<OperationPtr> waits, const NodeWork &work, OperationPtr &end);
    void let_begin_early(const OperationPtr &operation, const OperationPtr &early) const;
    void make_part(const OperationPtr &operation) const;
    Stream &branch_after(const std::vector<OperationPtr> &waits, const NodeWork &work);

    std::vector<std::shared_ptr<Stream>> &streams_;
    Stream &stream_;
    const OperationPtr whole_;
    std::vector<OperationPtr> submitted_;
    std::string place_; // description of the node that is being submitted
    // The last operation of each branch that has been used.
    std::map<const Stream *, OperationPtr> tails_;
};

} // namespace soft
