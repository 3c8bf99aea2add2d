#include "api/call.h"
#include "api/state.h"
#include "stream/shared_event.h"

#include <algorithm>

// This file implements cuCtxRecordEvent, which records an event after all work of a context, and
// cuCtxWaitEvent, which makes a context wait for an event.

namespace soft {
namespace {

// Finds a context and an event. Returns an error if a capture uses the context.
CUresult find_both(Call &call, CUcontext handle, CUevent event_handle, ContextPtr &context,
                   EventPtr &event) {
    context = handle ? find_context(handle) : call.context;
    if (CUresult status = context_status(context.get()))
        return status;
    if (CUresult status = find_event(event_handle, event))
        return status;
    return refuse_captured(*context);
}

} // namespace

// Records the event in a new stream. The record waits for the last operation of every other stream
// of the context.
SOFT_API(cuCtxRecordEvent, (CUcontext handle, CUevent event_handle), (handle, event_handle)) {
    ContextPtr context;
    EventPtr event;
    if (CUresult status = find_both(call, handle, event_handle, context, event))
        return status;
    if (event->owner != context.get())
        return CUDA_ERROR_INVALID_HANDLE;
    StreamPtr stream = create_stream(context, StreamKind::Created, CU_STREAM_NON_BLOCKING, 0);
    auto operation = std::make_shared<Operation>();
    operation->waits = context_targets(*context);
    for (const OperationPtr &tail : state().races.tails(*context))
        // Wait for finished operations too: the race detector needs this order.
        operation->waits.push_back(tail);
    return record(*event, *stream, std::move(operation));
}

SOFT_API(cuCtxWaitEvent, (CUcontext handle, CUevent event_handle), (handle, event_handle)) {
    ContextPtr context;
    EventPtr event;
    if (CUresult status = find_both(call, handle, event_handle, context, event))
        return status;
    if (event->capture) {
        invalidate(*event->capture);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (CUresult status = follow_other_process(*event))
        return status;
    if (event->recorded)
        state().races.context_waits(*context, event->recorded);
    if (event->recorded && !event->recorded->done())
        context->gates.push_back(event->recorded);
    return CUDA_SUCCESS;
}

void pass_gates(Context &context, Operation &operation) {
    auto &gates = context.gates;
    gates.erase(std::remove_if(gates.begin(), gates.end(), [](auto &gate) { return gate->done(); }),
                gates.end());
    operation.waits.insert(operation.waits.end(), gates.begin(), gates.end());
}

} // namespace soft
