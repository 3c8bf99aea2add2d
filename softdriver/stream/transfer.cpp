#include "stream/transfer.h"
#include "api/call.h"

#include "api/state.h"
#include "base/undefined.h"
#include "graph/works.h"

#include <cstring>

namespace soft {
namespace {

// An asynchronous copy reads a pageable source of up to this size during the call. For a larger
// source, the call blocks until the copy is done.
constexpr size_t snapshot_limit = 1 << 20;
// A synchronous copy from pageable memory returns after it has copied a source of up to this size
// to a staging buffer. For a larger source, the call waits until the copy is done.
constexpr size_t staging_limit = 65536;

// Calls `each` for each row, with its offsets in the target and in the source.
template <class Each> void for_rows(const Transfer &transfer, const Each &each) {
    for (size_t slice = 0; slice < transfer.slices; slice++)
        for (size_t row = 0; row < transfer.rows; row++)
            each(slice * transfer.target.slice + row * transfer.target.pitch,
                 slice * transfer.source.slice + row * transfer.source.pitch);
}

void move_bytes(const Transfer &transfer) {
    for_rows(transfer, [&](size_t target, size_t source) {
        std::memmove(transfer.target.host + target, transfer.source.host + source, transfer.width);
    });
}

TakeUndefined take_undefined = nullptr;

// Copies which bytes of a row are undefined. If the row goes to the host, reports these bytes,
// which then count as defined.
void move_undefined(const Operation &operation, uintptr_t target, uintptr_t source, size_t bytes,
                    const Transfer &transfer) {
    UndefinedMemory &undefined = undefined_memory();
    if (transfer.source.on_host() || transfer.source.array || transfer.target.array)
        return transfer.target.on_host() ? void() : undefined.define(target, bytes);
    if (!transfer.target.on_host())
        return undefined.copy(target, source, bytes);
    uint32_t origin = 0;
    for (uintptr_t begin = source, end = source + bytes; undefined.find(begin, end, origin);
         begin = end, end = source + bytes) {
        undefined.define(begin, end - begin);
        if (take_undefined)
            take_undefined(operation, begin, end, origin);
    }
}

void move_undefined(const Operation &operation, const Transfer &transfer) {
    if (!undefined_memory().is_on())
        return;
    for_rows(transfer, [&](size_t target, size_t source) {
        move_undefined(operation, transfer.target.address + target,
                       transfer.source.address + source, transfer.width, transfer);
    });
}

// Returns the bytes at one end of a copy, in as few ranges as possible.
std::vector<Range> ranges(const Transfer &transfer, const Place &place) {
    size_t rows = transfer.rows, slices = transfer.slices;
    if (slices == 1)
        return {{place.address, transfer.width, place.pitch, rows}};
    if (rows == 1)
        return {{place.address, transfer.width, place.slice, slices}};
    if (place.slice == place.pitch * rows)
        return {{place.address, transfer.width, place.pitch, rows * slices}};
    std::vector<Range> each;
    for (size_t slice = 0; slice < slices; slice++)
        each.push_back({place.address + slice * place.slice, transfer.width, place.pitch, rows});
    return each;
}

// Copies the source, without gaps, to a new buffer that `staged` owns. Returns the transfer from
// this buffer to the target.
Transfer stage(const Transfer &transfer, std::shared_ptr<char[]> &staged) {
    staged.reset(new char[transfer.bytes()]);
    Transfer gather = transfer;
    gather.target = {};
    gather.target.host = staged.get();
    gather.target.pitch = transfer.width;
    gather.target.slice = transfer.width * transfer.rows;
    move_bytes(gather);
    Transfer scatter = transfer;
    scatter.source = gather.target;
    return scatter;
}

} // namespace

void take_undefined_copies(TakeUndefined take) { take_undefined = take; }

OperationPtr copy_operation(const Transfer &transfer, bool snapshot) {
    auto operation = std::make_shared<Operation>();
    Operation *self = operation.get(); // the operation owns its action
    operation->writes = ranges(transfer, transfer.target);
    if (snapshot) {
        std::shared_ptr<char[]> staged;
        Transfer scatter = stage(transfer, staged);
        operation->action = [scatter, staged, transfer, self] {
            move_bytes(scatter);
            move_undefined(*self, transfer);
        };
    } else {
        operation->reads = ranges(transfer, transfer.source);
        operation->action = [transfer, self] {
            move_bytes(transfer);
            move_undefined(*self, transfer);
        };
    }
    return operation;
}

OperationPtr copy_in_two(const Transfer &transfer, OperationPtr &writing) {
    auto reading = std::make_shared<Operation>();
    auto staged = std::make_shared<std::pair<Transfer, std::shared_ptr<char[]>>>();
    reading->reads = ranges(transfer, transfer.source);
    reading->action = [transfer, staged] { staged->first = stage(transfer, staged->second); };
    writing = std::make_shared<Operation>();
    Operation *self = writing.get(); // the operation owns its action
    writing->waits.push_back(reading);
    writing->writes = ranges(transfer, transfer.target);
    writing->action = [transfer, staged, self] {
        move_bytes(staged->first);
        move_undefined(*self, transfer);
    };
    return reading;
}

namespace {

// What a waiting call promises to the program: nothing, that all work before the operation is done,
// or that the operation is done, too. The race detector orders the host only after promised work.
enum class Promise { Nothing, Before, All };

// Waits for a submitted operation.
CUresult wait_for(Call &call, Stream &stream, const OperationPtr &operation, Promise promise) {
    state().scheduler.finish(call.lock, {operation});
    if (promise == Promise::All)
        state().races.learn({operation});
    else if (promise == Promise::Before)
        state().races.learn_before(operation);
    return context_status(stream.owner);
}

// Submits a copy from pageable memory: waits for all earlier work of the stream, stages the source,
// and returns before the copy has run.
CUresult transfer_staged(Call &call, Stream &stream, const Transfer &transfer) {
    OperationPtr before;
    if (CUresult status = submit(stream, std::make_shared<Operation>(), &before))
        return status;
    if (CUresult status = wait_for(call, stream, before, Promise::All))
        return status;
    // Another thread may have freed the target while this call waited.
    bool of_array = transfer.target.array != nullptr;
    auto find = of_array ? find_array_memory : find_range;
    if (!find(transfer.target.address, transfer.span(transfer.target)))
        return CUDA_ERROR_INVALID_VALUE;
    return submit(stream, copy_operation(transfer, true));
}

} // namespace

Manner manner_of(const Transfer &transfer) {
    const End &target = transfer.target, &source = transfer.source;
    bool small = transfer.bytes() <= snapshot_limit;
    if (small && state().settings.schedule == Schedule::Random)
        small = state().chooser.draw(explore::Choice::SmallSource, 2);
    bool host_to_host = target.on_host() && source.on_host();
    bool snapshot = source.side == Side::Pageable && !host_to_host && small;
    if (snapshot && state().scheduler.pending()) {
        state().chooser.may_wait();
        snapshot = !state().chooser.is_strongest();
    }
    bool promised = target.side == Side::Pageable || host_to_host;
    return {snapshot, promised || (source.side == Side::Pageable && !snapshot), promised};
}

CUresult finish_copy(Call &call, Stream &stream, const OperationPtr &operation, bool promised) {
    return wait_for(call, stream, operation, promised ? Promise::All : Promise::Nothing);
}

CUresult transfer_later(Call &call, Stream &stream, const Transfer &transfer) {
    Manner manner = manner_of(transfer);
    if (stream.capture)
        return capture_node(stream, make_copy_work(transfer, stream.context));
    if (transfer.target.of_graph || transfer.source.of_graph)
        return CUDA_ERROR_INVALID_VALUE;
    OperationPtr queued;
    if (CUresult status = submit(stream, copy_operation(transfer, manner.snapshot), &queued))
        return status;
    return manner.blocks ? finish_copy(call, stream, queued, manner.promised) : CUDA_SUCCESS;
}

CUresult transfer_now(Call &call, const Transfer &transfer) {
    const End &target = transfer.target, &source = transfer.source;
    StreamPtr stream = default_stream(*call.thread, call.context, call.per_thread);
    if (CUresult status = refuse_captured(*stream))
        return status;
    if (target.of_graph || source.of_graph)
        return CUDA_ERROR_INVALID_VALUE;
    bool always_waits = target.sync_memops || source.sync_memops;
    bool into_device = !target.on_host() && source.side == Side::Pageable;
    if (into_device && !always_waits && transfer.bytes() <= staging_limit)
        return transfer_staged(call, *stream, transfer);
    OperationPtr queued;
    if (CUresult status = submit(*stream, copy_operation(transfer, false), &queued))
        return status;
    bool on_device = target.side == Side::Device && source.side == Side::Device;
    if (on_device && !always_waits)
        return CUDA_SUCCESS;
    Promise promise = into_device && !always_waits ? Promise::Before : Promise::All;
    return wait_for(call, *stream, queued, promise);
}

} // namespace soft
