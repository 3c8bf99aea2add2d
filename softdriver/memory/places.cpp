#include "memory/places.h"

#include "api/state.h"
#include "memory/host_pages.h"

#include <algorithm>
#include <string_view>
#include <sys/mman.h>

namespace soft {
namespace {

uint64_t uses = 0; // counts calls that use or move pages

size_t size_of(const Managed &managed) { return whole_pages(managed.bytes); }

// Adds the bytes to the count of each device that has them, or subtracts them.
void count_room(const PageState &state, size_t bytes, bool add) {
    auto count = [&](int processor) {
        if (Device *device = find_device(processor))
            device->resident += add ? bytes : 0 - bytes;
    };
    count(state.place);
    for (int processor : state.copies)
        count(processor);
}

// Removes pages from the program's page table. The bytes stay in the file.
void unmap(const Managed &managed, size_t begin, size_t end) {
    if (managed.user)
        madvise(managed.user + begin, end - begin, MADV_DONTNEED);
}

bool only_on_devices(const PageState &state) {
    return state.place != nowhere && !state.is_at(the_host);
}

// Changes where pages are. All changes go through this function.
template <class Edit> void change_places(Managed &managed, size_t begin, size_t end, Edit edit) {
    managed.pages.change(begin, end, [&](size_t first, size_t last, PageState &state) {
        bool unmapped = only_on_devices(state);
        count_room(state, last - first, false);
        edit(first, last, state);
        count_room(state, last - first, true);
        if (!unmapped && !state.is_at(the_host))
            unmap(managed, first, last);
    });
}

void move_to(PageState &state, int processor) {
    state.place = processor;
    state.copies.clear();
}

// Updates the state for a use by the processor. Returns true if the use was a fault that moved or
// copied the bytes.
bool use(PageState &state, int processor, bool write) {
    if (state.place == nowhere) {
        move_to(state, is_host(state.preferred) ? the_host : processor);
        return false;
    }
    if (state.place == processor) {
        if (write)
            state.copies.clear();
        return false;
    }
    if (state.copies.count(processor) && !write)
        return false;
    if (state.read_mostly && !write) {
        state.copies.insert(processor);
        return true;
    }
    bool alone = state.copies.empty();
    bool is_preferred =
        state.preferred.type != no_location.type && processor_at(state.preferred) == state.place;
    // A device can use pages at their current place if they are mapped for it. The host cannot use
    // the memory of a device.
    if (processor != the_host && alone && (is_preferred || state.accessed_by.count(processor)))
        return false;
    move_to(state, processor);
    return true;
}

size_t hash_of(const Managed &managed, size_t block) {
    size_t begin = block * block_bytes;
    size_t length = std::min(block_bytes, managed.bytes - begin);
    return std::hash<std::string_view>()(std::string_view(managed.host + begin, length));
}

// Updates the hashes after a change of places.
void hash_copies(Managed &managed, size_t first, size_t last) {
    managed.hashes.erase(managed.hashes.lower_bound(first), managed.hashes.lower_bound(last));
    size_t end = std::min(last * block_bytes, size_of(managed));
    managed.pages.visit(first * block_bytes, end, [&](size_t from, size_t to, auto &state) {
        if (state.copies.empty() || !state.is_at(the_host))
            return;
        for (size_t block = from / block_bytes; block * block_bytes < to; block++)
            managed.hashes.emplace(block, hash_of(managed, block));
    });
}

// Updates the states for a use of whole blocks by a processor, and counts its faults.
void use_blocks(Managed &managed, size_t first, size_t last, int processor, bool write) {
    size_t begin = first * block_bytes, end = std::min(last * block_bytes, size_of(managed));
    size_t counted = first; // the first block for which this use has counted no fault
    change_places(managed, begin, end, [&](size_t from, size_t to, PageState &state) {
        bool fault = use(state, processor, write);
        state.last_use = uses;
        for (size_t block = from / block_bytes; fault && block * block_bytes < to; block++)
            if (block >= counted) {
                PageFaults &faults = managed.faults[block];
                (processor == the_host ? faults.host : faults.device)++;
                counted = block + 1;
            }
    });
    hash_copies(managed, first, last);
}

// Finds blocks that the host has written although devices have copies of them.
void notice_writes(Managed &managed, size_t first, size_t last) {
    std::vector<size_t> written;
    auto end = managed.hashes.lower_bound(last);
    for (auto entry = managed.hashes.lower_bound(first); entry != end; ++entry)
        if (hash_of(managed, entry->first) != entry->second)
            written.push_back(entry->first);
    for (size_t block : written)
        use_blocks(managed, block, block + 1, the_host, true);
}

// Finds blocks that the host has used although their pages were not on the host.
void notice_blocks(Managed &managed, size_t first, size_t last) {
    if (!managed.user)
        return;
    std::set<size_t> used;
    size_t end = std::min(last * block_bytes, size_of(managed));
    managed.pages.visit(first * block_bytes, end, [&](size_t from, size_t to, auto &state) {
        if (!state.is_at(the_host))
            visit_present(managed.user + from, (to - from) / page_bytes, [&](size_t page) {
                used.insert((from + page * page_bytes) / block_bytes);
            });
    });
    for (size_t block : used)
        use_blocks(managed, block, block + 1, the_host, false);
}

size_t first_block(const Pages &pages) { return pages.begin / block_bytes; }
size_t last_block(const Pages &pages) { return (pages.end - 1) / block_bytes + 1; }

// Half-open ranges of blocks of one allocation.
using Blocks = std::vector<std::pair<size_t, size_t>>;

void join(Blocks &blocks) {
    std::sort(blocks.begin(), blocks.end());
    Blocks joined;
    for (const auto &each : blocks) {
        if (!joined.empty() && each.first <= joined.back().second)
            joined.back().second = std::max(joined.back().second, each.second);
        else
            joined.push_back(each);
    }
    blocks = std::move(joined);
}

// Returns the blocks of each managed allocation in the ranges.
std::map<Managed *, Blocks> blocks_of(const std::vector<Range> &ranges) {
    std::map<Managed *, Blocks> found;
    for (const Range &range : ranges) {
        const Allocation *allocation = find_allocation(range.begin);
        if (!allocation || !allocation->managed)
            continue;
        Blocks &blocks = found[allocation->managed.get()];
        size_t begin = range.begin - allocation->begin;
        auto add = [&](size_t from, size_t bytes) {
            blocks.emplace_back(from / block_bytes, (from + bytes - 1) / block_bytes + 1);
        };
        if (range.pitch < block_bytes)
            add(begin, range.end() - range.begin);
        else
            for (size_t row = 0; row < range.rows; row++)
                add(begin + row * range.pitch, range.bytes);
    }
    for (auto &entry : found)
        join(entry.second);
    return found;
}

} // namespace

CUmemLocation location_of_processor(int processor) {
    return make_location(processor == the_host ? location_host : location_device, processor);
}

CUresult check_page_place(CUmemLocation &location) {
    switch (static_cast<int>(location.type)) {
    case location_device:
        return find_device(location.id) && state().settings.concurrent_managed
                   ? CUDA_SUCCESS
                   : CUDA_ERROR_INVALID_DEVICE;
    case location_host:
        location.id = the_host;
        return CUDA_SUCCESS;
    case location_numa_current:
        return CUDA_SUCCESS;
    case location_numa:
        return location.id == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

void use_pages(Device &device, const std::vector<Range> &reads, const std::vector<Range> &writes) {
    if (!Managed::alive)
        return;
    uses++;
    auto written = blocks_of(writes);
    auto use_all = [&](const std::map<Managed *, Blocks> &used, bool write) {
        for (auto &[managed, blocks] : used)
            for (auto [first, last] : blocks) {
                notice_blocks(*managed, first, last);
                // Bytes that the work itself has written must not count as written by the host.
                if (!written.count(managed))
                    notice_writes(*managed, first, last);
                use_blocks(*managed, first, last, device.ordinal, write);
            }
    };
    use_all(blocks_of(reads), false);
    use_all(written, true);
    make_room(device);
}

void move_pages(const Pages &pages, int processor) {
    notice_host(pages);
    uses++;
    change_places(*pages.managed, pages.begin, pages.end, [&](size_t, size_t, PageState &state) {
        state.last_use = uses;
        if (state.read_mostly && state.place != nowhere && state.place != processor)
            state.copies.insert(processor);
        else if (state.place != processor)
            move_to(state, processor);
    });
    hash_copies(*pages.managed, first_block(pages), last_block(pages));
    if (Device *device = find_device(processor))
        make_room(*device);
}

void set_read_mostly(const Pages &pages, bool read_mostly) {
    notice_host(pages);
    change_places(*pages.managed, pages.begin, pages.end, [&](size_t, size_t, PageState &state) {
        state.read_mostly = read_mostly;
        if (!read_mostly)
            state.copies.clear();
    });
    hash_copies(*pages.managed, first_block(pages), last_block(pages));
}

void empty_pages(const Pages &pages) {
    notice_blocks(*pages.managed, first_block(pages), last_block(pages));
    change_places(*pages.managed, pages.begin, pages.end,
                  [](size_t, size_t, PageState &state) { move_to(state, nowhere); });
    hash_copies(*pages.managed, first_block(pages), last_block(pages));
}

void forget_pages(Managed &managed) {
    managed.user = nullptr;
    managed.hashes.clear();
    change_places(managed, 0, size_of(managed),
                  [](size_t, size_t, PageState &state) { move_to(state, nowhere); });
}

void make_room(Device &device) {
    auto excess = [&] {
        size_t wanted = device.used + device.resident, room = state().settings.memory;
        return wanted > room ? std::min(wanted - room, device.resident) : 0;
    };
    if (!excess())
        return;
    struct Stretch {
        uint64_t last_use;
        Managed *managed;
        size_t begin, end;
    };
    std::vector<Stretch> here;
    for (const auto &entry : state().allocations)
        if (Managed *managed = entry.second.managed.get())
            managed->pages.visit(0, size_of(*managed), [&](size_t begin, size_t end, auto &state) {
                if (state.is_at(device.ordinal))
                    here.push_back({state.last_use, managed, begin, end});
            });
    std::stable_sort(here.begin(), here.end(),
                     [](auto &one, auto &other) { return one.last_use < other.last_use; });
    for (const Stretch &stretch : here) {
        size_t bytes = std::min(whole_pages(excess()), stretch.end - stretch.begin);
        if (!bytes)
            return;
        change_places(*stretch.managed, stretch.begin, stretch.begin + bytes,
                      [&](size_t, size_t, PageState &state) {
                          if (state.place == device.ordinal)
                              state.place = the_host;
                          state.copies.erase(device.ordinal);
                          state.copies.erase(state.place);
                      });
        hash_copies(*stretch.managed, stretch.begin / block_bytes,
                    (stretch.begin + bytes - 1) / block_bytes + 1);
    }
}

void notice_host(const Pages &pages) {
    notice_blocks(*pages.managed, first_block(pages), last_block(pages));
    notice_writes(*pages.managed, first_block(pages), last_block(pages));
}

PageFaults faults_of(const Pages &pages) {
    PageFaults sum;
    for (size_t block = pages.begin / block_bytes; block * block_bytes < pages.end; block++) {
        sum.host += pages.managed->faults[block].host;
        sum.device += pages.managed->faults[block].device;
    }
    return sum;
}

} // namespace soft
