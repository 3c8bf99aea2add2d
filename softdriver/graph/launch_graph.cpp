#include "api/call.h"
#include "api/state.h"
#include "code/launch.h"
#include "graph/conditional_node.h"
#include "graph/exec.h"
#include "stream/capture.h"

#include <algorithm>

// A launch of a graph becomes operations of hidden streams, one for each branch that may run at the
// same time. An operation in the launch's own stream begins it, and another one ends it.

namespace soft {
namespace {

CUresult check_nodes(const Graph &graph, uint64_t flags) {
    for (const auto &entry : graph.nodes) {
        const NodeWork &work = *entry.second->work;
        if (CUresult status = work.context() ? context_status(work.context().get()) : CUDA_SUCCESS)
            return status;
        if (CUresult status = entry.second->enabled ? work.check(flags) : CUDA_SUCCESS)
            return status;
        for (const GraphPtr &inner : work.inner())
            if (CUresult status = check_nodes(*inner, flags))
                return status;
    }
    return CUDA_SUCCESS;
}

// Keeps the user objects of a graph alive for this launch, because an update of the executable
// graph may drop them.
void keep_objects(const Graph &graph, Operation &operation) {
    if (!graph.objects.empty())
        operation.kept.push_back(std::make_shared<UserObjects>(graph.objects));
    for (const auto &entry : graph.nodes)
        for (const GraphPtr &inner : entry.second->work->inner())
            keep_objects(*inner, operation);
}

void assign_defaults(const std::vector<ConditionPtr> &conditions) {
    Lock lock(state().mutex);
    for (const ConditionPtr &condition : conditions)
        if (condition->assigns)
            condition->value = condition->initial;
}

// The submission of one launch.
class Launching {
  public:
    Launching(GraphExec &exec, Stream &stream) : exec_(exec), stream_(stream) {}

    CUresult submit_all() {
        auto begin = std::make_shared<Operation>();
        if (exec_.last)
            begin->waits.push_back(exec_.last);
        std::vector<ConditionPtr> conditions;
        find_conditions(*exec_.image, conditions);
        if (!conditions.empty())
            begin->action = [conditions] { assign_defaults(conditions); };
        OperationPtr begun;
        if (CUresult status = submit(stream_, std::move(begin), &begun))
            return status;
        std::vector<OperationPtr> leaves;
        if (CUresult status = submit_graph(*exec_.image, begun, leaves))
            return status;
        auto end = std::make_shared<Operation>();
        end->waits = std::move(leaves);
        end->kept.push_back(exec_.image);
        keep_objects(*exec_.image, *end);
        return submit(stream_, std::move(end), &exec_.last);
    }

  private:
    // Submits the nodes of a graph after `begin`. Sets `leaves` to the operations on which no other
    // one depends.
    CUresult submit_graph(const Graph &graph, const OperationPtr &begin,
                          std::vector<OperationPtr> &leaves) {
        // Under the lazy schedule, operations run in the order of their submission.
        bool eager = state().settings.schedule == Schedule::Eager;
        auto choose = [&](size_t count) { return eager ? 0 : state().chooser.draw(count); };
        std::map<uint64_t, OperationPtr> ends;
        Places places = state().races.recording() ? places_of(graph) : Places();
        for (const GraphNodePtr &node : sorted(graph, choose)) {
            std::vector<OperationPtr> waits;
            OperationPtr early; // the kernel before whose end the node's kernel may begin
            for (const Edge &edge : node->after) {
                waits.push_back(ends.at(edge.from));
                if (is_programmatic(edge.data))
                    early = waits.back();
            }
            if (waits.empty())
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
        if (leaves.empty())
            leaves.push_back(begin);
        return CUDA_SUCCESS;
    }

    CUresult submit_node(const GraphNode &node, std::vector<OperationPtr> waits,
                         const OperationPtr &early, OperationPtr &end) {
        Stream &branch = branch_after(waits, *node.work);
        bool child = node.work->type() == CU_GRAPH_NODE_TYPE_GRAPH;
        std::vector<GraphPtr> inner = child ? node.work->inner() : std::vector<GraphPtr>();
        std::vector<OperationPtr> operations;
        if (node.enabled && inner.empty())
            operations = node.work->prepare(branch);
        if (operations.empty())
            operations.push_back(std::make_shared<Operation>());
        for (OperationPtr &operation : operations) {
            auto &waited = operation->waits;
            waited.insert(waited.begin(), waits.begin(), waits.end());
            operation->node = place_;
            if (early && early->kernel && operation->kernel)
                begin_early(operation, early);
            if (CUresult status = submit(branch, operation, &end))
                return status;
            waits.clear();
        }
        tails_[&branch] = end;
        if (node.enabled)
            node.work->submitted(operations);
        if (inner.empty())
            return CUDA_SUCCESS;
        std::vector<OperationPtr> leaves;
        if (CUresult status = submit_graph(*inner.front(), end, leaves))
            return status;
        return submit_join(std::move(leaves), *node.work, end);
    }

    // Submits an operation that does nothing but wait for several others.
    CUresult submit_join(std::vector<OperationPtr> waits, const NodeWork &work, OperationPtr &end) {
        Stream &branch = branch_after(waits, work);
        auto join = std::make_shared<Operation>();
        join->waits = std::move(waits);
        if (CUresult status = submit(branch, std::move(join), &end))
            return status;
        tails_[&branch] = end;
        return CUDA_SUCCESS;
    }

    // Returns a branch for a node that depends on these operations: one that ends with one of them,
    // or one that this launch has not used yet. So branches order only nodes that edges order, too.
    Stream &branch_after(const std::vector<OperationPtr> &waits, const NodeWork &work) {
        ContextPtr context = work.context() ? work.context() : stream_.context;
        Stream *unused = nullptr;
        for (const StreamPtr &branch : exec_.branches) {
            if (branch->context != context)
                continue;
            auto tail = tails_.find(branch.get());
            if (tail == tails_.end())
                unused = unused ? unused : branch.get();
            else if (std::find(waits.begin(), waits.end(), tail->second) != waits.end())
                return *branch;
        }
        if (!unused) {
            exec_.branches.push_back(
                create_stream(context, StreamKind::Created, CU_STREAM_NON_BLOCKING, 0));
            unused = exec_.branches.back().get();
        }
        unused->tag = stream_.tag;
        return *unused;
    }

    // The descriptions of nodes in reports, by id.
    using Places = std::map<uint64_t, std::string>;

    static Places places_of(const Graph &graph) {
        Places places;
        for (const auto &entry : graph.nodes) {
            std::string number = std::to_string(places.size());
            places[entry.first] = "node " + number + ", " + name_of(entry.second->work->type());
        }
        return places;
    }

    GraphExec &exec_;
    Stream &stream_;
    std::string place_; // description of the node that is being submitted
    // The last operation of each branch that this launch has used.
    std::map<const Stream *, OperationPtr> tails_;
};

} // namespace

CUresult submit_launch(GraphExec &exec, Stream &stream) {
    if (CUresult status = check_nodes(*exec.image, exec.flags))
        return status;
    return Launching(exec, stream).submit_all();
}

SOFT_STREAM_API(cuGraphLaunch, (CUgraphExec handle, CUstream stream_handle),
                (handle, stream_handle)) {
    StreamPtr stream;
    GraphExecPtr exec = find_exec(handle);
    if (!exec)
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = resolve_stream(call, stream_handle, stream))
        return status;
    if (CUresult status = stream->capture ? refuse_captured(*stream) : CUDA_SUCCESS)
        return status;
    return submit_launch(*exec, *stream);
}

// Does nothing: there is no device to which the graph would have to be uploaded.
SOFT_STREAM_API(cuGraphUpload, (CUgraphExec handle, CUstream stream_handle),
                (handle, stream_handle)) {
    StreamPtr stream;
    if (!find_exec(handle))
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = resolve_stream(call, stream_handle, stream))
        return status;
    if (CUresult status = stream->capture ? refuse_captured(*stream) : CUDA_SUCCESS)
        return status;
    return submit(*stream, std::make_shared<Operation>());
}

} // namespace soft
