#include "state.h"

// Streams that wait for a value in memory, and that write one.

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

// Resolves stream and address of a word; both kinds of call need the same.
template <class Word>
CUresult locate(Call &call, CUstream handle, CUdeviceptr address, StreamPtr &stream, Word *&word) {
    if (CUresult status = resolve_stream(call, handle, stream))
        return status;
    const Allocation *allocation = find_range(address, sizeof(Word));
    if (!allocation || address % sizeof(Word))
        return CUDA_ERROR_INVALID_VALUE;
    word = reinterpret_cast<Word *>(host_address(*allocation, address));
    return CUDA_SUCCESS;
}

template <class Word>
CUresult wait_value(Call &call, CUstream handle, CUdeviceptr address, Word value, unsigned flags) {
    constexpr unsigned known = 3 | CU_STREAM_WAIT_VALUE_FLUSH;
    StreamPtr stream;
    Word *word = nullptr;
    if (flags & ~known)
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = locate(call, handle, address, stream, word))
        return status;
    auto operation = std::make_shared<Operation>();
    operation->reads.push_back({address, sizeof(Word)});
    operation->condition = [=] {
        return satisfied(__atomic_load_n(word, __ATOMIC_ACQUIRE), value, flags);
    };
    return submit(*stream, std::move(operation));
}

template <class Word>
CUresult write_value(Call &call, CUstream handle, CUdeviceptr address, Word value, unsigned flags) {
    StreamPtr stream;
    Word *word = nullptr;
    if (flags & ~unsigned(CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER))
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = locate(call, handle, address, stream, word))
        return status;
    auto operation = std::make_shared<Operation>();
    operation->writes.push_back({address, sizeof(Word)});
    operation->action = [=] { __atomic_store_n(word, value, __ATOMIC_RELEASE); };
    return submit(*stream, std::move(operation));
}

} // namespace

#define SOFT_VALUE_API(symbol, word, body)                                                         \
    SOFT_STREAM_API(symbol, (CUstream stream, CUdeviceptr address, word value, unsigned flags),    \
                    (stream, address, value, flags)) {                                             \
        return body<word>(call, stream, address, value, flags);                                    \
    }

SOFT_VALUE_API(cuStreamWaitValue32, cuuint32_t, wait_value)
SOFT_VALUE_API(cuStreamWaitValue32_v2, cuuint32_t, wait_value)
SOFT_VALUE_API(cuStreamWaitValue64, cuuint64_t, wait_value)
SOFT_VALUE_API(cuStreamWaitValue64_v2, cuuint64_t, wait_value)
SOFT_VALUE_API(cuStreamWriteValue32, cuuint32_t, write_value)
SOFT_VALUE_API(cuStreamWriteValue32_v2, cuuint32_t, write_value)
SOFT_VALUE_API(cuStreamWriteValue64, cuuint64_t, write_value)
SOFT_VALUE_API(cuStreamWriteValue64_v2, cuuint64_t, write_value)

} // namespace soft
