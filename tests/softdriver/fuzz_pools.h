#pragma once

#include "api/control.h"
#include "base/random.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <sys/mman.h>

// Handles and addresses that calls returned, alive or not, and memory of the test's own.

namespace fuzz {

// Values of one kind, which threads share. The atomics are relaxed: otherwise they would order the
// threads, and hide races.
class Pool {
  public:
    void put(uint64_t value) {
        unsigned place = next_.fetch_add(1, std::memory_order_relaxed) % slots_.size();
        slots_[place].store(value, std::memory_order_relaxed);
    }
    uint64_t any(soft::Random &random) const {
        return slots_[random.below(slots_.size())].load(std::memory_order_relaxed);
    }

  private:
    std::array<std::atomic<uint64_t>, 12> slots_{};
    std::atomic<unsigned> next_{0};
};

// One pool for each type of handle.
template <class Handle> Pool &pool_of() {
    static Pool pool;
    return pool;
}

// Start addresses of allocations of all kinds, some of them freed.
inline Pool addresses;

// Reserved addresses, and handles of memory that can be mapped to them.
inline Pool reservations, backings;
constexpr size_t granule = size_t(2) << 20;

// Handles of texture and surface objects.
inline Pool objects;

// Maps fresh pages, which the driver does not know.
inline char *map_pages(size_t bytes) {
    void *pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return pages == MAP_FAILED ? nullptr : static_cast<char *>(pages);
}

// The capacity of a device. The pageable memory of each thread is twice as large: no range that the
// driver accepts is longer.
constexpr size_t capacity = size_t(48) << 20;
constexpr size_t scratch_bytes = 2 * capacity;
// Pointers begin in the first part of the scratch memory.
constexpr size_t scratch_used = size_t(1) << 20;

// Words for which streams wait. A watcher thread sets each to 1 again and again, so that every wait
// ends. Only these functions write to them.
class Gates {
  public:
    static constexpr size_t count = 8, bytes = 4096;

    uintptr_t address(size_t gate) const { return reinterpret_cast<uintptr_t>(word(gate)); }
    void *pages() const { return words_; }
    void close(size_t gate) { __atomic_store_n(word(gate), 0, __ATOMIC_RELEASE); }
    void open_all() {
        for (size_t gate = 0; gate < count; gate++)
            __atomic_store_n(word(gate), 1, __ATOMIC_RELEASE);
    }

  private:
    uint64_t *word(size_t gate) const { return words_ + 16 * gate; }

    uint64_t *words_ = reinterpret_cast<uint64_t *>(map_pages(bytes));
};

// The live allocation that contains an address, as the driver reports it.
struct Known {
    uintptr_t begin = 0;
    size_t bytes = 0;
    bool host = false; // page-locked or managed memory: a wrong access would crash this program
};

inline bool ask(uintptr_t address, Known &known) {
    unsigned type = 0;
    int managed = 0;
    if (cuPointerGetAttribute(&known.bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address) ||
        cuPointerGetAttribute(&known.begin, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address) ||
        cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) ||
        cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address))
        return false;
    known.host = managed || type == CU_MEMORYTYPE_HOST;
    return true;
}

} // namespace fuzz
