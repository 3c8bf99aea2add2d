#include "api/call.h"
#include "api/state.h"

// cuMemRangeGetAttribute: reads the advice for a range of managed memory.

namespace soft {
namespace {

// Returns the location that all pages have in this field, or no_location if they differ.
CUmemLocation common(const Pages &pages, CUmemLocation PageState::*field) {
    bool first = true;
    CUmemLocation found = no_location;
    pages.managed->pages.visit(pages.begin, pages.end, [&](size_t, size_t, const PageState &state) {
        const CUmemLocation &here = state.*field;
        if (first)
            found = here;
        else if (here.type != found.type || here.id != found.id)
            found = no_location;
        first = false;
    });
    return found;
}

int device_number(const CUmemLocation &location) {
    if (location.type == no_location.type)
        return CU_DEVICE_INVALID;
    return location.type == location_device ? location.id : int(CU_DEVICE_CPU);
}

bool all_read_mostly(const Pages &pages) {
    bool all = true;
    pages.managed->pages.visit(pages.begin, pages.end, [&](size_t, size_t, const PageState &state) {
        all = all && state.read_mostly;
    });
    return all;
}

void list_accessors(const Pages &pages, int *list, size_t length) {
    bool first = true;
    std::set<unsigned> all;
    pages.managed->pages.visit(pages.begin, pages.end, [&](size_t, size_t, const PageState &state) {
        if (first)
            all = state.accessed_by;
        for (auto processor = all.begin(); processor != all.end();)
            processor =
                state.accessed_by.count(*processor) ? std::next(processor) : all.erase(processor);
        first = false;
    });
    auto processor = all.begin();
    for (size_t i = 0; i < length; i++)
        list[i] = processor == all.end() ? int(CU_DEVICE_INVALID) : int(*processor++);
}

// Values of CUmem_range_attribute. Older headers lack the last four.
enum RangeAttribute { read_mostly = 1, preferred, accessed_by, prefetched };
enum { preferred_type = 5, preferred_id, prefetched_type, prefetched_id };

CUresult read_range(void *data, size_t size, int attribute, const Pages &pages) {
    bool list = attribute == accessed_by;
    if (!data || !size || (list ? size % sizeof(int) != 0 : size != sizeof(int)))
        return CUDA_ERROR_INVALID_VALUE;
    int *value = static_cast<int *>(data);
    switch (attribute) {
    case read_mostly:
        *value = all_read_mostly(pages);
        break;
    case accessed_by:
        list_accessors(pages, value, size / sizeof(int));
        break;
    case preferred:
        *value = device_number(common(pages, &PageState::preferred));
        break;
    case prefetched:
        *value = device_number(common(pages, &PageState::prefetched));
        break;
    case preferred_type:
        *value = common(pages, &PageState::preferred).type;
        break;
    case preferred_id:
        *value = common(pages, &PageState::preferred).id;
        break;
    case prefetched_type:
        *value = common(pages, &PageState::prefetched).type;
        break;
    case prefetched_id:
        *value = common(pages, &PageState::prefetched).id;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

} // namespace

SOFT_API(cuMemRangeGetAttribute,
         (void *data, size_t size, CUmem_range_attribute attribute, CUdeviceptr address,
          size_t bytes),
         (data, size, attribute, address, bytes)) {
    Pages pages;
    if (CUresult status = find_pages(address, bytes, pages))
        return status;
    return read_range(data, size, static_cast<int>(attribute), pages);
}

SOFT_API(cuMemRangeGetAttributes,
         (void **data, size_t *sizes, CUmem_range_attribute *attributes, size_t count,
          CUdeviceptr address, size_t bytes),
         (data, sizes, attributes, count, address, bytes)) {
    if (!data || !sizes || !attributes || !count)
        return CUDA_ERROR_INVALID_VALUE;
    Pages pages;
    if (CUresult status = find_pages(address, bytes, pages))
        return status;
    for (size_t i = 0; i < count; i++)
        if (CUresult status = read_range(data[i], sizes[i], static_cast<int>(attributes[i]), pages))
            return status;
    return CUDA_SUCCESS;
}

} // namespace soft
