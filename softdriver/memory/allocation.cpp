#include "memory/allocation.h"

#include "api/call.h"
#include "api/state.h"
#include "base/undefined.h"
#include "memory/ipc.h"

#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

// The table of live allocations of all kinds, and how each kind gets its memory.

namespace soft {
namespace {

constexpr uintptr_t lowest_host_address = 65536;

Allocation &add(const Context &context, uintptr_t begin, char *host, size_t bytes,
                MemoryKind kind) {
    State &driver = state();
    Allocation &allocation = driver.allocations[begin];
    allocation.begin = begin;
    allocation.bytes = bytes;
    allocation.kind = kind;
    allocation.host = host;
    allocation.device = context.device;
    allocation.owner = const_cast<Context *>(&context);
    allocation.context = context.handle;
    allocation.id = driver.new_id();
    allocation.number = driver.next_allocation++;
    allocation.maker = thread_state().function;
    driver.live_allocations[static_cast<int>(kind)]++;
    if (kind != MemoryKind::Registered)
        driver.live_bytes += bytes;
    return allocation;
}

void stop_counting(const Allocation &allocation) {
    State &driver = state();
    driver.live_allocations[static_cast<int>(allocation.kind)]--;
    if (allocation.kind != MemoryKind::Registered)
        driver.live_bytes -= allocation.bytes;
}

} // namespace

bool exceeds_machine(size_t bytes) {
    static const size_t machine = size_t(sysconf(_SC_PHYS_PAGES)) * size_t(sysconf(_SC_PAGESIZE));
    return bytes > machine;
}

size_t capacity_of(size_t bytes) { return round_up(bytes, 512); }

// Returns the entry of the table that contains the address, or null.
static Allocation *find_entry(uintptr_t address) {
    auto &allocations = state().allocations;
    auto next = allocations.upper_bound(address);
    if (next == allocations.begin())
        return nullptr;
    Allocation &candidate = std::prev(next)->second;
    return address - candidate.begin < candidate.bytes ? &candidate : nullptr;
}

static bool of_array(const Allocation *found) { return found && found->kind == MemoryKind::Array; }

Allocation *find_allocation(uintptr_t address) {
    Allocation *found = find_entry(address);
    bool empty = found && found->reservation && !found->reservation->find(address);
    return empty || of_array(found) ? nullptr : found;
}

Allocation *find_visible(uintptr_t address) {
    Allocation *allocation = find_allocation(address);
    return allocation && !allocation->captured ? allocation : nullptr;
}

Allocation *find_start(uintptr_t address) {
    Allocation *allocation = find_allocation(address);
    return allocation && allocation->begin == address ? allocation : nullptr;
}

Allocation *find_reserved(uintptr_t begin, size_t bytes) {
    Allocation *found = find_entry(begin);
    return found && bytes <= found->bytes - (begin - found->begin) ? found : nullptr;
}

Allocation *find_range(uintptr_t begin, size_t bytes) {
    Allocation *found = find_reserved(begin, bytes);
    bool empty = found && found->reservation && !found->reservation->covers(begin, bytes);
    return empty || of_array(found) ? nullptr : found;
}

bool reaches(const Context &context, const Allocation &allocation, uintptr_t begin, size_t bytes,
             bool writes) {
    if (allocation.pool)
        return allocation.pool->admits(*context.device);
    if (allocation.reservation)
        return allocation.reservation->admits(context.device->ordinal, begin, bytes, writes);
    if (!allocation.on_device() || allocation.device == context.device)
        return true;
    // Driver 580 gives no access to variables of modules, and to memory of other processes.
    bool excluded = allocation.of_module || (allocation.sharing && allocation.sharing->opened);
    return !excluded && context.peers.count(allocation.owner->id) > 0;
}

bool never_host_memory(uintptr_t address) {
    if (address < lowest_host_address)
        return true;
    for (const auto &device : state().devices)
        if (device->arena.contains(address))
            return true;
    const Allocation *entry = find_entry(address);
    return (entry && entry->reservation) || state().freed_addresses.contains(address);
}

CUresult place_device(const Context &context, Device &device, size_t bytes, MemoryKind kind,
                      Allocation *&result) {
    if (CUresult status = state().settings.faults.strike_allocation(bytes))
        return status;
    if (!device.arena.reserved() && !device.arena.reserve(state().settings.memory))
        return CUDA_ERROR_OUT_OF_MEMORY;
    uintptr_t address = device.arena.allocate(bytes);
    if (!address)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = &add(context, address, device.arena.alias(address), bytes, kind);
    result->device = &device;
    if (kind != MemoryKind::Array) // textures and surfaces are not tracked
        undefined_memory().track(address, bytes);
    return CUDA_SUCCESS;
}

CUresult place_imported(const Context &context, Device &device, MemoryKind kind, int file,
                        uint64_t offset, size_t bytes, Allocation *&result) {
    if (!device.arena.reserved() && !device.arena.reserve(state().settings.memory))
        return CUDA_ERROR_OUT_OF_MEMORY;
    uintptr_t address = device.arena.adopt(file, offset, bytes);
    if (!address)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = &add(context, address, device.arena.alias(address), bytes, kind);
    result->device = &device;
    return CUDA_SUCCESS;
}

bool has_capacity(Device &device, size_t bytes) {
    size_t capacity = state().settings.memory;
    auto full = [&] { return device.used + capacity_of(bytes) > capacity; };
    if (bytes > capacity)
        return false;
    if (full())
        trim_pools(device);
    return !full();
}

CUresult allocate_device(const Context &context, size_t bytes, MemoryKind kind,
                         Allocation *&result) {
    Device &device = *context.device;
    if (!has_capacity(device, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (CUresult status = place_device(context, device, bytes, kind, result))
        return status;
    device.used += capacity_of(bytes);
    make_room(device);
    return CUDA_SUCCESS;
}

namespace {

char *map_fresh(size_t bytes) {
    void *address =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return address == MAP_FAILED ? nullptr : static_cast<char *>(address);
}

} // namespace

CUresult allocate_host(const Context &context, size_t bytes, unsigned flags, Allocation *&result) {
    if (CUresult status = state().settings.faults.strike_allocation(bytes))
        return status;
    bool watched = HostUses::watching(), twice = watched || state().maps_twice;
    char *alias = nullptr, *address = nullptr;
    if (!exceeds_machine(bytes))
        address = twice ? map_twice(bytes, alias, true) : map_fresh(bytes);
    if (!address)
        return CUDA_ERROR_OUT_OF_MEMORY;
    char *host = twice ? alias : address;
    std::memset(host, fresh_memory, bytes);
    result = &add(context, reinterpret_cast<uintptr_t>(address), host, bytes, MemoryKind::Host);
    result->flags = flags;
    if (watched)
        state().host_uses.allocated(*result);
    else if (twice)
        state().host_uses.mapped_twice(*result);
    return CUDA_SUCCESS;
}

CUresult allocate_in_file(const Context &context, HostFile &file, size_t bytes,
                          Allocation *&result) {
    if (CUresult status = state().settings.faults.strike_allocation(bytes))
        return status;
    char *address = exceeds_machine(bytes) ? nullptr : file.allocate(bytes);
    if (!address)
        return CUDA_ERROR_OUT_OF_MEMORY;
    place_imported_host(context, address, bytes, result);
    return CUDA_SUCCESS;
}

void place_imported_host(const Context &context, char *address, size_t bytes, Allocation *&result) {
    result = &add(context, reinterpret_cast<uintptr_t>(address), address, bytes, MemoryKind::Host);
    result->of_others = true;
}

CUresult allocate_managed(const Context &context, size_t bytes, unsigned flags,
                          Allocation *&result) {
    if (CUresult status = state().settings.faults.strike_allocation(bytes))
        return status;
    char *alias = nullptr;
    char *user = exceeds_machine(bytes) ? nullptr : map_twice(bytes, alias, false);
    if (!user)
        return CUDA_ERROR_OUT_OF_MEMORY;
    std::memset(alias, fresh_memory, bytes);
    result = &add(context, reinterpret_cast<uintptr_t>(user), alias, bytes, MemoryKind::Managed);
    result->flags = flags;
    result->managed = std::make_shared<Managed>(user, alias, bytes, flags);
    result->sync_memops = true;
    if (HostUses::watching() && state().settings.concurrent_managed)
        state().host_uses.allocated(*result);
    return CUDA_SUCCESS;
}

void give_to_module(Allocation &allocation) {
    stop_counting(allocation);
    allocation.of_module = true;
    undefined_memory().define(allocation.begin, allocation.bytes); // it has initial values
}

void add_reservation(Device &device, uintptr_t begin, char *host, size_t bytes) {
    State &driver = state();
    Allocation &reserved = driver.allocations[begin];
    reserved.begin = begin;
    reserved.bytes = bytes;
    reserved.host = host;
    reserved.device = &device;
    reserved.id = driver.new_id();
    reserved.maker = thread_state().function;
    reserved.reservation = std::make_shared<Reservation>(begin, host);
    driver.live_reservations++;
}

void remove_reservation(Allocation &reserved) {
    State &driver = state();
    size_t bytes = reserved.bytes;
    uintptr_t begin = reserved.begin;
    driver.races.removed(reserved);
    driver.freed.add(reserved, thread_state().function, false);
    // Streams may still have work that uses the hidden addresses.
    std::shared_ptr<void> hidden(reserved.host, [=](void *host) { munmap(host, bytes); });
    driver.scheduler.keep(hidden, begin, bytes);
    driver.freed_addresses.add(begin, bytes);
    driver.live_reservations--;
    driver.allocations.erase(begin);
}

void register_host(const Context &context, void *address, size_t bytes, unsigned flags) {
    Allocation &allocation = add(context, reinterpret_cast<uintptr_t>(address),
                                 static_cast<char *>(address), bytes, MemoryKind::Registered);
    allocation.flags = flags;
}

Remains remove_allocation(Allocation &allocation, bool in_stream) {
    State &driver = state();
    Remains remains{allocation.kind,  allocation.device, allocation.begin,   allocation.host,
                    allocation.bytes, allocation.pool,   allocation.managed, allocation.sharing};
    driver.races.removed(allocation);
    driver.host_uses.removed(allocation);
    driver.freed.add(allocation, thread_state().function, in_stream);
    if (allocation.pool)
        allocation.pool->leave(allocation.bytes);
    else if (allocation.on_device() && !(allocation.sharing && allocation.sharing->imported))
        allocation.device->used -= capacity_of(allocation.bytes);
    if (!allocation.of_module)
        stop_counting(allocation);
    driver.allocations.erase(remains.begin);
    return remains;
}

void release_memory(const Remains &remains) {
    state().freed.mark_released(remains.begin);
    undefined_memory().untrack(remains.begin, remains.bytes);
    if (remains.managed)
        forget_pages(*remains.managed);
    switch (remains.kind) {
    case MemoryKind::Device:
    case MemoryKind::Async:
    case MemoryKind::Array:
        if (remains.sharing)
            stop_sharing(*remains.device, *remains.sharing);
        remains.device->arena.release(remains.begin);
        remains.device->arena.discard(remains.begin, remains.bytes);
        break;
    case MemoryKind::Host:
    case MemoryKind::Managed: {
        // Streams of other contexts and devices may still use the memory. Unmap it only when their
        // work is done.
        size_t bytes = remains.bytes;
        auto user = reinterpret_cast<char *>(remains.begin);
        if (user != remains.host)
            munmap(user, bytes);
        auto file = remains.pool ? remains.pool->file : nullptr;
        if (file)
            file->withdraw(remains.host);
        std::shared_ptr<char> mapping(remains.host, [=](char *host) {
            if (file)
                file->release(host);
            else
                munmap(host, bytes);
        });
        state().scheduler.keep(mapping, remains.begin, bytes);
        break;
    }
    case MemoryKind::Registered:
        break;
    }
    if (remains.pool)
        remains.pool->left(remains.bytes);
}

void free_allocation(Allocation &allocation) { release_memory(remove_allocation(allocation)); }

void abandon_host_memory() {
    open_managed();
    std::vector<Allocation *> shared;
    for (auto &entry : state().allocations)
        if (!entry.second.on_device())
            shared.push_back(&entry.second);
    for (Allocation *allocation : shared) {
        Remains remains = remove_allocation(*allocation);
        state().freed.mark_released(remains.begin);
        if (remains.managed)
            forget_pages(*remains.managed);
        if (remains.pool)
            remains.pool->left(remains.bytes);
    }
}

// Frees all memory that belongs to a context.
static void free_context_memory(const Context &context) {
    std::vector<Allocation *> owned;
    for (auto &entry : state().allocations) {
        if (entry.second.owner != &context)
            continue;
        // Memory of a pool outlives the context, because the pool belongs to the device.
        if (entry.second.pool)
            entry.second.owner = nullptr;
        else
            owned.push_back(&entry.second);
    }
    for (Allocation *allocation : owned) {
        // Reports a race if another context still uses the memory.
        state().races.freed_by_host(*allocation);
        free_allocation(*allocation);
    }
}

[[gnu::constructor]] static void add_memory() {
    add_context_end(ContextEnd::Memory, free_context_memory);
}

} // namespace soft
