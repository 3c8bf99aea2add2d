#include "graph/conditional_node.h"

#include "api/call.h"
#include "api/state.h"
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

// Runs a conditional node as one operation. The nodes of a body run one after the other, in one of
// the orders that the edges permit.
class ConditionalRun : public Piecewise {
  public:
    ConditionalRun(std::shared_ptr<const ConditionalWork> work, Stream &stream)
        : work_(std::move(work)), stream_(stream.shared_from_this()) {}

    bool advance(uint64_t steps) override {
        if (next_ == operations_.size() && !begin_body())
            return true;
        Operation &part = *operations_[next_];
        if (part.pieces && !part.pieces->advance(steps))
            return false;
        if (part.action) {
            come_to_write(part.writes);
            part.action();
        }
        Lock lock(state().mutex);
        if (part.pieces)
            add(part.pieces->end());
        else
            add({CUDA_SUCCESS, part.reads, part.writes, part.updates});
        next_++;
        return outcome_.status != CUDA_SUCCESS;
    }

    Outcome end() override { return std::move(outcome_); }

  private:
    // Prepares the next body. Returns false if no body is to run.
    bool begin_body() {
        Lock lock(state().mutex);
        operations_.clear();
        next_ = 0;
        while (operations_.empty()) {
            GraphPtr body = begun_ && work_->kind != while_node ? nullptr : work_->chosen();
            if (!body)
                return false;
            begun_ = true;
            prepare(*body);
            if (operations_.empty() && work_->kind == while_node)
                // An empty operation lets other operations run between two checks of the condition.
                operations_.push_back(std::make_shared<Operation>());
        }
        return true;
    }

    void prepare(const Graph &graph) {
        bool eager = state().settings.schedule == Schedule::Eager;
        if (graph.nodes.size() > 1 && state().chooser.replays())
            state().chooser.limit("the nodes in the body of a conditional node run in one order");
        auto choose = [&](size_t count) { return eager ? 0 : state().chooser.draw(count); };
        for (const GraphNodePtr &node : sorted(graph, choose)) {
            if (!node->enabled)
                continue;
            if (node->work->type() == CU_GRAPH_NODE_TYPE_GRAPH)
                for (const GraphPtr &inner : node->work->inner())
                    prepare(*inner);
            for (OperationPtr &part : node->work->prepare_in_body(*stream_)) {
                if (part->pieces)
                    part->pieces->operation = operation;
                operations_.push_back(std::move(part));
            }
        }
    }

    // Called before an operation of a body writes memory. As for a kernel, memory that the host can
    // access is noted before it changes, so that the race detector does not take the change for a
    // write of the host.
    void come_to_write(const std::vector<Range> &ranges) {
        Lock lock(state().mutex);
        OperationPtr self = operation.lock();
        for (const Range &range : ranges) {
            const Allocation *allocation = find_allocation(range.begin);
            if (!self || !allocation || allocation->on_device())
                continue;
            self->writes.push_back(range);
            state().races.comes_to_use(self, *allocation);
        }
    }

    void add(const Outcome &part) {
        auto append = [](std::vector<Range> &all, const std::vector<Range> &more) {
            all.insert(all.end(), more.begin(), more.end());
        };
        outcome_.status = outcome_.status ? outcome_.status : part.status;
        append(outcome_.reads, part.reads);
        append(outcome_.writes, part.writes);
        append(outcome_.updates, part.updates);
    }

    std::shared_ptr<const ConditionalWork> work_;
    StreamPtr stream_;
    std::vector<OperationPtr> operations_; // operations of the running body
    size_t next_ = 0;
    bool begun_ = false; // a body has begun
    Outcome outcome_;
};

std::vector<OperationPtr> ConditionalWork::prepare(Stream &stream) const {
    auto operation = std::make_shared<Operation>();
    // Later changes of the executable graph affect only later launches.
    auto frozen = std::static_pointer_cast<const ConditionalWork>(copy());
    operation->pieces = std::make_shared<ConditionalRun>(std::move(frozen), stream);
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

void set_condition(uint64_t handle, unsigned value) {
    Lock lock(state().mutex);
    if (ConditionPtr condition = find_condition(handle))
        condition->value = value;
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
