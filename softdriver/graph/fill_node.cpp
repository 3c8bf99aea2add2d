#include "api/call.h"
#include "graph/node_api.h"
#include "graph/node_params.h"
#include "graph/works.h"
#include "stream/fill.h"

// Nodes that fill memory.

namespace soft {
namespace {

class FillWork : public NodeWork {
  public:
    FillWork(const CUDA_MEMSET_NODE_PARAMS &fill, const ContextPtr &context, CUcontext home)
        : fill(fill), context_(context), home_(home) {}

    CUgraphNodeType type() const override { return CU_GRAPH_NODE_TYPE_MEMSET; }
    ContextPtr context() const override { return context_; }
    bool can_be_disabled() const override { return true; }
    void describe(NodeParams &params) const override { params.fill = {fill, context_->handle}; }
    CUresult check_instantiation() const override {
        char *address = nullptr;
        return check_fill(fill, *context_, address);
    }
    CUresult check_body() const override {
        bool here = home_of(fill.dst, *context_) == context_->handle;
        return here ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    // The memory is looked up at each launch, because the program may have freed it.
    std::vector<OperationPtr> prepare(Stream &) const override {
        char *address = nullptr;
        if (check_fill(fill, *context_, address))
            return {failing_operation(CUDA_ERROR_ILLEGAL_ADDRESS)};
        return {fill_operation(fill, address)};
    }
    // An update of a fill of several rows can change only the address and the value.
    CUgraphExecUpdateResult replaceable(const NodeWork &next) const override {
        const CUDA_MEMSET_NODE_PARAMS &other = static_cast<const FillWork &>(next).fill;
        bool rows = fill.height > 1 || other.height > 1;
        bool same = fill.height == other.height && fill.width == other.width &&
                    fill.pitch == other.pitch && fill.elementSize == other.elementSize;
        return has_home_of(next) && (!rows || same) ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                                                    : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    }
    bool has_home_of(const NodeWork &other) const {
        return home_ == static_cast<const FillWork &>(other).home_;
    }

    const CUDA_MEMSET_NODE_PARAMS fill;

  private:
    ContextPtr context_;
    CUcontext home_; // home_of() the memory, and of all memory that can replace it
};

} // namespace

CUresult make_fill_work(Call &call, const CUDA_MEMSET_NODE_PARAMS *params, CUcontext handle,
                        NodeWorkPtr &work) {
    ContextPtr context = handle ? find_context(handle) : call.context;
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = context_status(context.get()))
        return status;
    unsigned element = params->elementSize;
    if ((element != 1 && element != 2 && element != 4) || !params->width || !params->height)
        return CUDA_ERROR_INVALID_VALUE;
    char *address;
    if (CUresult status = check_fill(*params, *context, address))
        return status;
    work = std::make_shared<FillWork>(*params, context, home_of(params->dst, *context));
    return CUDA_SUCCESS;
}

NodeWorkPtr captured_fill_work(const CUDA_MEMSET_NODE_PARAMS &params, const ContextPtr &context) {
    return std::make_shared<FillWork>(params, context, context->handle);
}

SOFT_API(cuGraphAddMemsetNode,
         (CUgraphNode * node, CUgraph graph, const CUgraphNode *after, size_t count,
          const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context),
         (node, graph, after, count, params, context)) {
    return add_node(node, graph, after, count,
                    [&](auto &work) { return make_fill_work(call, params, context, work); });
}

SOFT_API(cuGraphMemsetNodeGetParams, (CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *params),
         (node, params)) {
    return read_node<FillWork>(node, params, [&](auto &work) { *params = work.fill; });
}

SOFT_API(cuGraphMemsetNodeSetParams, (CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params),
         (node, params)) {
    GraphNodePtr found = find_node(node);
    CUcontext context = found && found->work->context() ? found->work->context()->handle : nullptr;
    return change_node<FillWork>(
        node, [&](auto &, auto &work) { return make_fill_work(call, params, context, work); });
}

SOFT_API(cuGraphExecMemsetNodeSetParams,
         (CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params,
          CUcontext context),
         (exec, node, params, context)) {
    return change_exec_node<FillWork>(exec, node, [&](auto &old, auto &work) {
        CUresult status = make_fill_work(call, params, context, work);
        bool refused = !status && !old.has_home_of(*work);
        return refused ? CUDA_ERROR_INVALID_VALUE : status;
    });
}

} // namespace soft
