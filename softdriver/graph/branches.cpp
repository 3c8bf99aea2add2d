#include "graph/branches.h"

#include "api/call.h"
#include "api/state.h"
#include "code/launch.h"
#include "stream/stream.h"

#include <algorithm>

namespace soft {

CUresult Branches::submit_graph(const Graph &graph, const OperationPtr &begin,
                                std::vector<OperationPtr> &leaves) {
    // Under the lazy schedule, operations run in the order of their submission.
    bool eager = state().settings.schedule == Schedule::Eager;
    auto choose = [&](size_t count) {
        return eager ? 0 : state().chooser.draw(explore::Choice::GraphOrder, count);
    };
    std::map<uint64_t, OperationPtr> ends;
    Places places = state().races.recording() ? places_of(graph) : Places();
    for (const GraphNodePtr &node : sorted(graph, choose)) {
        std::vector<OperationPtr> waits;
        OperationPtr early; // the kernel that need not have ended when the node's kernel begins
        for (const Edge &edge : node->after) {
            waits.push_back(ends.at(edge.from));
            if (is_programmatic(edge.data))
                early = waits.back();
        }
        if (waits.empty() && begin)
            waits.push_back(begin);
        place_ = places[node->id];
        if (CUresult status = submit_node(*node, std::move(waits), early, ends[node->id]))
            return status;
    }
    for (const auto &entry : graph.nodes)
        for (const Edge &edge : entry.second->after)
            ends.erase(edge.from);
    for (const auto &end : ends)
        leaves.push_back(end.second);
    if (leaves.empty() && begin)
        leaves.push_back(begin);
    return CUDA_SUCCESS;
}

CUresult Branches::submit_node(const GraphNode &node, std::vector<OperationPtr> waits,
                               const OperationPtr &early, OperationPtr &end) {
    Stream &branch = branch_after(waits, *node.work);
    bool child = node.work->type() == CU_GRAPH_NODE_TYPE_GRAPH;
    std::vector<GraphPtr> inner = child ? node.work->inner() : std::vector<GraphPtr>();
    std::vector<OperationPtr> operations;
    if (node.enabled && inner.empty())
        operations = whole_ ? node.work->prepare_in_body(branch) : node.work->prepare(branch);
    if (operations.empty())
        operations.push_back(std::make_shared<Operation>());
    for (OperationPtr &operation : operations) {
        auto &waited = operation->waits;
        waited.insert(waited.begin(), waits.begin(), waits.end());
        operation->node = place_;
        let_begin_early(operation, early);
        if (CUresult status = submit_one(branch, operation, end))
            return status;
        waits.clear();
    }
    if (node.enabled)
        node.work->submitted(operations);
    if (inner.empty())
        return CUDA_SUCCESS;
    std::vector<OperationPtr> leaves;
    if (CUresult status = submit_graph(*inner.front(), end, leaves))
        return status;
    return submit_join(std::move(leaves), *node.work, end);
}

void Branches::let_begin_early(const OperationPtr &operation, const OperationPtr &early) const {
    // The nodes of a body are operations that a search can choose only under replay.
    if (early && early->kernel && operation->kernel && (!whole_ || state().chooser.replays()))
        begin_early(operation, early);
}

CUresult Branches::submit_one(Stream &branch, OperationPtr operation, OperationPtr &end) {
    end = operation;
    if (whole_) {
        make_part(operation);
        submit_part(branch, operation, whole_);
    } else if (CUresult status = submit(branch, std::move(operation))) {
        return status;
    }
    tails_[&branch] = end;
    submitted_.push_back(end);
    return CUDA_SUCCESS;
}

// Lets the operation count its writes to memory that the host can access as writes of the whole
// operation: otherwise the race detector would report them as writes of the host.
void Branches::make_part(const OperationPtr &operation) const {
    if (operation->pieces)
        operation->pieces->operation = whole_;
    if (!operation->action || operation->writes.empty())
        return;
    auto note = [whole = whole_, writes = operation->writes] {
        Lock lock(state().mutex);
        for (const Range &range : writes) {
            const Allocation *allocation = find_allocation(range.begin);
            if (!allocation || allocation->on_device())
                continue;
            whole->writes.push_back(range);
            state().races.comes_to_use(whole, *allocation);
        }
    };
    operation->action = [note, action = std::move(operation->action)] {
        note();
        action();
    };
}

// Submits an operation that does nothing but wait for several others.
CUresult Branches::submit_join(std::vector<OperationPtr> waits, const NodeWork &work,
                               OperationPtr &end) {
    auto join = std::make_shared<Operation>();
    Stream &branch = branch_after(waits, work);
    join->waits = std::move(waits);
    return submit_one(branch, std::move(join), end);
}

// Returns a branch for a node that depends on these operations: a branch whose last operation is
// one of them, or an unused branch. So branches order only nodes that edges order, too.
Stream &Branches::branch_after(const std::vector<OperationPtr> &waits, const NodeWork &work) {
    ContextPtr context = work.context() ? work.context() : stream_.context;
    Stream *unused = nullptr;
    for (const StreamPtr &branch : streams_) {
        if (branch->context != context)
            continue;
        auto tail = tails_.find(branch.get());
        if (tail == tails_.end())
            unused = unused ? unused : branch.get();
        else if (std::find(waits.begin(), waits.end(), tail->second) != waits.end())
            return *branch;
    }
    if (!unused) {
        streams_.push_back(create_stream(context, StreamKind::Created, CU_STREAM_NON_BLOCKING, 0));
        unused = streams_.back().get();
    }
    unused->tag = stream_.tag;
    return *unused;
}

Branches::Places Branches::places_of(const Graph &graph) {
    Places places;
    for (const auto &entry : graph.nodes) {
        std::string number = std::to_string(places.size());
        places[entry.first] = "node " + number + ", " + name_of(entry.second->work->type());
    }
    return places;
}

} // namespace soft
