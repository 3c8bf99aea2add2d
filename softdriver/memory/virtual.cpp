#include "memory/virtual.h"

#include "api/state.h"
#include "base/process.h"
#include "memory/freed.h"

#include <algorithm>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

// Virtual memory management: memory without addresses, reserved addresses, and the mappings between
// them. virtual_api.cpp has the driver's functions.

namespace soft {
namespace {

constexpr size_t most_freed = size_t(1) << 40; // bytes of freed addresses that stay unusable
constexpr size_t most_ranges = 1024; // limit of their ranges; Linux allows 65,530 mappings
constexpr int access_protection = PROT_READ | PROT_WRITE;

CUresult write_pattern(int file, size_t bytes) {
    static const std::vector<unsigned char> pattern(virtual_granularity, fresh_memory);
    for (size_t at = 0; at < bytes; at += pattern.size())
        if (pwrite(file, pattern.data(), pattern.size(), off_t(at)) != ssize_t(pattern.size()))
            return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_SUCCESS;
}

} // namespace

Backing::Backing(Device &on, size_t size, const CUmemAllocationProp &wanted, bool made_here)
    : device(&on), bytes(size), properties(wanted), made_here(made_here), id(state().new_id()) {
    if (made_here)
        device->used += bytes;
    state().live_bytes += bytes;
}

Backing::~Backing() {
    if (made_here)
        device->used -= bytes;
    state().live_bytes -= bytes;
    if (file >= 0)
        close(file);
}

bool Backing::fill() {
    file = create_shared_file("cudadrv-memory", bytes + description_bytes());
    return file >= 0 && write_pattern(file, bytes) == CUDA_SUCCESS && describe_backing(*this);
}

BackingPtr find_backing(CUmemGenericAllocationHandle handle) {
    BackingPtr backing = state().backings.find(handle);
    return backing && backing->references ? backing : nullptr;
}

bool Reservation::map(uintptr_t address, size_t bytes, const BackingPtr &backing) {
    char *target = host_ + (address - begin_);
    if (mmap(target, bytes, access_protection, MAP_SHARED | MAP_FIXED, backing->file, 0) ==
        MAP_FAILED)
        return false;
    keep_private(target, bytes);
    mappings_.emplace(address, Mapping{bytes, backing});
    backing->mappings++;
    return true;
}

void Reservation::unmap(const Range &range) {
    auto mapping = mappings_.lower_bound(range.begin);
    while (mapping != mappings_.end() && mapping->first < range.end()) {
        Backing &backing = *mapping->second.backing;
        if (!--backing.mappings && !backing.references)
            state().backings.erase(backing.handle);
        mapping = mappings_.erase(mapping);
    }
    // Work that still uses the addresses must not crash the process, so other memory is mapped
    // there.
    char *target = host_ + (range.begin - begin_);
    mmap(target, range.bytes, access_protection,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    keep_private(target, range.bytes);
}

void Reservation::set_access(const Range &range, int device, int flags) {
    auto mapping = mappings_.lower_bound(range.begin);
    for (; mapping != mappings_.end() && mapping->first < range.end(); ++mapping)
        mapping->second.access[device] = flags;
}

const Mapping *Reservation::before(uintptr_t address, uintptr_t *begin) const {
    auto after = mappings_.upper_bound(address);
    if (after == mappings_.begin())
        return nullptr;
    --after;
    *begin = after->first;
    return &after->second;
}

const Mapping *Reservation::find(uintptr_t address, uintptr_t *begin) const {
    uintptr_t first;
    const Mapping *mapping = before(address, &first);
    if (!mapping || address - first >= mapping->bytes)
        return nullptr;
    if (begin)
        *begin = first;
    return mapping;
}

bool Reservation::is_free(const Range &range) const {
    auto next = mappings_.lower_bound(range.begin);
    return !find(range.begin) && (next == mappings_.end() || next->first >= range.end());
}

bool Reservation::covers(uintptr_t begin, size_t bytes) const {
    uintptr_t end = begin + bytes, first;
    for (const Mapping *mapping; (mapping = find(begin, &first)); begin = first + mapping->bytes)
        if (first + mapping->bytes >= end)
            return true;
    return false;
}

bool Reservation::is_whole(const Range &range) const {
    auto mapping = mappings_.find(range.begin);
    uintptr_t at = range.begin;
    for (; mapping != mappings_.end() && mapping->first == at && at < range.end(); ++mapping)
        at += mapping->second.bytes;
    return at == range.end();
}

bool Reservation::cuts_none(const Range &range) const {
    uintptr_t begin;
    if (find(range.begin, &begin) && begin != range.begin)
        return false;
    const Mapping *last = find(range.end() - 1, &begin);
    return !last || begin + last->bytes == range.end();
}

static int access_of(const Mapping &mapping, int device) {
    auto found = mapping.access.find(device);
    return found == mapping.access.end() ? CU_MEM_ACCESS_FLAGS_PROT_NONE : found->second;
}

static bool admits_all(const Mapping &mapping, int device, bool writes) {
    int access = access_of(mapping, device);
    return writes ? access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                  : access != CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

bool Reservation::admits(int device, uintptr_t begin, size_t bytes, bool writes) const {
    uintptr_t end = begin + bytes, first;
    for (const Mapping *mapping; (mapping = find(begin, &first)); begin = first + mapping->bytes) {
        if (!admits_all(*mapping, device, writes))
            return false;
        if (first + mapping->bytes >= end)
            return true;
    }
    return false;
}

Range Reservation::reach(int device, uintptr_t address, bool *writable) const {
    uintptr_t first;
    const Mapping *mapping = find(address, &first);
    if (!mapping || !admits_all(*mapping, device, false))
        return {address, 0};
    *writable = admits_all(*mapping, device, true);
    auto same = [&](const Mapping &other) {
        return admits_all(other, device, false) && admits_all(other, device, true) == *writable;
    };
    auto from = mappings_.find(first), to = from;
    while (from != mappings_.begin()) {
        auto left = std::prev(from);
        if (left->first + left->second.bytes != from->first || !same(left->second))
            break;
        from = left;
    }
    for (auto right = std::next(to); right != mappings_.end(); to = right++)
        if (to->first + to->second.bytes != right->first || !same(right->second))
            break;
    return {from->first, to->first + to->second.bytes - from->first};
}

void FreedAddresses::add(uintptr_t begin, size_t bytes) {
    ranges_.push_back({begin, bytes});
    bytes_ += bytes;
    while (bytes_ > most_freed || ranges_.size() > most_ranges) {
        munmap(reinterpret_cast<void *>(ranges_.front().begin), ranges_.front().bytes);
        bytes_ -= ranges_.front().bytes;
        ranges_.pop_front();
    }
}

bool FreedAddresses::contains(uintptr_t address) const {
    return std::any_of(ranges_.begin(), ranges_.end(),
                       [&](const Range &range) { return address - range.begin < range.bytes; });
}

std::string describe_reserved(uintptr_t address, const Allocation &reserved, uintptr_t &live) {
    uintptr_t begin;
    const Mapping *mapping = reserved.reservation->before(address, &begin);
    if (!mapping)
        return std::to_string(address - reserved.begin) + " bytes into the " +
               std::to_string(reserved.bytes) + " bytes at " + address_text(reserved.begin) +
               " that cuMemAddressReserve made, where nothing is mapped";
    std::string memory = "the " + std::to_string(mapping->bytes) + " bytes at " +
                         address_text(begin) + " that cuMemMap mapped";
    size_t offset = address - begin;
    live = std::min(address, begin + mapping->bytes - 1);
    if (offset >= mapping->bytes)
        return std::to_string(offset - mapping->bytes) + " bytes beyond the end of " + memory;
    std::string users;
    for (const auto &[device, access] : mapping->access)
        if (access != CU_MEM_ACCESS_FLAGS_PROT_NONE)
            users += (users.empty() ? "" : ", ") + std::to_string(device) +
                     (access == CU_MEM_ACCESS_FLAGS_PROT_READ ? " (only to read)" : "");
    return std::to_string(offset) + " bytes into " + memory + ", and that cuMemSetAccess lets " +
           (users.empty() ? "no device" : "device " + users) + " use";
}

void destroy_reservations() {
    State &driver = state();
    std::vector<Allocation *> reserved;
    for (auto &entry : driver.allocations)
        if (entry.second.reservation)
            reserved.push_back(&entry.second);
    for (Allocation *each : reserved) {
        each->reservation->unmap({each->begin, each->bytes});
        remove_reservation(*each);
    }
    driver.backings.clear();
}

} // namespace soft
