#include "memory/freed.h"

#include "api/state.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

namespace soft {
namespace {

constexpr size_t room = 1024; // number of entries that are kept after their memory was released

std::string name_of(Function function) {
    return function == Function::Count ? "the driver" : info(function).symbol;
}

std::string memory(uintptr_t begin, size_t bytes, Function maker) {
    return "the " + std::to_string(bytes) + " bytes at " + address_text(begin) + " that " +
           name_of(maker) + " made";
}

} // namespace

std::string address_text(uintptr_t address) {
    char text[24];
    std::snprintf(text, sizeof text, "0x%" PRIxPTR, address);
    return text;
}

void Freed::add(const Allocation &allocation, Function free, bool there) {
    if (entries_.size() >= room) {
        auto old = std::find_if(entries_.begin(), entries_.end(),
                                [](const EntryPtr &entry) { return !entry->there; });
        if (old != entries_.end())
            entries_.erase(old);
    }
    entries_.push_back(std::make_shared<Entry>(
        Entry{allocation.begin, allocation.bytes, allocation.host, allocation.device,
              allocation.pool, allocation.maker, free, allocation.id, there, allocation.shadow}));
}

void Freed::mark_released(uintptr_t begin) {
    if (EntryPtr entry = find(begin))
        entry->there = false;
}

Freed::EntryPtr Freed::find(uintptr_t address) const {
    for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry)
        if ((*entry)->holds(address))
            return *entry;
    return nullptr;
}

bool is_freed(uintptr_t address) {
    return !find_reserved(address, 1) && state().freed.find(address);
}

std::string describe_address(uintptr_t address, uintptr_t *at) {
    uintptr_t unused;
    uintptr_t &named = at ? *at : unused;
    named = 0;
    const Allocation *reserved = find_reserved(address, 1);
    if (reserved && reserved->reservation)
        return describe_reserved(address, *reserved, named);
    if (const Allocation *inside = reserved) {
        named = address;
        size_t offset = address - inside->begin;
        return std::to_string(offset) + " bytes into " +
               memory(inside->begin, inside->bytes, inside->maker);
    }
    if (Freed::EntryPtr old = state().freed.find(address)) {
        named = address;
        return std::to_string(address - old->begin) + " bytes into " +
               memory(old->begin, old->bytes, old->maker) + " and " + name_of(old->free) + " freed";
    }
    const auto &allocations = state().allocations;
    auto next = allocations.upper_bound(address);
    const Allocation *before = next == allocations.begin() ? nullptr : &std::prev(next)->second;
    const Allocation *behind = next == allocations.end() ? nullptr : &next->second;
    size_t past = before ? address - (before->begin + before->bytes) : SIZE_MAX;
    size_t short_of = behind ? behind->begin - address : SIZE_MAX;
    constexpr size_t near = size_t(1) << 30;
    if (std::min(past, short_of) > near)
        return "not near any memory that was allocated";
    if (past <= short_of) {
        named = before->begin + before->bytes - 1;
        return std::to_string(past) + " bytes beyond the end of " +
               memory(before->begin, before->bytes, before->maker);
    }
    named = behind->begin;
    return std::to_string(short_of) + " bytes before " +
           memory(behind->begin, behind->bytes, behind->maker);
}

std::string describe_memory(uintptr_t begin) {
    const std::string place = "0 bytes into ", text = describe_address(begin);
    return text.rfind(place, 0) == 0 ? text.substr(place.size()) : text;
}

} // namespace soft
