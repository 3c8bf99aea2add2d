#include "ptx/heap.h"

#include "base/range.h"
#include "base/undefined.h"
#include "ptx/access.h"
#include "ptx/families.h"
#include "ptx/provided.h"

#include <algorithm>
#include <sys/mman.h>

// This file implements malloc and free in kernels.

namespace soft::ptx {

namespace {

constexpr size_t alignment = 16; // CUDA promises this for malloc
// Bytes after each block that belong to no block, so that a short access beyond the end of a block
// is found.
constexpr size_t gap = 16;
// The address space of the heap, as a multiple of its capacity. A larger multiple delays the reuse
// of addresses.
constexpr size_t times = 4;
constexpr size_t page = 4096;
constexpr size_t most_freed = 1 << 16; // how many freed blocks the heap remembers

// How much of the capacity a block uses. Every block, even an empty one, has an address of its own.
size_t room_of(size_t bytes) { return round_up(std::max(bytes, size_t{1}), alignment) + gap; }

char *map(size_t bytes, int protection) {
    void *address =
        mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return address == MAP_FAILED ? nullptr : static_cast<char *>(address);
}

} // namespace

Heap::Heap(size_t capacity) : capacity_(capacity) {
    size_t bytes = round_up(capacity * times, page);
    char *device = map(bytes, PROT_NONE);
    alias_ = device ? map(bytes, PROT_READ | PROT_WRITE) : nullptr;
    if (!alias_) {
        if (device)
            munmap(device, bytes);
        return; // without address space, every allocation fails
    }
    madvise(alias_, bytes, MADV_DONTFORK);
    madvise(alias_, bytes, MADV_DONTDUMP);
    begin_ = cursor_ = reinterpret_cast<uintptr_t>(device);
    bytes_ = bytes;
}

Heap::~Heap() {
    if (!alias_)
        return;
    munmap(reinterpret_cast<void *>(begin_), bytes_);
    munmap(alias_, bytes_);
}

// Returns the last block that begins at or before the address, or the end.
Heap::Blocks::iterator Heap::block_before(uintptr_t address) {
    auto after = blocks_.upper_bound(address);
    return after == blocks_.begin() ? blocks_.end() : std::prev(after);
}

// Returns the next addresses without live memory, and forgets the freed blocks there. Returns 0 if
// there are none.
uintptr_t Heap::find_gap(size_t bytes) {
    for (int pass = 0; pass < 2; pass++) {
        auto first = blocks_.lower_bound(cursor_), next = first;
        while (bytes <= begin_ + bytes_ - cursor_) {
            if (next == blocks_.end() || cursor_ + bytes <= next->first) {
                blocks_.erase(first, next);
                return cursor_;
            }
            if (next->second.live) {
                cursor_ = next->first + room_of(next->second.bytes);
                first = std::next(next);
            }
            ++next;
        }
        cursor_ = begin_;
    }
    return 0;
}

uintptr_t Heap::allocate(size_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!alias_ || bytes > capacity_ || room_of(bytes) > capacity_ - used_)
        return 0;
    uintptr_t address = find_gap(room_of(bytes));
    if (!address)
        return 0;
    cursor_ = address + room_of(bytes);
    used_ += room_of(bytes);
    blocks_[address] = {bytes, true};
    memset(alias_ + (address - begin_), fresh_byte, bytes);
    undefined_memory().track(address, bytes);
    return address;
}

bool Heap::release(uintptr_t address) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = blocks_.find(address);
    if (found == blocks_.end() || !found->second.live)
        return false;
    found->second.live = false;
    used_ -= room_of(found->second.bytes);
    freed_.push_back(address);
    if (freed_.size() > most_freed) {
        auto oldest = blocks_.find(freed_.front());
        if (oldest != blocks_.end() && !oldest->second.live)
            blocks_.erase(oldest);
        freed_.pop_front();
    }
    uintptr_t first = round_up(address, page), end = (address + found->second.bytes) / page * page;
    if (first < end)
        madvise(alias_ + (first - begin_), end - first, MADV_DONTNEED);
    return true;
}

bool Heap::find(uintptr_t address, Segment &segment) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = block_before(address);
    if (found == blocks_.end() || !found->second.live ||
        address - found->first >= found->second.bytes)
        return false;
    segment = {found->first, found->second.bytes, alias_ + (found->first - begin_), true};
    return true;
}

std::string Heap::describe(uintptr_t address) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = block_before(address);
    if (found == blocks_.end())
        return "in memory that malloc has not returned";
    size_t offset = address - found->first, bytes = found->second.bytes;
    std::string block = "the " + std::to_string(bytes) + " bytes that malloc returned";
    if (!found->second.live)
        block += " and free freed";
    if (offset < bytes)
        return std::to_string(offset) + " bytes into " + block;
    return std::to_string(offset - bytes) + " bytes beyond the end of " + block;
}

namespace {

// The handler of malloc. rows[0] receives the result, and rows[1] has the number of bytes.
void allocate(Warp &warp, const Step &step) {
    Heap *heap = warp.machine.launch.heap.get();
    for (uint32_t left = warp.active; left; left &= left - 1) {
        int lane = __builtin_ctz(left);
        uint64_t address = heap ? heap->allocate(warp.row<uint64_t>(step.rows[1])[lane]) : 0;
        warp.machine.progress += address != 0;
        warp.row<uint64_t>(step.rows[0])[lane] = address;
    }
}

// The handler of free. rows[1] has the address.
void release(Warp &warp, const Step &step) {
    Heap *heap = warp.machine.launch.heap.get();
    for (uint32_t left = warp.active; left; left &= left - 1) {
        unsigned lane = unsigned(__builtin_ctz(left));
        uint64_t address = warp.row<uint64_t>(step.rows[1])[lane];
        if (address && !(heap && heap->release(address)))
            return warp.machine.fail(warp, step, lane, CUDA_ERROR_ILLEGAL_ADDRESS,
                                     "free of an address at which no memory of malloc begins",
                                     address);
        warp.machine.progress++;
    }
    warp.machine.memory.drop_segments();
}

} // namespace

bool decode_heap_call(Decoder &decoder, const std::string &function, const Operand *results,
                      const Operand *arguments) {
    bool allocates = function == "malloc";
    size_t result_count = results ? results->parts.size() : 0;
    if ((!allocates && function != "free") || result_count != (allocates ? 1 : 0) || !arguments ||
        arguments->parts.size() != 1)
        return false;
    const Operand *result = allocates ? &results->parts[0] : nullptr;
    decoder.step.rows[0] = provided_result(decoder, result, 8);
    decoder.step.rows[1] = provided_argument(decoder, arguments->parts[0], 8);
    decoder.code().communicates = true;
    decoder.emit(allocates ? allocate : release);
    emit_result(decoder, result, 8);
    return true;
}

bool is_heap_function(const Function &function) {
    return !function.defined && (function.name == "malloc" || function.name == "free");
}

} // namespace soft::ptx
