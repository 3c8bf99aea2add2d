#include "api/call.h"
#include "api/state.h"
#include "graph/node_api.h"
#include "graph/node_params.h"
#include "graph/works.h"
#include "stream/shared_event.h"

// Nodes that record an event or wait for one.

namespace soft {
namespace {

class EventWork : public NodeWork {
  public:
    explicit EventWork(EventPtr event) : event_(std::move(event)) {}

    CUevent event() const { return event_->handle; }
    ContextPtr context() const override { return event_->context; }
    void describe(NodeParams &params) const override { params.event = event(); }

  protected:
    EventPtr event_;
};

class RecordWork : public EventWork {
  public:
    using EventWork::EventWork;

    CUgraphNodeType type() const override { return CU_GRAPH_NODE_TYPE_EVENT_RECORD; }
    std::vector<OperationPtr> prepare(Stream &) const override {
        return {std::make_shared<Operation>()};
    }
    void submitted(const std::vector<OperationPtr> &operations) const override {
        note_record(*event_, operations.back());
    }
};

// Waits for the record that is the latest when the graph is launched, or for a record in the same
// graph that is ordered before the node.
class WaitWork : public EventWork {
  public:
    using EventWork::EventWork;

    CUgraphNodeType type() const override { return CU_GRAPH_NODE_TYPE_WAIT_EVENT; }
    std::vector<OperationPtr> prepare(Stream &) const override {
        auto operation = std::make_shared<Operation>();
        follow_other_process(*event_);
        if (event_->recorded)
            operation->waits.push_back(event_->recorded);
        return {operation};
    }
};

template <class Work> CUresult make_event_work(CUevent handle, NodeWorkPtr &work) {
    EventPtr event;
    if (CUresult status = handle ? find_event(handle, event) : CUDA_ERROR_INVALID_VALUE)
        return status;
    work = std::make_shared<Work>(std::move(event));
    return CUDA_SUCCESS;
}

template <class Work> CUresult read_event(CUgraphNode node, CUevent *event) {
    return read_node<Work>(node, event, [&](auto &work) { *event = work.event(); });
}

template <class Work> CUresult set_event(CUgraphNode node, CUevent event) {
    return change_node<Work>(
        node, [&](auto &, auto &work) { return make_event_work<Work>(event, work); });
}

template <class Work> CUresult set_exec_event(CUgraphExec exec, CUgraphNode node, CUevent event) {
    return change_exec_node<Work>(
        exec, node, [&](auto &, auto &work) { return make_event_work<Work>(event, work); });
}

} // namespace

CUresult make_record_work(CUevent event, NodeWorkPtr &work) {
    return make_event_work<RecordWork>(event, work);
}

CUresult make_wait_work(CUevent event, NodeWorkPtr &work) {
    return make_event_work<WaitWork>(event, work);
}

SOFT_API(cuGraphAddEventRecordNode,
         (CUgraphNode * node, CUgraph graph, const CUgraphNode *after, size_t count, CUevent event),
         (node, graph, after, count, event)) {
    return add_node(node, graph, after, count,
                    [&](auto &work) { return make_record_work(event, work); });
}

SOFT_API(cuGraphAddEventWaitNode,
         (CUgraphNode * node, CUgraph graph, const CUgraphNode *after, size_t count, CUevent event),
         (node, graph, after, count, event)) {
    return add_node(node, graph, after, count,
                    [&](auto &work) { return make_wait_work(event, work); });
}

SOFT_API(cuGraphEventRecordNodeGetEvent, (CUgraphNode node, CUevent *event), (node, event)) {
    return read_event<RecordWork>(node, event);
}

SOFT_API(cuGraphEventWaitNodeGetEvent, (CUgraphNode node, CUevent *event), (node, event)) {
    return read_event<WaitWork>(node, event);
}

SOFT_API(cuGraphEventRecordNodeSetEvent, (CUgraphNode node, CUevent event), (node, event)) {
    return set_event<RecordWork>(node, event);
}

SOFT_API(cuGraphEventWaitNodeSetEvent, (CUgraphNode node, CUevent event), (node, event)) {
    return set_event<WaitWork>(node, event);
}

SOFT_API(cuGraphExecEventRecordNodeSetEvent, (CUgraphExec exec, CUgraphNode node, CUevent event),
         (exec, node, event)) {
    return set_exec_event<RecordWork>(exec, node, event);
}

SOFT_API(cuGraphExecEventWaitNodeSetEvent, (CUgraphExec exec, CUgraphNode node, CUevent event),
         (exec, node, event)) {
    return set_exec_event<WaitWork>(exec, node, event);
}

} // namespace soft
