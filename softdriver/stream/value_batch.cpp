#include "api/call.h"
#include "api/state.h"
#include "base/unsupported.h"
#include "graph/works.h"
#include "stream/value.h"

// This file implements cuStreamBatchMemOp, which submits several operations on values in memory. If
// one operation is invalid, the call submits none.

namespace soft {
namespace {

constexpr int barrier = 6; // CU_STREAM_MEM_OP_BARRIER, which older headers lack

} // namespace

CUresult make_value_operation(const CUstreamBatchMemOpParams &item, OperationPtr &operation) {
    const auto &wait = item.waitValue;
    const auto &write = item.writeValue;
    switch (static_cast<int>(item.operation)) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        return make_wait(wait.address, wait.value, wait.flags, operation);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        return make_wait(wait.address, wait.value64, wait.flags, operation);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        return make_write(write.address, write.value, write.flags, operation);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        return make_write(write.address, write.value64, write.flags, operation);
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
        return item.flushRemoteWrites.flags
                   ? CUDA_ERROR_INVALID_VALUE
                   : not_supported("the operation CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES: the device "
                                   "lacks CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES");
    case barrier:
        // A barrier does nothing, because operations of a stream always see each other's writes.
        // Its flags select the scope, which is the system or the GPU.
        if (item.flushRemoteWrites.flags > 1)
            return CUDA_ERROR_INVALID_VALUE;
        operation = std::make_shared<Operation>();
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

SOFT_STREAM_API(cuStreamBatchMemOp_v2,
                (CUstream handle, unsigned count, CUstreamBatchMemOpParams *items, unsigned flags),
                (handle, count, items, flags)) {
    StreamPtr stream;
    if (CUresult status = resolve_stream(call, handle, stream))
        return status;
    if ((!items && count) || count > max_values || flags)
        return CUDA_ERROR_INVALID_VALUE;
    std::vector<OperationPtr> operations(count);
    for (unsigned i = 0; i < count; i++) {
        if (CUresult status = make_value_operation(items[i], operations[i]))
            return status;
        if (CUresult status = check_reach(*stream->owner, *operations[i]))
            return status;
    }
    if (stream->capture)
        return capture_node(*stream, make_value_work({items, items + count}, stream->context));
    for (auto &operation : operations)
        if (CUresult status = submit(*stream, std::move(operation)))
            return status;
    return CUDA_SUCCESS;
}

SOFT_STREAM_API(cuStreamBatchMemOp,
                (CUstream stream, unsigned count, CUstreamBatchMemOpParams *items, unsigned flags),
                (stream, count, items, flags)) {
    return refuse_first_version(stream, count, items, flags);
}

} // namespace soft
