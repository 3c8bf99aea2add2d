#include "api/call.h"
#include "api/state.h"

// cuMemAdvise and cuMemPrefetchAsync. They move no memory, but programs can read back what they
// have set.

namespace soft {

std::map<size_t, Advice>::iterator AdviceMap::split(size_t offset) {
    auto next = stretches_.upper_bound(offset);
    auto holding = std::prev(next);
    if (holding->first == offset)
        return holding;
    return stretches_.emplace_hint(next, offset, holding->second);
}

void AdviceMap::change(size_t begin, size_t end, const std::function<void(Advice &)> &edit) {
    auto last = split(end);
    for (auto stretch = split(begin); stretch != last; ++stretch)
        edit(stretch->second);
}

void AdviceMap::visit(size_t begin, size_t end,
                      const std::function<void(const Advice &)> &look) const {
    auto stretch = std::prev(stretches_.upper_bound(begin));
    for (; stretch != stretches_.end() && stretch->first < end; ++stretch)
        look(stretch->second);
}

CUresult find_pages(CUdeviceptr address, size_t bytes, Pages &pages) {
    constexpr size_t page = 4096;
    const Allocation *allocation = bytes ? find_range(address, bytes) : nullptr;
    if (!allocation || !allocation->managed)
        return CUDA_ERROR_INVALID_VALUE;
    size_t offset = address - allocation->begin;
    pages.managed = allocation->managed.get();
    pages.begin = offset / page * page;
    pages.end = (offset + bytes + page - 1) / page * page;
    return CUDA_SUCCESS;
}

namespace {

CUmemLocation location_of(CUdevice device) {
    return make_location(device == CU_DEVICE_CPU ? location_host : location_device, device);
}

// Returns an error if managed memory cannot be at this location. If the location is the host, sets
// its id to CU_DEVICE_CPU.
CUresult check_place(CUmemLocation &location) {
    switch (static_cast<int>(location.type)) {
    case location_device:
        return find_device(location.id) && state().settings.concurrent_managed
                   ? CUDA_SUCCESS
                   : CUDA_ERROR_INVALID_DEVICE;
    case location_host:
        location.id = CU_DEVICE_CPU;
        return CUDA_SUCCESS;
    case location_numa_current:
        return CUDA_SUCCESS;
    case location_numa:
        return location.id == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult prefer(const Pages &pages, CUmemLocation location) {
    if (CUresult status = check_place(location))
        return status;
    // Ignore the advice for a NUMA node. It matters only to devices that share page tables with the
    // host, and no software device does.
    if (is_node(location))
        return CUDA_SUCCESS;
    pages.managed->advice.change(pages.begin, pages.end,
                                 [&](Advice &advice) { advice.preferred = location; });
    return CUDA_SUCCESS;
}

CUresult access(const Pages &pages, CUmemLocation location, bool set) {
    bool host = location.type == location_host;
    if (!host && (location.type != location_device || check_place(location)))
        return CUDA_ERROR_INVALID_DEVICE;
    unsigned processor = host ? CU_DEVICE_CPU : location.id;
    pages.managed->advice.change(pages.begin, pages.end, [&](Advice &advice) {
        if (set)
            advice.accessed_by.insert(processor);
        else
            advice.accessed_by.erase(processor);
    });
    return CUDA_SUCCESS;
}

CUresult advise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location) {
    Pages pages;
    if (CUresult status = find_pages(address, bytes, pages))
        return status;
    switch (advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        pages.managed->advice.change(pages.begin, pages.end, [=](Advice &each) {
            each.read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
        });
        return CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        return prefer(pages, location);
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        pages.managed->advice.change(pages.begin, pages.end,
                                     [](Advice &each) { each.preferred = no_location; });
        return CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
        return access(pages, location, true);
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
        return access(pages, location, false);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult prefetch(Call &call, CUdeviceptr address, size_t bytes, CUmemLocation target,
                  CUstream handle) {
    StreamPtr stream;
    if (CUresult status = resolve_stream(call, handle, stream))
        return status;
    if (CUresult status = stream->capture ? refuse_captured(*stream) : CUDA_SUCCESS)
        return status;
    if (!state().settings.concurrent_managed)
        return CUDA_ERROR_INVALID_DEVICE;
    if (CUresult status = check_place(target))
        return status;
    Pages pages;
    if (CUresult status = find_pages(address, bytes, pages))
        return status;
    if (CUresult status = submit(*stream, std::make_shared<Operation>()))
        return status;
    pages.managed->advice.change(pages.begin, pages.end,
                                 [&](Advice &advice) { advice.prefetched = target; });
    return CUDA_SUCCESS;
}

} // namespace

SOFT_STREAM_API(cuMemPrefetchAsync,
                (CUdeviceptr address, size_t bytes, CUdevice target, CUstream stream),
                (address, bytes, target, stream)) {
    return prefetch(call, address, bytes, location_of(target), stream);
}

SOFT_STREAM_API(cuMemPrefetchAsync_v2,
                (CUdeviceptr address, size_t bytes, CUmemLocation target, unsigned flags,
                 CUstream stream),
                (address, bytes, target, flags, stream)) {
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    return prefetch(call, address, bytes, target, stream);
}

SOFT_API(cuMemAdvise, (CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device),
         (address, bytes, advice, device)) {
    if (CUresult status = refuse_unsafe(*call.thread))
        return status;
    return advise(address, bytes, advice, location_of(device));
}

SOFT_API(cuMemAdvise_v2,
         (CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location),
         (address, bytes, advice, location)) {
    if (CUresult status = refuse_unsafe(*call.thread))
        return status;
    int kind = static_cast<int>(location.type);
    // Check the location even if this kind of advice ignores it.
    if (kind < location_device || kind > location_numa_current)
        return CUDA_ERROR_INVALID_VALUE;
    return advise(address, bytes, advice, location);
}

} // namespace soft
