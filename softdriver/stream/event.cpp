#include "stream/event.h"
#include "api/call.h"

#include "api/state.h"
#include "graph/works.h"
#include "stream/shared_event.h"

namespace soft {

EventPtr create_event(const ContextPtr &context, unsigned flags) {
    auto event = std::make_shared<Event>();
    event->context = context;
    event->owner = context.get();
    event->flags = flags;
    event->handle = reinterpret_cast<CUevent>(state().events.insert(event, state().reuse()));
    return event;
}

CUresult find_event(CUevent handle, EventPtr &event) {
    event = state().events.find(reinterpret_cast<uintptr_t>(handle));
    return event ? context_status(event->owner) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult record(Event &event, Stream &stream, OperationPtr operation) {
    OperationPtr queued;
    if (event.shared && !event.shared->has_room())
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (CUresult status = submit(stream, std::move(operation), &queued))
        return status;
    note_record(event, std::move(queued));
    return CUDA_SUCCESS;
}

void note_record(Event &event, OperationPtr operation) {
    if (event.shared)
        event.shared->note_record(operation);
    event.recorded = std::move(operation);
    event.capture = nullptr;
    event.patience = 0;
}

namespace {

// Records an event with the flag CU_EVENT_RECORD_EXTERNAL: adds a node to the capture, which
// records the event each time the graph runs. Returns an error if the stream is not being captured.
CUresult record_external(Call &call, CUevent handle, CUstream stream_handle) {
    EventPtr event;
    StreamPtr stream;
    if (CUresult status = find_event(handle, event))
        return status;
    if (CUresult status = resolve_stream(call, stream_handle, stream))
        return status;
    if (stream->owner != event->owner)
        return CUDA_ERROR_INVALID_HANDLE;
    NodeWorkPtr work;
    if (!stream->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (CUresult status = make_record_work(handle, work))
        return status;
    return capture_node(*stream, std::move(work));
}

std::vector<OperationPtr> event_targets(const Event &event) {
    if (!event.recorded)
        return {};
    return {event.recorded};
}

} // namespace

SOFT_API(cuEventCreate, (CUevent * handle, unsigned flags), (handle, flags)) {
    constexpr unsigned known =
        CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    bool interprocess = flags & CU_EVENT_INTERPROCESS;
    if (!handle || (flags & ~known) || (interprocess && !(flags & CU_EVENT_DISABLE_TIMING)))
        return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<SharedEvent> shared;
    if (interprocess && !(shared = SharedEvent::create()))
        return CUDA_ERROR_OUT_OF_MEMORY;
    EventPtr event = create_event(call.context, flags);
    event->shared = std::move(shared);
    *handle = event->handle;
    return CUDA_SUCCESS;
}

SOFT_API(cuEventDestroy_v2, (CUevent handle), (handle)) {
    if (!handle)
        return CUDA_ERROR_INVALID_HANDLE;
    if (CUresult status = call.require(Needs::Optional))
        return status;
    EventPtr event;
    CUresult status = find_event(handle, event);
    if (!event)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (status == CUDA_SUCCESS)
        state().events.erase(reinterpret_cast<uintptr_t>(handle));
    return status;
}

SOFT_API(cuEventDestroy, (CUevent handle), (handle)) {
    return cuEventDestroy_v2_body(call, handle);
}

SOFT_STREAM_API(cuEventRecord, (CUevent handle, CUstream stream_handle), (handle, stream_handle)) {
    EventPtr event;
    StreamPtr stream;
    if (CUresult status = find_event(handle, event))
        return status;
    if (CUresult status = resolve_stream(call, stream_handle, stream))
        return status;
    if (stream->owner != event->owner)
        return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture)
        return capture_record(*stream, *event);
    return record(*event, *stream, std::make_shared<Operation>());
}

SOFT_STREAM_API(cuEventRecordWithFlags, (CUevent handle, CUstream stream, unsigned flags),
                (handle, stream, flags)) {
    if (!handle)
        return CUDA_ERROR_INVALID_HANDLE;
    if (flags & ~unsigned(CU_EVENT_RECORD_EXTERNAL))
        return CUDA_ERROR_INVALID_VALUE;
    if (flags)
        return record_external(call, handle, stream);
    return cuEventRecord_body(call, handle, stream);
}

// Finds an event for a query or a synchronization. Returns an error if a capture forbids this call.
static CUresult find_recorded(Call &call, CUevent handle, EventPtr &event) {
    if (!handle)
        return CUDA_ERROR_INVALID_HANDLE;
    if (CUresult status = call.require(Needs::Optional))
        return status;
    if (CUresult status = find_event(handle, event))
        return status;
    return refuse_waiting(*call.thread, *event);
}

SOFT_API(cuEventQuery, (CUevent handle), (handle)) {
    EventPtr event;
    if (CUresult status = find_recorded(call, handle, event))
        return status;
    if (event->shared && event->shared->recorded_elsewhere()) {
        if (!event->shared->latest_done(true))
            return CUDA_ERROR_NOT_READY;
        learn_told();
        return context_status(event->owner);
    }
    auto recorded = event_targets(*event);
    bool done = state().scheduler.poll(call.lock, recorded, event->patience);
    if (done)
        state().races.learn(recorded);
    return done ? context_status(event->owner) : CUDA_ERROR_NOT_READY;
}

SOFT_API(cuEventSynchronize, (CUevent handle), (handle)) {
    EventPtr event;
    if (CUresult status = find_recorded(call, handle, event))
        return status;
    if (CUresult status = follow_other_process(*event))
        return status;
    auto recorded = event_targets(*event);
    state().scheduler.finish(call.lock, recorded);
    state().races.learn(recorded);
    release_unused(*event->owner->device);
    return context_status(event->owner);
}

SOFT_API(cuEventElapsedTime, (float *milliseconds, CUevent start, CUevent end),
         (milliseconds, start, end)) {
    EventPtr events[2];
    if (CUresult status = find_event(start, events[0]))
        return status;
    if (CUresult status = find_event(end, events[1]))
        return status;
    for (const EventPtr &event : events)
        if (event->capture)
            return event->capture->live ? CUDA_ERROR_CAPTURED_EVENT : CUDA_ERROR_INVALID_VALUE;
    for (const EventPtr &event : events)
        if (!event->recorded || (event->flags & CU_EVENT_DISABLE_TIMING))
            return CUDA_ERROR_INVALID_HANDLE;
    if (events[0]->owner != events[1]->owner)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!milliseconds)
        return CUDA_ERROR_INVALID_VALUE;
    OperationPtr first = events[0]->recorded, last = events[1]->recorded;
    if (!state().scheduler.poll(call.lock, {first, last}, events[1]->patience))
        return CUDA_ERROR_NOT_READY;
    if (CUresult status = context_status(events[1]->owner))
        return status;
    state().races.learn({first, last});
    state().chooser.limit(explore::Limit::EventTime);
    *milliseconds =
        std::chrono::duration<float, std::milli>(last->finished - first->finished).count();
    return CUDA_SUCCESS;
}

SOFT_API(cuEventElapsedTime_v2, (float *milliseconds, CUevent start, CUevent end),
         (milliseconds, start, end)) {
    return cuEventElapsedTime_body(call, milliseconds, start, end);
}

} // namespace soft
