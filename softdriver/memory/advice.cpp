#include "api/call.h"
#include "api/state.h"
#include "base/unsupported.h"

// cuMemAdvise. Advice decides where a page fault moves pages, and programs can read it back.

namespace soft {
namespace {

template <class Edit> void change(const Pages &pages, Edit edit) {
    pages.managed->pages.change(pages.begin, pages.end,
                                [&](size_t, size_t, PageState &state) { edit(state); });
}

CUresult prefer(const Pages &pages, CUmemLocation location) {
    if (CUresult status = check_page_place(location))
        return status;
    // Ignore the advice for a NUMA node. It matters only to devices that share page tables with the
    // host, and no software device does.
    if (is_node(location))
        return CUDA_SUCCESS;
    change(pages, [&](PageState &state) { state.preferred = location; });
    return CUDA_SUCCESS;
}

CUresult access(const Pages &pages, CUmemLocation location, bool set) {
    bool host = location.type == location_host;
    if (!host && (location.type != location_device || check_page_place(location)))
        return CUDA_ERROR_INVALID_DEVICE;
    unsigned processor = host ? CU_DEVICE_CPU : location.id;
    change(pages, [&](PageState &state) {
        if (set)
            state.accessed_by.insert(processor);
        else
            state.accessed_by.erase(processor);
    });
    return CUDA_SUCCESS;
}

CUresult advise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location) {
    Pages pages;
    if (CUresult status = find_pages(address, bytes, pages))
        return status;
    if (find_allocation(address)->pool)
        return not_supported("advice about memory of a pool");
    switch (advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        set_read_mostly(pages, advice == CU_MEM_ADVISE_SET_READ_MOSTLY);
        return CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        return prefer(pages, location);
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        change(pages, [](PageState &state) { state.preferred = no_location; });
        return CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
        return access(pages, location, true);
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
        return access(pages, location, false);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

} // namespace

SOFT_API(cuMemAdvise, (CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device),
         (address, bytes, advice, device)) {
    if (CUresult status = refuse_unsafe(*call.thread))
        return status;
    return advise(address, bytes, advice, location_of_processor(device));
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
    CUresult status = advise(address, bytes, advice, location);
    return status == CUDA_ERROR_INVALID_DEVICE ? CUDA_ERROR_INVALID_VALUE : status;
}

} // namespace soft
