#include "stream/value.h"
#include "api/call.h"

#include "api/state.h"

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
        return CUDA_ERROR_NOT_SUPPORTED;
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

CUresult check_reach(const Stream &stream, const Operation &operation) {
    for (const auto *ranges : {&operation.reads, &operation.writes})
        for (const Range &range : *ranges)
            if (!reaches(*stream.owner, *find_allocation(range.begin)))
                return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

namespace {

template <class Make, class Word>
CUresult submit_value(Call &call, CUstream handle, Make make, CUdeviceptr address, Word value,
                      unsigned flags) {
    StreamPtr stream;
    OperationPtr operation;
    if (CUresult status = resolve_stream(call, handle, stream))
        return status;
    if (CUresult status = make(address, value, flags, operation))
        return status;
    if (CUresult status = check_reach(*stream, *operation))
        return status;
    return submit(*stream, std::move(operation));
}

} // namespace

#define SOFT_VALUE_API(symbol, word, make)                                                         \
    SOFT_STREAM_API(symbol##_v2,                                                                   \
                    (CUstream stream, CUdeviceptr address, word value, unsigned flags),            \
                    (stream, address, value, flags)) {                                             \
        return submit_value(call, stream, make<word>, address, value, flags);                      \
    }                                                                                              \
    SOFT_STREAM_API(symbol, (CUstream stream, CUdeviceptr address, word value, unsigned flags),    \
                    (stream, address, value, flags)) {                                             \
        return refuse_first_version(stream, address, value, flags);                                \
    }

SOFT_VALUE_API(cuStreamWaitValue32, cuuint32_t, make_wait)
SOFT_VALUE_API(cuStreamWaitValue64, cuuint64_t, make_wait)
SOFT_VALUE_API(cuStreamWriteValue32, cuuint32_t, make_write)
SOFT_VALUE_API(cuStreamWriteValue64, cuuint64_t, make_write)

} // namespace soft
