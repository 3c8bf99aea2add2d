#include "graph/conditional_node.h"

#include "api/call.h"
#include "api/state.h"
#include "graph/branches.h"
#include "graph/works.h"

#include <algorithm>

// Nodes that run graphs inside them, depending on a value that kernels can set.

namespace soft {
namespace {

enum Kind { if_node, while_node, switch_node };

bool valid_count(int kind, unsigned count) {
    switch (kind) {
    case if_node:
        return count == 1 || count == 2;
    case while_node:
        return count == 1;
    case switch_node:
        return count > 0;
    default:
        return false;
    }
}

class ConditionalWork : public NodeWork {
  public:
    ConditionalWork(ConditionPtr condition, int kind, std::vector<GraphPtr> bodies,
                    ContextPtr context)
        : condition(std::move(condition)), kind(kind), bodies(std::move(bodies)),
          context_(std::move(context)) {
        for (const GraphPtr &body : this->bodies)
            body->inside = true;
    }

    CUgraphNodeType type() const override { return static_cast<CUgraphNodeType>(conditional_type); }
    ContextPtr context() const override { return context_; }
    std::vector<GraphPtr> inner() const override { return bodies; }
    std::vector<OperationPtr> prepare(Stream &stream) const override;
    NodeWorkPtr copy() const override {
        std::vector<GraphPtr> copies;
        for (const GraphPtr &body : bodies)
            copies.push_back(copy_graph(*body));
        return std::make_shared<ConditionalWork>(condition, kind, std::move(copies), context_);
    }
    CUgraphExecUpdateResult replaceable(const NodeWork &next) const override {
        const auto &other = static_cast<const ConditionalWork &>(next);
        return kind == other.kind && bodies.size() == other.bodies.size()
                   ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                   : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    }

    void describe(NodeParams &params) const override {
        params.conditional = {condition->handle, kind, static_cast<unsigned>(bodies.size()),
                              condition->bodies.data(), context_->handle};
    }
    // The updated node takes the value and its default from the other graph's node.
    NodeWorkPtr updated(const NodeWork &next) const override {
        const auto &other = static_cast<const ConditionalWork &>(next);
        return std::make_shared<ConditionalWork>(other.condition, kind, bodies, context_);
    }

    // Returns the body that runs for the present value, or null.
    GraphPtr chosen() const {
        unsigned value = condition->value;
        if (kind == switch_node)
            return value < bodies.size() ? bodies[value] : nullptr;
        if (value)
            return bodies[0];
        return bodies.size() > 1 ? bodies[1] : nullptr;
    }

    const ConditionPtr condition;
    const int kind;
    const std::vector<GraphPtr> bodies;

  private:
    ContextPtr context_;
};

// Runs a conditional node as one operation, which queues the nodes of a body as its parts, and
// waits for them.
class ConditionalRun : public Piecewise {
  public:
    ConditionalRun(std::shared_ptr<const ConditionalWork> work, Stream &stream,
                   const OperationPtr &self)
        : work_(std::move(work)), stream_(stream.shared_from_this()), self_(self) {
        if (state().chooser.replays())
            name_branches();
    }

    bool advance(uint64_t) override {
        Lock lock(state().mutex);
        OperationPtr self = self_.lock();
        take_outcome();
        return !self || self->cancelled || context_status(stream_->owner) || !begin_body(*self);
    }

    bool can_go_on() const override { return all_done(parts_); }

    Outcome so_far() override {
        Outcome decided;
        decided.conditions_read = std::exchange(conditions_read_, {});
        return decided;
    }

    Outcome end() override {
        outcome_.in_parts = true;
        outcome_.conditions_read = std::move(conditions_read_);
        return std::move(outcome_);
    }

  private:
    static size_t count_nodes(const Graph &graph) {
        size_t count = graph.nodes.size();
        for (const auto &entry : graph.nodes)
            if (entry.second->work->type() == CU_GRAPH_NODE_TYPE_GRAPH)
                for (const GraphPtr &inner : entry.second->work->inner())
                    count += count_nodes(*inner);
        return count;
    }

    // Makes the branches, so that their numbers as actors do not depend on when the bodies run.
    void name_branches() {
        size_t count = 1;
        for (const GraphPtr &body : work_->bodies)
            count = std::max(count, count_nodes(*body));
        while (branches_.size() < count) {
            branches_.push_back(
                create_stream(work_->context(), StreamKind::Created, CU_STREAM_NON_BLOCKING, 0));
            state().steps.actor_of(*branches_.back());
        }
    }

    // Queues the next body. Returns false if no body is to run.
    bool begin_body(Operation &self) {
        if (begun_ && work_->kind != while_node)
            return false;
        conditions_read_.push_back(work_->condition->number);
        GraphPtr body = work_->chosen();
        if (!body)
            return false;
        Branches branches(branches_, *stream_, operation.lock());
        std::vector<OperationPtr> leaves;
        if (branches.submit_graph(*body, nullptr, leaves))
            return false;
        parts_ = branches.submitted();
        for (const OperationPtr &part : parts_)
            part->behind = state().steps.next();
        // A wait for this operation is also a wait for its parts.
        self.waits.resize(begun_ ? own_waits_ : own_waits_ = self.waits.size());
        self.waits.insert(self.waits.end(), parts_.begin(), parts_.end());
        if (self.number <= self.stream->required)
            for (const OperationPtr &leaf : leaves)
                state().scheduler.demand(leaf);
        begun_ = true;
        return true;
    }

    // Adds what the last body has used.
    void take_outcome() {
        auto append = [](std::vector<Range> &all, const std::vector<Range> &more) {
            all.insert(all.end(), more.begin(), more.end());
        };
        for (const OperationPtr &part : parts_) {
            append(outcome_.reads, part->reads);
            append(outcome_.writes, part->writes);
            append(outcome_.updates, part->updates);
        }
        parts_.clear();
    }

    std::shared_ptr<const ConditionalWork> work_;
    StreamPtr stream_;
    std::weak_ptr<Operation> self_; // in a body of another conditional node, not `operation`
    std::vector<StreamPtr> branches_;
    std::vector<OperationPtr> parts_; // the operations of the running body
    bool begun_ = false;              // a body has begun
    size_t own_waits_ = 0;            // how many of the operation's waits are not parts
    std::vector<uint64_t> conditions_read_;
    Outcome outcome_;
};

std::vector<OperationPtr> ConditionalWork::prepare(Stream &stream) const {
    auto operation = std::make_shared<Operation>();
    // Later changes of the executable graph affect only later launches.
    auto frozen = std::static_pointer_cast<const ConditionalWork>(copy());
    operation->pieces = std::make_shared<ConditionalRun>(std::move(frozen), stream, operation);
    operation->pieces->operation = operation;
    operation->unforeseen = true;
    return {operation};
}

ConditionPtr find_condition(uint64_t handle) {
    auto found = state().conditions.find(handle);
    return found == state().conditions.end() ? nullptr : found->second.lock();
}

} // namespace

Condition::~Condition() { state().conditions.erase(handle); }

uint64_t set_condition(uint64_t handle, unsigned value) {
    ConditionPtr condition = find_condition(handle);
    if (!condition)
        return 0;
    condition->value = value;
    return condition->number;
}

void find_conditions(const Graph &graph, std::vector<ConditionPtr> &found) {
    for (const auto &entry : graph.nodes) {
        if (auto *work = dynamic_cast<const ConditionalWork *>(entry.second->work.get()))
            found.push_back(work->condition);
        for (const GraphPtr &inner : entry.second->work->inner())
            find_conditions(*inner, found);
    }
}

CUresult make_conditional_work(const Graph &graph, ConditionalNodeParams &params,
                               NodeWorkPtr &work) {
    ConditionPtr condition = find_condition(params.handle);
    ContextPtr context = find_context(params.context);
    GraphPtr owner = condition ? condition->graph.lock() : nullptr;
    if (!owner || !is_within(graph, *owner) || condition->used)
        return CUDA_ERROR_INVALID_VALUE;
    if (!valid_count(params.type, params.count) || params.count > max_bodies)
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = context_status(context.get()))
        return status;
    if (context != condition->context)
        return CUDA_ERROR_INVALID_CONTEXT;
    std::vector<GraphPtr> bodies(params.count);
    for (GraphPtr &body : bodies) {
        body = create_graph();
        condition->bodies.push_back(handle_of(*body));
    }
    condition->used = true;
    params.graphs = condition->bodies.data();
    work = std::make_shared<ConditionalWork>(condition, params.type, std::move(bodies), context);
    return CUDA_SUCCESS;
}

SOFT_API(cuGraphConditionalHandleCreate,
         (CUgraphConditionalHandle * result, CUgraph handle, CUcontext context_handle,
          unsigned value, unsigned flags),
         (result, handle, context_handle, value, flags)) {
    constexpr unsigned assign_default = 1;
    GraphPtr graph = find_graph(handle);
    ContextPtr context = find_context(context_handle);
    if (!result || !graph || (flags & ~assign_default))
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = context_status(context.get()))
        return status;
    auto condition = std::make_shared<Condition>();
    condition->handle = state().new_id();
    condition->number = state().next_condition++;
    condition->graph = graph;
    condition->context = context;
    condition->initial = condition->value = value;
    condition->assigns = flags & assign_default;
    state().conditions[condition->handle] = condition;
    graph->conditions.push_back(condition);
    *result = condition->handle;
    return CUDA_SUCCESS;
}

} // namespace soft
