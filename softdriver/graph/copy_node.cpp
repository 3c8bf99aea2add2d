#include "api/call.h"
#include "graph/node_api.h"
#include "graph/node_params.h"
#include "graph/works.h"
#include "stream/transfer.h"

// Nodes that copy.

namespace soft {
namespace {

// The origin of the memory on one side of a copy. In an executable graph, a side can get other
// memory only if the origin is the same. Memory whose behaviour on real drivers is not known is
// `Other`, and always accepted.
enum class Origin { Other, Device, Pool, ManagedPool, Host, HostPool };

Origin origin_of(const Allocation &memory) {
    bool of_graph = memory.captured || !memory.graph.expired();
    switch (memory.kind) {
    case MemoryKind::Device:
        return Origin::Device;
    case MemoryKind::Async:
        return memory.pool ? Origin::Pool : Origin::Other;
    case MemoryKind::Managed:
        return memory.pool ? Origin::ManagedPool : of_graph ? Origin::Other : Origin::Device;
    case MemoryKind::Host:
        return memory.pool ? Origin::HostPool : Origin::Host;
    default:
        return Origin::Other;
    }
}

// A side of a copy, as it was when the work was made.
struct CopySide {
    explicit CopySide(const End &end) : side(end.side) {
        const Allocation *memory = end.host ? find_allocation(end.address) : nullptr;
        if (memory) {
            origin = origin_of(*memory);
            context = memory->context;
        }
        ContextPtr owner = side == Side::Device ? find_context(context) : nullptr;
        device = owner ? owner->device : nullptr;
    }

    // Returns true if `next` can replace this side as the target, in a node of an executable graph.
    bool replaceable(const CopySide &next) const {
        return origin == Origin::Other || next.origin == Origin::Other || origin == next.origin;
    }

    // Returns true if `next` can replace this side as the source. Memory that is not from a pool
    // must also be of the same context.
    bool replaceable_source(const CopySide &next) const {
        bool bound = origin == Origin::Host || origin == Origin::Device;
        return replaceable(next) && (origin != next.origin || !bound || context == next.context);
    }

    // Returns true for page-locked and managed memory that belongs to another context.
    bool is_far(const Context &here) const {
        bool shared = side == Side::Locked || side == Side::Managed;
        bool bound = origin == Origin::Host || origin == Origin::Device;
        return shared && bound && context && context != here.handle;
    }

    // Returns true for page-locked and managed memory that belongs to a context of another device.
    bool is_of_other_device(const Context &here) const {
        ContextPtr owner = is_far(here) ? find_context(context) : nullptr;
        return owner && owner->device != here.device;
    }

    // Returns true if the program has freed the memory since the work was made. The address may now
    // belong to any pageable memory.
    bool is_gone(const End &now) const {
        return side != Side::Pageable && now.side == Side::Pageable;
    }

    Side side;
    Origin origin = Origin::Other;
    CUcontext context = nullptr;
    const Device *device = nullptr; // that of device memory
};

bool has_rows(const CUDA_MEMCPY3D_v2 &box) { return box.Height > 1 || box.Depth > 1; }

auto places_of(const CUDA_MEMCPY3D_v2 &box) {
    return std::tie(box.srcHost, box.srcDevice, box.srcArray, box.srcXInBytes, box.srcY, box.srcZ,
                    box.srcLOD, box.srcPitch, box.srcHeight, box.dstHost, box.dstDevice,
                    box.dstArray, box.dstXInBytes, box.dstY, box.dstZ, box.dstLOD, box.dstPitch,
                    box.dstHeight, box.WidthInBytes, box.Height, box.Depth);
}

class CopyWork : public NodeWork {
  public:
    CopyWork(const CUDA_MEMCPY3D_v2 &box, const Transfer &transfer, const ContextPtr &context)
        : box(box), context_(context), target_(transfer.target), source_(transfer.source) {}

    CUgraphNodeType type() const override { return CU_GRAPH_NODE_TYPE_MEMCPY; }
    ContextPtr context() const override { return context_; }
    bool can_be_disabled() const override { return true; }
    void describe(NodeParams &params) const override {
        params.copy = {0, 0, context_->handle, box};
    }
    CUresult check_body() const override {
        return crosses_devices() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    }
    // The memory is looked up at each launch, because the program may have freed it since, or may
    // have ended the access to it.
    std::vector<OperationPtr> prepare(Stream &) const override {
        Transfer transfer{};
        CUresult status = read_box(box, transfer);
        if (status || target_.is_gone(transfer.target) || source_.is_gone(transfer.source))
            return {failing_operation(CUDA_ERROR_ILLEGAL_ADDRESS)};
        if (check_access(*context_, transfer.target, transfer.source))
            return {failing_operation(CUDA_ERROR_LAUNCH_FAILED)};
        return {transfer.bytes() ? copy_operation(transfer, false) : std::make_shared<Operation>()};
    }
    // Driver 580 loses the context when a body runs a copy from memory of another context, or to
    // memory of another device's context.
    std::vector<OperationPtr> prepare_in_body(Stream &stream) const override {
        if (source_.is_far(*context_) || target_.is_of_other_device(*context_))
            return {failing_operation(CUDA_ERROR_ILLEGAL_ADDRESS)};
        return prepare(stream);
    }
    // An update cannot change a copy of several rows. It cannot turn a copy between devices into a
    // copy within one.
    CUgraphExecUpdateResult replaceable(const NodeWork &next) const override {
        const auto &other = static_cast<const CopyWork &>(next);
        bool rows = has_rows(box) || has_rows(other.box);
        if (rows && places_of(box) != places_of(other.box))
            return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
        if (crosses_devices() && !other.crosses_devices())
            return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
        bool same = box.srcMemoryType == other.box.srcMemoryType &&
                    box.dstMemoryType == other.box.dstMemoryType &&
                    target_.replaceable(other.target_) && source_.replaceable_source(other.source_);
        return same ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    }

    const CUDA_MEMCPY3D_v2 box;

  private:
    bool crosses_devices() const {
        return target_.device && source_.device && target_.device != source_.device;
    }

    ContextPtr context_;
    CopySide target_, source_;
};

} // namespace

CUresult make_copy_work(Call &call, const CUDA_MEMCPY3D_v2 *params, CUcontext handle,
                        NodeWorkPtr &work) {
    ContextPtr context = handle ? find_context(handle) : call.context;
    if (!params || !params->WidthInBytes || !params->Height || !params->Depth)
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = context_status(context.get()))
        return status;
    Transfer transfer{};
    if (CUresult status = read_box(*params, transfer))
        return status;
    if (CUresult status = check_access(*context, transfer.target, transfer.source))
        return status;
    work = std::make_shared<CopyWork>(*params, transfer, context);
    return CUDA_SUCCESS;
}

NodeWorkPtr make_copy_work(const Transfer &transfer, const ContextPtr &context) {
    return std::make_shared<CopyWork>(box_of(transfer), transfer, context);
}

SOFT_API(cuGraphAddMemcpyNode,
         (CUgraphNode * node, CUgraph graph, const CUgraphNode *after, size_t count,
          const CUDA_MEMCPY3D_v2 *params, CUcontext context),
         (node, graph, after, count, params, context)) {
    return add_node(node, graph, after, count,
                    [&](auto &work) { return make_copy_work(call, params, context, work); });
}

SOFT_API(cuGraphMemcpyNodeGetParams, (CUgraphNode node, CUDA_MEMCPY3D_v2 *params), (node, params)) {
    return read_node<CopyWork>(node, params, [&](auto &work) { *params = work.box; });
}

SOFT_API(cuGraphMemcpyNodeSetParams, (CUgraphNode node, const CUDA_MEMCPY3D_v2 *params),
         (node, params)) {
    GraphNodePtr found = find_node(node);
    CUcontext context = found && found->work->context() ? found->work->context()->handle : nullptr;
    return change_node<CopyWork>(
        node, [&](auto &, auto &work) { return make_copy_work(call, params, context, work); });
}

SOFT_API(cuGraphExecMemcpyNodeSetParams,
         (CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D_v2 *params, CUcontext context),
         (exec, node, params, context)) {
    return change_exec_node<CopyWork>(exec, node, [&](auto &, auto &work) {
        return make_copy_work(call, params, context, work);
    });
}

} // namespace soft
