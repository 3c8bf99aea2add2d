#include "stream/stream.h"
#include "api/call.h"

#include "api/state.h"
#include "base/unsupported.h"
#include "graph/works.h"
#include "stream/green.h"
#include "stream/shared_event.h"
#include "work/tracer.h"

#include <algorithm>

namespace soft {

StreamPtr create_stream(const ContextPtr &context, StreamKind kind, unsigned flags, int priority) {
    auto stream = std::make_shared<Stream>();
    stream->id = state().new_id();
    stream->kind = kind;
    stream->context = context;
    stream->owner = context.get();
    stream->flags = flags;
    stream->priority = std::clamp(priority, greatest_priority, least_priority);
    return stream;
}

StreamPtr default_stream(const ThreadState &thread, const ContextPtr &context, bool per_thread) {
    if (!per_thread)
        return context->legacy;
    StreamPtr &stream = context->per_thread[&thread];
    if (!stream)
        stream = create_stream(context, StreamKind::PerThread, CU_STREAM_DEFAULT, 0);
    return stream;
}

CUresult resolve_stream(Call &call, CUstream handle, StreamPtr &stream) {
    if (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
        if (in_callback) // a host function has no current context
            return CUDA_ERROR_NOT_PERMITTED;
        if (CUresult status = context_status(call.context.get()))
            return status;
        bool per_thread = handle ? handle == CU_STREAM_PER_THREAD : call.per_thread;
        stream = default_stream(*call.thread, call.context, per_thread);
        return CUDA_SUCCESS;
    }
    stream = state().streams.find(reinterpret_cast<uintptr_t>(handle));
    if (stream)
        return lost_its_green(*stream) ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                                       : context_status(stream->owner);
    // The handle is stale. If the current context was destroyed, the stream may have been destroyed
    // with the context.
    return call.context && !call.context->alive ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                                                : CUDA_ERROR_INVALID_CONTEXT;
}

namespace {

// Applies the rules of the legacy stream. An operation in the legacy stream waits for all blocking
// streams of the context; an operation in a blocking stream waits for the legacy stream.
void order_with_legacy(const Stream &stream, Operation &operation) {
    if (!operation.legacy_rules)
        return;
    if (stream.kind == StreamKind::Legacy) {
        for (const Stream *other : state().scheduler.busy())
            if (other != &stream && other->owner == stream.owner && other->blocking())
                operation.waits.push_back(other->queue.back());
    } else if (stream.blocking()) {
        const StreamPtr &legacy = stream.owner->legacy;
        if (!legacy->idle())
            operation.waits.push_back(legacy->queue.back());
    }
}

// Returns true if the rules of the legacy stream make the next operation of this stream wait.
bool ordered_with_legacy(const Stream &stream) {
    Operation next;
    order_with_legacy(stream, next);
    return !next.waits.empty();
}

} // namespace

CUresult submit(Stream &stream, OperationPtr operation, OperationPtr *queued) {
    // While the caller waited, another thread may have destroyed the context.
    if (CUresult status = context_status(stream.owner))
        return status;
    if (stream.capture)
        return refuse_captured(stream);
    if (stream.kind == StreamKind::Legacy)
        if (CUresult status = refuse_implicit(*stream.owner))
            return status;
    operation->stream = stream.shared_from_this();
    order_with_legacy(stream, *operation);
    pass_gates(*stream.owner, *operation);
    if (queued)
        *queued = operation;
    operation->number = state().next_operation++;
    state().races.submitted(stream, operation);
    trace_submission(*operation, stream.tag);
    state().scheduler.enqueue(std::move(operation));
    return CUDA_SUCCESS;
}

void submit_part(Stream &stream, const OperationPtr &part, const OperationPtr &whole) {
    part->stream = stream.shared_from_this();
    part->number = state().next_operation++;
    part->function = whole->function;
    part->label = whole->label;
    state().scheduler.enqueue(part);
}

CUresult submit_apart(Stream &stream, std::vector<OperationPtr> parts, OperationPtr *queued) {
    OperationPtr begun;
    if (CUresult status = submit(stream, std::make_shared<Operation>(), &begun))
        return status;
    auto end = std::make_shared<Operation>();
    for (OperationPtr &part : parts) {
        StreamPtr own =
            create_stream(stream.context, StreamKind::Created, CU_STREAM_NON_BLOCKING, 0);
        own->tag = stream.tag;
        part->waits.push_back(begun);
        if (CUresult status = submit(*own, std::move(part), &end->waits.emplace_back()))
            return status;
    }
    return submit(stream, std::move(end), queued);
}

std::vector<OperationPtr> stream_targets(const Stream &stream) {
    std::vector<OperationPtr> targets;
    if (!stream.idle())
        targets.push_back(stream.queue.back());
    if (stream.kind == StreamKind::Legacy)
        for (const Stream *other : state().scheduler.busy())
            if (other != &stream && other->owner == stream.owner && other->blocking())
                targets.push_back(other->queue.back());
    return targets;
}

std::vector<OperationPtr> context_targets(const Context &context) {
    std::vector<OperationPtr> targets;
    for (const Stream *stream : state().scheduler.busy())
        if (stream->owner == &context)
            targets.push_back(stream->queue.back());
    return targets;
}

std::vector<OperationPtr> device_targets(const Device &device) {
    std::vector<OperationPtr> targets;
    for (const Stream *stream : state().scheduler.busy())
        if (stream->owner->device == &device)
            targets.push_back(stream->queue.back());
    return targets;
}

SOFT_API(cuStreamCreateWithPriority, (CUstream * handle, unsigned flags, int priority),
         (handle, flags, priority)) {
    if (!handle || (flags & ~unsigned(CU_STREAM_NON_BLOCKING)))
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = call.require(Needs::Usable))
        return status;
    StreamPtr stream = create_stream(call.context, StreamKind::Created, flags, priority);
    join_green(call.context, stream);
    stream->handle = reinterpret_cast<CUstream>(state().streams.insert(stream, state().reuse()));
    *handle = stream->handle;
    return CUDA_SUCCESS;
}

SOFT_API(cuStreamCreate, (CUstream * handle, unsigned flags), (handle, flags)) {
    return cuStreamCreateWithPriority_body(call, handle, flags, 0);
}

// Adds a node to the capture. In each launch of the graph, the node waits for the event.
static CUresult wait_external(Stream &stream, CUevent event) {
    NodeWorkPtr work;
    if (!stream.capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (CUresult status = make_wait_work(event, work))
        return status;
    return capture_node(stream, std::move(work));
}

// Returns at once: unfinished work keeps the stream alive and still runs.
SOFT_API(cuStreamDestroy_v2, (CUstream handle), (handle)) {
    if (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD)
        return CUDA_ERROR_INVALID_HANDLE;
    if (CUresult status = call.require(Needs::Optional))
        return status;
    StreamPtr stream;
    if (CUresult status = resolve_stream(call, handle, stream))
        return status;
    if (stream->destroyed)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (stream->capture)
        stream->destroyed = true; // end_capture() destroys the stream
    else
        state().streams.erase(reinterpret_cast<uintptr_t>(handle));
    return CUDA_SUCCESS;
}

SOFT_API(cuStreamDestroy, (CUstream handle), (handle)) {
    return cuStreamDestroy_v2_body(call, handle);
}

SOFT_STREAM_API(cuStreamSynchronize, (CUstream handle), (handle)) {
    StreamPtr stream;
    if (CUresult status = resolve_stream(call, handle, stream))
        return status;
    if (CUresult status = refuse_waiting(*call.thread, *stream))
        return status;
    auto awaited = state().races.tails(*stream);
    state().scheduler.finish(call.lock, stream_targets(*stream));
    state().races.learn(awaited);
    release_unused(*stream->owner->device);
    return context_status(stream->owner);
}

SOFT_STREAM_API(cuStreamQuery, (CUstream handle), (handle)) {
    StreamPtr stream;
    if (CUresult status = resolve_stream(call, handle, stream))
        return status;
    if (CUresult status = refuse_waiting(*call.thread, *stream))
        return status;
    auto awaited = state().races.tails(*stream);
    // Under replay the targets include operations that are already done: whether they are done is a
    // part of the answer. Without the race check these are not known.
    bool known = state().chooser.replays() && state().races.recording();
    auto targets = known ? awaited : stream_targets(*stream);
    bool done = state().scheduler.poll(call.lock, targets, stream->patience);
    if (done)
        state().races.learn(awaited);
    return done ? context_status(stream->owner) : CUDA_ERROR_NOT_READY;
}

SOFT_STREAM_API(cuStreamWaitEvent, (CUstream handle, CUevent event_handle, unsigned flags),
                (handle, event_handle, flags)) {
    if (flags & ~unsigned(CU_EVENT_WAIT_EXTERNAL))
        return CUDA_ERROR_INVALID_VALUE;
    StreamPtr stream;
    if (CUresult status = resolve_stream(call, handle, stream))
        return status;
    EventPtr event = state().events.find(reinterpret_cast<uintptr_t>(event_handle));
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    // NVIDIA's driver crashes in this case.
    if (event->shared && event->owner->device != stream->owner->device)
        return not_supported("an interprocess event of another device than the stream's");
    if (flags & CU_EVENT_WAIT_EXTERNAL)
        return wait_external(*stream, event_handle);
    if (stream->capture || event->capture)
        return capture_wait(*stream, *event);
    if (stream->kind == StreamKind::Legacy)
        if (CUresult status = refuse_implicit(*stream->owner))
            return status;
    if (CUresult status = follow_other_process(*event))
        return status;
    // The stream waits for the latest record at this moment. Later records do not change this. An
    // event that was never recorded counts as complete.
    if (!event->recorded)
        return CUDA_SUCCESS;
    // Skip the wait if the event is complete and the rules of the legacy stream make this stream
    // wait for nothing. Otherwise the wait must be an operation, because other streams wait for it
    // by these rules,
    // and under replay, where what is submitted must not depend on what has run.
    if (event->recorded->done() && !ordered_with_legacy(*stream) && !state().chooser.replays()) {
        state().races.passed(*stream, event->recorded);
        return CUDA_SUCCESS;
    }
    auto operation = std::make_shared<Operation>();
    operation->waits.push_back(event->recorded);
    return submit(*stream, std::move(operation));
}

[[gnu::constructor]] static void add_streams() {
    add_context_end(ContextEnd::Streams, [](const Context &context) {
        erase_owned(state().streams, context);
        erase_owned(state().events, context);
    });
}

} // namespace soft
