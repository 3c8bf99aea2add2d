#include "api/call.h"
#include "api/state.h"
#include "graph/branches.h"
#include "graph/conditional_node.h"
#include "graph/exec.h"
#include "stream/capture.h"

#include <algorithm>

// A launch of a graph becomes operations of branches (graph/branches.h). An operation in the
// launch's own stream begins it, and another one ends it.

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

std::vector<uint64_t> numbers_of(const std::vector<ConditionPtr> &conditions) {
    std::vector<uint64_t> numbers;
    for (const ConditionPtr &condition : conditions)
        if (condition->assigns)
            numbers.push_back(condition->number);
    return numbers;
}

void assign_defaults(const std::vector<ConditionPtr> &conditions) {
    Lock lock(state().mutex);
    for (const ConditionPtr &condition : conditions)
        if (condition->assigns)
            condition->value = condition->initial;
}

} // namespace

CUresult submit_launch(GraphExec &exec, Stream &stream) {
    if (CUresult status = check_nodes(*exec.image, exec.flags))
        return status;
    auto begin = std::make_shared<Operation>();
    if (exec.last)
        begin->waits.push_back(exec.last);
    std::vector<ConditionPtr> conditions;
    find_conditions(*exec.image, conditions);
    if (!conditions.empty())
        begin->action = [conditions] { assign_defaults(conditions); };
    begin->conditions_set = numbers_of(conditions);
    OperationPtr begun;
    if (CUresult status = submit(stream, std::move(begin), &begun))
        return status;
    auto end = std::make_shared<Operation>();
    if (CUresult status =
            Branches(exec.branches, stream).submit_graph(*exec.image, begun, end->waits))
        return status;
    end->kept.push_back(exec.image);
    keep_objects(*exec.image, *end);
    return submit(stream, std::move(end), &exec.last);
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
