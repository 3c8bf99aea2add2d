#include "api/call.h"
#include "graph/node_api.h"
#include "graph/node_params.h"
#include "graph/works.h"

// Nodes that call a function of the program, and nodes that do nothing.

namespace soft {
namespace {

class HostWork : public NodeWork {
  public:
    explicit HostWork(const CUDA_HOST_NODE_PARAMS &params) : params(params) {}

    CUgraphNodeType type() const override { return CU_GRAPH_NODE_TYPE_HOST; }
    std::vector<OperationPtr> prepare(Stream &) const override {
        auto operation = std::make_shared<Operation>();
        operation->on_worker = true;
        operation->action = [params = params] { params.fn(params.userData); };
        return {operation};
    }
    void describe(NodeParams &all) const override { all.host = params; }

    const CUDA_HOST_NODE_PARAMS params;
};

class EmptyWork : public NodeWork {
  public:
    CUgraphNodeType type() const override { return CU_GRAPH_NODE_TYPE_EMPTY; }
    std::vector<OperationPtr> prepare(Stream &) const override { return {}; }
};

} // namespace

CUresult make_host_work(const CUDA_HOST_NODE_PARAMS *params, NodeWorkPtr &work) {
    if (!params || !params->fn)
        return CUDA_ERROR_INVALID_VALUE;
    work = std::make_shared<HostWork>(*params);
    return CUDA_SUCCESS;
}

NodeWorkPtr make_empty_work() { return std::make_shared<EmptyWork>(); }

SOFT_API(cuGraphAddHostNode,
         (CUgraphNode * node, CUgraph graph, const CUgraphNode *after, size_t count,
          const CUDA_HOST_NODE_PARAMS *params),
         (node, graph, after, count, params)) {
    return add_node(node, graph, after, count,
                    [&](auto &work) { return make_host_work(params, work); });
}

SOFT_API(cuGraphHostNodeGetParams, (CUgraphNode node, CUDA_HOST_NODE_PARAMS *params),
         (node, params)) {
    return read_node<HostWork>(node, params, [&](auto &work) { *params = work.params; });
}

SOFT_API(cuGraphHostNodeSetParams, (CUgraphNode node, const CUDA_HOST_NODE_PARAMS *params),
         (node, params)) {
    return change_node<HostWork>(node,
                                 [&](auto &, auto &work) { return make_host_work(params, work); });
}

SOFT_API(cuGraphExecHostNodeSetParams,
         (CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS *params),
         (exec, node, params)) {
    return change_exec_node<HostWork>(
        exec, node, [&](auto &, auto &work) { return make_host_work(params, work); });
}

SOFT_API(cuGraphAddEmptyNode,
         (CUgraphNode * node, CUgraph graph, const CUgraphNode *after, size_t count),
         (node, graph, after, count)) {
    return add_node(node, graph, after, count, [](auto &work) {
        work = make_empty_work();
        return CUDA_SUCCESS;
    });
}

} // namespace soft
