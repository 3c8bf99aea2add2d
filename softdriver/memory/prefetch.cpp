#include "api/call.h"

#include "api/state.h"

#include <cstring>

// Prefetches and discards of managed memory, alone and in batches.

namespace soft {
namespace {

constexpr unsigned char discarded_memory = 0xDD;

// A range of managed memory, and the location to which it moves.
struct Item {
    uintptr_t address = 0;
    size_t bytes = 0;
    Pages pages;
    CUmemLocation place = no_location; // no_location: it does not move
};

using Items = std::vector<Item>;

CUresult find_stream(Call &call, CUstream handle, StreamPtr &stream) {
    if (CUresult status = resolve_stream(call, handle, stream))
        return status;
    if (CUresult status = stream->capture ? refuse_captured(*stream) : CUDA_SUCCESS)
        return status;
    return state().settings.concurrent_managed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

void move_items(const Items &items) {
    for (const Item &item : items)
        if (item.place.type != no_location.type && item.pages.managed->user)
            move_pages(item.pages, processor_at(item.place));
}

// Returns the pages that lie completely in the range; the last page of an allocation ends with the
// allocation.
Pages inner_pages(const Item &item) {
    Pages inner = item.pages;
    size_t begin = inner.begin + item.address % page_bytes, end = begin + item.bytes;
    inner.begin = whole_pages(begin);
    inner.end = end == inner.managed->bytes ? whole_pages(end) : end / page_bytes * page_bytes;
    return inner;
}

void discard_items(const Items &items) {
    for (const Item &item : items) {
        Pages inner = inner_pages(item);
        if (inner.begin < inner.end && inner.managed->user)
            empty_pages(inner);
    }
}

// Records the places of these prefetches for CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, which
// reports the last prefetch that the program has queued, even if it has not run yet.
void note_prefetches(const Items &items) {
    for (const Item &item : items)
        if (item.place.type != no_location.type)
            item.pages.managed->pages.change(
                item.pages.begin, item.pages.end,
                [&](size_t, size_t, PageState &state) { state.prefetched = item.place; });
}

// A prefetch moves pages and changes no bytes, so it is no access for the race detector.
CUresult submit_prefetch(Stream &stream, const Items &items) {
    auto operation = std::make_shared<Operation>();
    operation->action = [items] {
        Lock lock(state().mutex);
        move_items(items);
    };
    if (CUresult status = submit(stream, std::move(operation)))
        return status;
    note_prefetches(items);
    return CUDA_SUCCESS;
}

// A discard may change the bytes, so it is a write for the race detector. This driver overwrites
// the bytes when the operation runs.
CUresult submit_discard(Stream &stream, const Items &items) {
    auto operation = std::make_shared<Operation>();
    operation->uses_pages = false;
    std::vector<std::pair<char *, size_t>> bytes;
    for (const Item &item : items) {
        operation->writes.push_back({item.address, item.bytes});
        bytes.emplace_back(host_address(*find_allocation(item.address), item.address), item.bytes);
    }
    operation->action = [items, bytes] {
        for (auto [host, size] : bytes)
            std::memset(host, discarded_memory, size);
        Lock lock(state().mutex);
        discard_items(items);
        move_items(items);
    };
    if (CUresult status = submit(stream, std::move(operation)))
        return status;
    note_prefetches(items);
    return CUDA_SUCCESS;
}

CUresult prefetch(Call &call, CUdeviceptr address, size_t bytes, CUmemLocation place,
                  CUstream handle) {
    StreamPtr stream;
    if (CUresult status = find_stream(call, handle, stream))
        return status;
    if (CUresult status = check_page_place(place))
        return status;
    Item item{address, bytes, {}, place};
    if (CUresult status = find_pages(address, bytes, item.pages))
        return status;
    return submit_prefetch(*stream, {item});
}

// The arguments of the three functions for batches.
struct Batch {
    const CUdeviceptr *addresses;
    const size_t *sizes;
    size_t count;
    const CUmemLocation *places;
    const size_t *first_items; // for each place, the index of the first item to which it applies
    size_t place_count;
    unsigned long long flags;
};

// Sets the location to which each item moves.
CUresult read_places(const Batch &batch, Items &items) {
    if (!batch.places || !batch.first_items || !batch.place_count ||
        batch.place_count > batch.count || batch.first_items[0])
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < batch.place_count; i++) {
        size_t begin = batch.first_items[i];
        size_t end = i + 1 < batch.place_count ? batch.first_items[i + 1] : batch.count;
        if (begin >= end || end > batch.count)
            return CUDA_ERROR_INVALID_VALUE;
        CUmemLocation place = batch.places[i];
        if (check_page_place(place))
            return CUDA_ERROR_INVALID_VALUE;
        for (size_t item = begin; item < end; item++)
            items[item].place = batch.places[i];
    }
    return CUDA_SUCCESS;
}

// Checks the whole batch before anything is submitted. `moves` says whether the batch has places.
CUresult read_batch(Call &call, const Batch &batch, bool moves, CUstream handle, StreamPtr &stream,
                    Items &items) {
    if (CUresult status = find_stream(call, handle, stream))
        return status;
    if (stream->kind == StreamKind::Legacy || batch.flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (!batch.addresses || !batch.sizes || !batch.count)
        return CUDA_ERROR_INVALID_VALUE;
    items.resize(batch.count);
    if (CUresult status = moves ? read_places(batch, items) : CUDA_SUCCESS)
        return status;
    for (size_t i = 0; i < batch.count; i++) {
        items[i].address = batch.addresses[i];
        items[i].bytes = batch.sizes[i];
        if (CUresult status = find_pages(items[i].address, items[i].bytes, items[i].pages))
            return status;
    }
    return CUDA_SUCCESS;
}

CUresult run_batch(Call &call, const Batch &batch, bool moves, CUstream handle,
                   CUresult (*submit)(Stream &, const Items &)) {
    StreamPtr stream;
    Items items;
    if (CUresult status = read_batch(call, batch, moves, handle, stream, items))
        return status;
    return submit(*stream, items);
}

} // namespace

SOFT_STREAM_API(cuMemPrefetchAsync,
                (CUdeviceptr address, size_t bytes, CUdevice target, CUstream stream),
                (address, bytes, target, stream)) {
    return prefetch(call, address, bytes, location_of_processor(target), stream);
}

SOFT_STREAM_API(cuMemPrefetchAsync_v2,
                (CUdeviceptr address, size_t bytes, CUmemLocation target, unsigned flags,
                 CUstream stream),
                (address, bytes, target, flags, stream)) {
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    return prefetch(call, address, bytes, target, stream);
}

SOFT_STREAM_API(cuMemPrefetchBatchAsync,
                (CUdeviceptr * addresses, size_t *sizes, size_t count, CUmemLocation *places,
                 size_t *indices, size_t place_count, unsigned long long flags, CUstream handle),
                (addresses, sizes, count, places, indices, place_count, flags, handle)) {
    Batch batch{addresses, sizes, count, places, indices, place_count, flags};
    return run_batch(call, batch, true, handle, submit_prefetch);
}

SOFT_STREAM_API(cuMemDiscardBatchAsync,
                (CUdeviceptr * addresses, size_t *sizes, size_t count, unsigned long long flags,
                 CUstream handle),
                (addresses, sizes, count, flags, handle)) {
    Batch batch{addresses, sizes, count, nullptr, nullptr, 0, flags};
    return run_batch(call, batch, false, handle, submit_discard);
}

SOFT_STREAM_API(cuMemDiscardAndPrefetchBatchAsync,
                (CUdeviceptr * addresses, size_t *sizes, size_t count, CUmemLocation *places,
                 size_t *indices, size_t place_count, unsigned long long flags, CUstream handle),
                (addresses, sizes, count, places, indices, place_count, flags, handle)) {
    Batch batch{addresses, sizes, count, places, indices, place_count, flags};
    return run_batch(call, batch, true, handle, submit_discard);
}

} // namespace soft
