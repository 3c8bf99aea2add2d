#include "api/call.h"
#include "api/state.h"
#include "graph/works.h"

// This file implements host functions, which are functions of the program that run in a stream, on
// a driver thread. They must not call most functions of the driver (see Callback in functions.h).

namespace soft {
namespace {

CUresult submit_function(Stream &stream, std::function<void()> action) {
    auto operation = std::make_shared<Operation>();
    operation->on_worker = true;
    operation->action = std::move(action);
    return submit(stream, std::move(operation));
}

} // namespace

SOFT_STREAM_API(cuLaunchHostFunc, (CUstream handle, CUhostFn function, void *data),
                (handle, function, data)) {
    if (!function)
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = call.require(Needs::Init))
        return status;
    StreamPtr stream;
    if (CUresult status = resolve_stream(call, handle, stream))
        return status;
    if (stream->capture) {
        CUDA_HOST_NODE_PARAMS params = {function, data};
        NodeWorkPtr work;
        if (CUresult status = make_host_work(&params, work))
            return status;
        return capture_node(*stream, std::move(work));
    }
    return submit_function(*stream, [=] { function(data); });
}

SOFT_STREAM_API(cuStreamAddCallback,
                (CUstream handle, CUstreamCallback callback, void *data, unsigned flags),
                (handle, callback, data, flags)) {
    StreamPtr stream;
    if (CUresult status = resolve_stream(call, handle, stream))
        return status;
    if (!callback || flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = refuse_captured(*stream))
        return status;
    return submit_function(*stream, [=] { callback(handle, CUDA_SUCCESS, data); });
}

} // namespace soft
