#include "state.h"

#include <cstring>

// Copies. How long a call blocks and when it reads and writes host memory depends on what its two
// ends are; where the documentation leaves that open, the latest moment is taken.

namespace soft {
namespace {

enum class Side { Pageable, Locked, Managed, Device };

struct End {
    uintptr_t address = 0;
    char *host = nullptr;
    Side side = Side::Pageable;

    bool on_host() const { return side == Side::Pageable || side == Side::Locked; }
};

// Larger pageable sources are not snapshot: the call blocks.
constexpr size_t snapshot_limit = 65536;

Side side_of(const Allocation &allocation) {
    if (allocation.on_device())
        return Side::Device;
    return allocation.kind == MemoryKind::Managed ? Side::Managed : Side::Locked;
}

CUresult locate_device(CUdeviceptr address, size_t bytes, End &end) {
    const Allocation *allocation = find_range(address, bytes);
    if (!allocation)
        return CUDA_ERROR_INVALID_VALUE;
    end = {address, host_address(*allocation, address), side_of(*allocation)};
    return CUDA_SUCCESS;
}

// An address that the driver does not know is the program's own, pageable memory.
CUresult locate_any(uintptr_t address, size_t bytes, End &end) {
    if (find_allocation(address))
        return locate_device(address, bytes, end);
    if (never_host_memory(address))
        return CUDA_ERROR_INVALID_VALUE;
    end = {address, reinterpret_cast<char *>(address), Side::Pageable};
    return CUDA_SUCCESS;
}

CUresult locate_host(const void *pointer, size_t bytes, End &end) {
    CUresult status = locate_any(reinterpret_cast<uintptr_t>(pointer), bytes, end);
    return status == CUDA_SUCCESS && end.side == Side::Device ? CUDA_ERROR_INVALID_VALUE : status;
}

OperationPtr copy_operation(const End &target, const End &source, size_t bytes, bool snapshot) {
    auto operation = std::make_shared<Operation>();
    operation->writes.push_back({target.address, bytes});
    if (snapshot) {
        std::shared_ptr<char[]> staged(new char[bytes]);
        std::memcpy(staged.get(), source.host, bytes);
        operation->action = [=] { std::memcpy(target.host, staged.get(), bytes); };
    } else {
        operation->reads.push_back({source.address, bytes});
        operation->action = [=] { std::memmove(target.host, source.host, bytes); };
    }
    return operation;
}

// Waits for an operation that has been submitted; null if it was captured.
CUresult wait_for(Call &call, Stream &stream, const OperationPtr &operation) {
    if (!operation)
        return CUDA_SUCCESS;
    state().scheduler.finish(call.lock, {operation});
    return context_status(stream.owner);
}

CUresult copy_async(Call &call, Stream &stream, const End &target, const End &source,
                    size_t bytes) {
    bool small = bytes <= snapshot_limit;
    if (small && state().settings.schedule == Schedule::Random)
        small = state().random.below(2);
    bool host_to_host = target.on_host() && source.on_host();
    bool snapshot = source.side == Side::Pageable && !host_to_host && small;
    bool blocks = target.side == Side::Pageable || host_to_host ||
                  (source.side == Side::Pageable && !snapshot);
    OperationPtr queued;
    OperationPtr operation = copy_operation(target, source, bytes, snapshot);
    if (CUresult status = submit(stream, std::move(operation), &queued))
        return status;
    return blocks ? wait_for(call, stream, queued) : CUDA_SUCCESS;
}

// From pageable memory: returns once the source is staged, which is after all work that the copy is
// ordered after, and before it has arrived.
CUresult copy_staged(Call &call, Stream &stream, const End &target, const End &source,
                     size_t bytes) {
    OperationPtr before;
    if (CUresult status = submit(stream, std::make_shared<Operation>(), &before))
        return status;
    if (CUresult status = wait_for(call, stream, before))
        return status;
    if (!find_range(target.address, bytes)) // freed meanwhile
        return CUDA_ERROR_INVALID_VALUE;
    return submit(stream, copy_operation(target, source, bytes, true));
}

CUresult copy_sync(Call &call, const End &target, const End &source, size_t bytes) {
    StreamPtr stream = default_stream(call, call.context, call.per_thread);
    if (CUresult status = refuse_captured(*stream))
        return status;
    bool into_device = !target.on_host() && source.side == Side::Pageable;
    if (into_device && bytes <= snapshot_limit)
        return copy_staged(call, *stream, target, source, bytes);
    OperationPtr queued;
    OperationPtr operation = copy_operation(target, source, bytes, false);
    if (CUresult status = submit(*stream, std::move(operation), &queued))
        return status;
    bool on_device = target.side == Side::Device && source.side == Side::Device;
    return on_device ? CUDA_SUCCESS : wait_for(call, *stream, queued);
}

// Both ends as located, or the first error.
struct Ends {
    CUresult status;
    End target, source;
};

Ends host_to_device(CUdeviceptr target, const void *source, size_t bytes) {
    Ends ends;
    ends.status = locate_device(target, bytes, ends.target);
    if (ends.status == CUDA_SUCCESS)
        ends.status = locate_host(source, bytes, ends.source);
    return ends;
}

Ends device_to_host(void *target, CUdeviceptr source, size_t bytes) {
    Ends ends;
    ends.status = locate_device(source, bytes, ends.source);
    if (ends.status == CUDA_SUCCESS)
        ends.status = locate_host(target, bytes, ends.target);
    return ends;
}

Ends device_to_device(CUdeviceptr target, CUdeviceptr source, size_t bytes) {
    Ends ends;
    ends.status = locate_device(source, bytes, ends.source);
    if (ends.status == CUDA_SUCCESS)
        ends.status = locate_device(target, bytes, ends.target);
    return ends;
}

Ends any_to_any(CUdeviceptr target, CUdeviceptr source, size_t bytes) {
    Ends ends;
    ends.status = locate_any(source, bytes, ends.source);
    if (ends.status == CUDA_SUCCESS)
        ends.status = locate_any(target, bytes, ends.target);
    return ends;
}

template <class Locate, class Target, class Source>
CUresult now(Call &call, Locate locate, Target target, Source source, size_t bytes) {
    if (!bytes)
        return CUDA_SUCCESS;
    Ends ends = locate(target, source, bytes);
    return ends.status ? ends.status : copy_sync(call, ends.target, ends.source, bytes);
}

template <class Locate, class Target, class Source>
CUresult later(Call &call, CUstream handle, Locate locate, Target target, Source source,
               size_t bytes) {
    StreamPtr stream;
    if (CUresult status = resolve_stream(call, handle, stream))
        return status;
    if (!bytes)
        return CUDA_SUCCESS;
    Ends ends = locate(target, source, bytes);
    return ends.status ? ends.status : copy_async(call, *stream, ends.target, ends.source, bytes);
}

} // namespace

SOFT_DEFAULT_API(cuMemcpy, (CUdeviceptr target, CUdeviceptr source, size_t bytes),
                 (target, source, bytes)) {
    return now(call, any_to_any, target, source, bytes);
}

SOFT_DEFAULT_API(cuMemcpyHtoD_v2, (CUdeviceptr target, const void *source, size_t bytes),
                 (target, source, bytes)) {
    return now(call, host_to_device, target, source, bytes);
}

SOFT_DEFAULT_API(cuMemcpyDtoH_v2, (void *target, CUdeviceptr source, size_t bytes),
                 (target, source, bytes)) {
    return now(call, device_to_host, target, source, bytes);
}

SOFT_DEFAULT_API(cuMemcpyDtoD_v2, (CUdeviceptr target, CUdeviceptr source, size_t bytes),
                 (target, source, bytes)) {
    return now(call, device_to_device, target, source, bytes);
}

SOFT_STREAM_API(cuMemcpyAsync,
                (CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream),
                (target, source, bytes, stream)) {
    return later(call, stream, any_to_any, target, source, bytes);
}

SOFT_STREAM_API(cuMemcpyHtoDAsync_v2,
                (CUdeviceptr target, const void *source, size_t bytes, CUstream stream),
                (target, source, bytes, stream)) {
    return later(call, stream, host_to_device, target, source, bytes);
}

SOFT_STREAM_API(cuMemcpyDtoHAsync_v2,
                (void *target, CUdeviceptr source, size_t bytes, CUstream stream),
                (target, source, bytes, stream)) {
    return later(call, stream, device_to_host, target, source, bytes);
}

SOFT_STREAM_API(cuMemcpyDtoDAsync_v2,
                (CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream),
                (target, source, bytes, stream)) {
    return later(call, stream, device_to_device, target, source, bytes);
}

SOFT_DEFAULT_API(cuMemcpyPeer,
                 (CUdeviceptr target, CUcontext target_context, CUdeviceptr source,
                  CUcontext source_context, size_t bytes),
                 (target, target_context, source, source_context, bytes)) {
    if (!find_context(target_context) || !find_context(source_context))
        return CUDA_ERROR_INVALID_CONTEXT;
    return now(call, device_to_device, target, source, bytes);
}

SOFT_STREAM_API(cuMemcpyPeerAsync,
                (CUdeviceptr target, CUcontext target_context, CUdeviceptr source,
                 CUcontext source_context, size_t bytes, CUstream stream),
                (target, target_context, source, source_context, bytes, stream)) {
    if (!find_context(target_context) || !find_context(source_context))
        return CUDA_ERROR_INVALID_CONTEXT;
    return later(call, stream, device_to_device, target, source, bytes);
}

} // namespace soft
