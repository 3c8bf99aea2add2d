#include "stream/value.h"
#include "api/call.h"

#include "api/state.h"
#include "base/unsupported.h"
#include "graph/works.h"

// This file implements stream operations that wait for a value in memory or write one.

namespace soft {
namespace {

template <class Word> bool satisfied(Word seen, Word value, unsigned flags) {
    using Signed = std::make_signed_t<Word>;
    switch (flags & 3) {
    case CU_STREAM_WAIT_VALUE_GEQ:
        return static_cast<Signed>(seen - value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return seen == value;
    case CU_STREAM_WAIT_VALUE_AND:
        return (seen & value) != 0;
    default:
        return ~(seen | value) != 0;
    }
}

// Finds the word at an address. Returns an error if the address is not in device, page-locked or
// registered memory: values in managed and stream-ordered memory are not supported.
template <class Word> CUresult locate(CUdeviceptr address, Word *&word) {
    const Allocation *allocation = find_range(address, sizeof(Word));
    if (!allocation || address % sizeof(Word) || allocation->kind == MemoryKind::Managed ||
        allocation->kind == MemoryKind::Async)
        return CUDA_ERROR_INVALID_VALUE;
    word = reinterpret_cast<Word *>(host_address(*allocation, address));
    return CUDA_SUCCESS;
}

} // namespace

template <class Word>
CUresult make_wait(CUdeviceptr address, Word value, unsigned flags, OperationPtr &operation) {
    constexpr unsigned known = 3 | CU_STREAM_WAIT_VALUE_FLUSH;
    Word *word = nullptr;
    if (flags & ~known)
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = locate(address, word))
        return status;
    // CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES is 0.
    if (flags & CU_STREAM_WAIT_VALUE_FLUSH)
        return not_supported("the flag CU_STREAM_WAIT_VALUE_FLUSH: the device lacks "
                             "CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES");
    operation = std::make_shared<Operation>();
    operation->reads.push_back({address, sizeof(Word)});
    operation->synchronizes = true;
    operation->condition = [=] {
        return satisfied(__atomic_load_n(word, __ATOMIC_ACQUIRE), value, flags);
    };
    return CUDA_SUCCESS;
}

template <class Word>
CUresult make_write(CUdeviceptr address, Word value, unsigned flags, OperationPtr &operation) {
    Word *word = nullptr;
    if (flags) // the only flag, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER, is for the first version
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = locate(address, word))
        return status;
    operation = std::make_shared<Operation>();
    operation->writes.push_back({address, sizeof(Word)});
    operation->synchronizes = true;
    operation->action = [=] { __atomic_store_n(word, value, __ATOMIC_RELEASE); };
    return CUDA_SUCCESS;
}

template CUresult make_wait(CUdeviceptr, cuuint32_t, unsigned, OperationPtr &);
template CUresult make_wait(CUdeviceptr, cuuint64_t, unsigned, OperationPtr &);
template CUresult make_write(CUdeviceptr, cuuint32_t, unsigned, OperationPtr &);
template CUresult make_write(CUdeviceptr, cuuint64_t, unsigned, OperationPtr &);

CUresult check_reach(const Context &context, const Operation &operation) {
    for (const auto *ranges : {&operation.reads, &operation.writes})
        for (const Range &range : *ranges)
            if (!reaches(context, *find_allocation(range.begin), range.begin, range.bytes,
                         ranges == &operation.writes))
                return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

namespace {

// Submits the operation of a batch item with this kind, address, value and flags.
template <class Word>
CUresult submit_value(Call &call, CUstream handle, CUstreamBatchMemOpType kind, CUdeviceptr address,
                      Word value, unsigned flags) {
    StreamPtr stream;
    OperationPtr operation;
    if (CUresult status = resolve_stream(call, handle, stream))
        return status;
    CUstreamBatchMemOpParams item = {};
    item.operation = kind; // waits and writes have the same layout
    item.waitValue.address = address;
    item.waitValue.value64 = value;
    item.waitValue.flags = flags;
    if (CUresult status = make_value_operation(item, operation))
        return status;
    if (CUresult status = check_reach(*stream->owner, *operation))
        return status;
    if (stream->capture)
        return capture_node(*stream, make_value_work({item}, stream->context));
    return submit(*stream, std::move(operation));
}

} // namespace

#define SOFT_VALUE_API(symbol, word, kind)                                                         \
    SOFT_STREAM_API(symbol##_v2,                                                                   \
                    (CUstream stream, CUdeviceptr address, word value, unsigned flags),            \
                    (stream, address, value, flags)) {                                             \
        return submit_value(call, stream, CU_STREAM_MEM_OP_##kind, address, value, flags);         \
    }                                                                                              \
    SOFT_STREAM_API(symbol, (CUstream stream, CUdeviceptr address, word value, unsigned flags),    \
                    (stream, address, value, flags)) {                                             \
        return refuse_first_version(stream, address, value, flags);                                \
    }

SOFT_VALUE_API(cuStreamWaitValue32, cuuint32_t, WAIT_VALUE_32)
SOFT_VALUE_API(cuStreamWaitValue64, cuuint64_t, WAIT_VALUE_64)
SOFT_VALUE_API(cuStreamWriteValue32, cuuint32_t, WRITE_VALUE_32)
SOFT_VALUE_API(cuStreamWriteValue64, cuuint64_t, WRITE_VALUE_64)

} // namespace soft
