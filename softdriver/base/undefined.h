#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace soft {

// Which bits of device memory are undefined: nobody has written them, or a kernel has stored a
// value that depends on undefined bits. Memory that nothing has called undefined is defined. All
// functions can be called from any thread.
//
// The origin of an undefined value is a number that the check gives to the place in a kernel where
// the value was first read (check/origins.h). It is 0 for memory that no kernel has read.
class UndefinedMemory {
  public:
    // While it is off, everything is defined.
    void turn(bool on);
    bool is_on() const { return on_; }
    // New memory, which nobody has written. Only tracked memory can be undefined: the host can
    // write other memory without the driver.
    void track(uintptr_t begin, size_t bytes);
    void untrack(uintptr_t begin, size_t bytes);
    void define(uintptr_t begin, size_t bytes);
    // The target gets the undefined bits of the source, if it is tracked. The two may overlap.
    void copy(uintptr_t target, uintptr_t source, size_t bytes);

    // Returns whether all bytes of the pages that have these bytes are defined. `version` is
    // changed() from before the call: the answer holds as long as changed() does not change.
    bool is_clean(uintptr_t begin, size_t bytes) const;
    // Grows whenever memory becomes undefined.
    uint64_t changed() const { return changed_; }
    // Sets `masks` to the undefined bits of each byte. Returns whether there are any. If so, sets
    // `origin` to the origin of one of them.
    bool read(uintptr_t begin, size_t bytes, uint8_t *masks, uint32_t &origin) const;
    // Sets the undefined bits of each byte, if the memory is tracked.
    void write(uintptr_t begin, size_t bytes, const uint8_t *masks, uint32_t origin);
    // Finds the first undefined bytes: sets `begin` and `end` to where they begin and end. Returns
    // false if there are none.
    bool find(uintptr_t &begin, uintptr_t &end, uint32_t &origin) const;

    static constexpr size_t page_bytes = 4096;

  private:
    static constexpr size_t word_bytes = 4, most_copied = 1024;
    // A page of which only a part is undefined.
    struct Page {
        std::array<uint8_t, page_bytes> masks{};
        std::array<uint32_t, page_bytes / word_bytes> origins{};
        size_t undefined = 0; // bytes with an undefined bit
    };
    struct Part; // of a range of bytes, in one page

    void undefine(uintptr_t begin, size_t bytes);
    bool is_tracked(uintptr_t address) const;
    const Page *find_page(uintptr_t number) const;
    Page &page_at(uintptr_t number);
    std::map<uintptr_t, uintptr_t>::const_iterator whole_behind(uintptr_t at) const;
    void cut(uintptr_t begin, uintptr_t end);
    bool is_whole(uintptr_t begin, uintptr_t end) const; // all of it is in whole_, as one range
    void copy_some(uintptr_t target, uintptr_t source, size_t bytes);
    void set(uintptr_t begin, size_t bytes, const uint8_t *masks, uint32_t origin);
    bool get(uintptr_t begin, size_t bytes, uint8_t *masks, uint32_t &origin) const;

    mutable std::mutex mutex_;
    std::atomic<bool> on_{false};
    std::atomic<uint64_t> changed_{0};
    std::map<uintptr_t, uintptr_t> tracked_; // end by begin
    // The end of each range of wholly undefined bytes outside of pages_, by its begin.
    std::map<uintptr_t, uintptr_t> whole_;
    std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages_; // by address / page_bytes
};

UndefinedMemory &undefined_memory();

} // namespace soft
